"""Reports progress: counts of stages, and bars or lines on standard error."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from rich import progress as bars
from rich.console import Console
from rich.table import Column

# Seconds until work is reported, and between two reports of it.
PATIENCE, EVERY = 2.0, 30.0

# Gets a stage, the units done and their total, which is 0 if it is unknown.
Progress = Callable[[str, int, int], None]


def no_progress(stage: str, done: int, total: int) -> None:
    """Shows no progress."""


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Hides all threads' warnings during work that only prepares other work; for the main thread alone."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


def counting(progress: Progress, stage: str, total: int) -> Callable[[float], None]:
    """Begins a stage, and returns a function that adds units, or fractions of them, to those done."""
    done = 0.0

    def add(units: float | int) -> None:
        nonlocal done
        done += units
        progress(stage, round(done), total)

    add(0)
    return add


def make_bar(label: str, *columns: bars.ProgressColumn, quiet: bool = False, **options) -> bars.Progress:
    """Makes a bar with a label, a count, further columns and the time that is left.

    Args:
      quiet: whether to print nothing.
      options: for rich's `Progress`. With `expand` the bar is as wide as the terminal.
    """
    console = _Console(stderr=True, quiet=quiet)
    return bars.Progress(
        bars.TextColumn(label),
        bars.MofNCompleteColumn(table_column=Column(no_wrap=True)),
        bars.BarColumn(bar_width=None if options.get('expand') else 40),
        *columns,
        bars.TimeRemainingColumn(elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        console=console,
        disable=not (console.is_terminal and not quiet),
        **options,
    )


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Stops printing. rich would end the program and close standard output."""
        self.quiet = True


def print_line(bar: bars.Progress, line: str) -> None:
    """Prints a line to the console of a bar, if standard error can be written: its disk can be full."""
    with contextlib.suppress(OSError):
        bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


class Heartbeat:
    """A thread that calls a function while work lasts: after `PATIENCE` seconds, then every `every` seconds.

    It is a thread because the work itself can be silent for minutes, like a compiler. In a `with` statement,
    the work is the block.

    Args:
      beat: gets the seconds since the work began.
      every: `EVERY` if None.
    """

    def __init__(self, beat: Callable[[float], object], every: float | None = None):
        self._beat, self._every = beat, every
        self._lock, self._ended = threading.Lock(), threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self) -> None:
        """Begins to count the seconds of new work, and ends any earlier work."""
        self.stop()
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(self._ended, time.monotonic()), daemon=True).start()

    def stop(self) -> None:
        """Ends the work: the function is not called again."""
        with self._lock:
            self._ended.set()

    def _run(self, ended: threading.Event, began: float) -> None:
        pause = PATIENCE
        while not ended.wait(pause):
            with self._lock:
                if not ended.is_set():
                    self._beat(time.monotonic() - began)
            pause = EVERY if self._every is None else self._every


class Stages(contextlib.AbstractContextManager):
    """The display of some work's stages: a bar for each on a terminal, else lines about a stage that lasts.

    It is empty until a stage is reported.

    Args:
      doing: the verb before each stage's name, such as "preparing".
      quiet: whether to print nothing.
    """

    def __init__(self, doing: str, *, quiet: bool = False):
        self._doing = doing
        self._bars = make_bar(f'{doing} {{task.description}}', quiet=quiet)
        self._tasks, self._line = {}, ''
        self._heartbeat = Heartbeat(self._print_line)

    def __exit__(self, *_):
        self._heartbeat.stop()
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Shows that a stage has processed `done` of `total` units, where 0 means an unknown total."""
        self._line = f'{self._doing} {stage}' + (f': {done:,} of {total:,}' if total else '')
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=None)
            if self._bars.disable:
                self._heartbeat.start()
        self._bars.update(self._tasks[stage], completed=done, total=total or None)
        if done >= total > 0:
            self._heartbeat.stop()

    def _print_line(self, seconds: float) -> None:
        print_line(self._bars, f'{self._line} ({seconds:.0f} s)')
