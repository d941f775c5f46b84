"""Reports progress: the header of a training, metrics.jsonl, TensorBoard, and progress bars."""

import contextlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from etils import epath, epy
from rich.progress import TextColumn

from transformer import files, parallel
from transformer.config import Config, ConfigError
from transformer.data import manifest
from transformer.nn import cost, models
from transformer.progress import Heartbeat, make_bar, print_line
from transformer.runs import metrics_file

# The first write imports tensorboardX, which takes a second to import PyTorch if that is installed.
with epy.lazy_imports():
    from tensorboardX import event_file_writer
    from tensorboardX.proto import event_pb2, summary_pb2

# The numbers that a narrow terminal shows first, and their labels.
SHOWN = {
    'loss': 'loss',
    'dev_loss': 'dev_loss',
    'dev_bleu': 'dev_bleu',
    'tokens_per_second': 'tok/s',
    'epoch': 'epoch',
}
# The minimum widths of the bar and of the remaining time.
_BAR, _TIME = 10, 9
# Seconds between two writes of TensorBoard's events to the disk.
_FLUSH = 120

OnMetrics = Callable[[int, dict[str, float]], object]
# From the dev losses so far, by update, to a note about the last, which can be empty.
Note = Callable[[Mapping[int, float]], str]


def header(config: Config, workdir: epath.Path, lock: manifest.Manifest, steps_per_epoch: int) -> list[str]:
    """Returns the lines before a training: devices, parameters, corpus, updates and work directory."""
    devices, (_, processes) = parallel.devices(), parallel.process()
    kinds = ', '.join(sorted({device.device_kind for device in devices}))
    parameters = cost.parameters(models.parameter_shapes(config))
    return [
        f'devices: {len(devices)} ({kinds}), processes: {processes}, parameters: {parameters:,}',
        f'corpus: {_corpus(config)}: {manifest.size(lock, "train")}',
        f'updates: {config.train.steps:,}, of which {steps_per_epoch:,} are an epoch '
        f'({config.train.steps / steps_per_epoch:.3g} epochs)',
        f'work directory: {workdir}',
    ]


def _corpus(config: Config) -> str:
    data = config.data
    return {'text': f'{data.train} in {data.dir}', 'tfds': data.name}.get(data.source, data.source)


class Metrics:
    """A training's metrics, in files and in a bar, without any lines after `step` of an interrupted run.

    Args:
      workdir: the folder for `metrics.jsonl` (one object per line) and `tensorboard/`, or None for no file.
      step: the last step that is already done.
      steps: the last step of the training.
      on_metrics: called with each step and its numbers.
      header: lines to show first.
      watched: the measure on dev that decides which checkpoint is best. The bar shows it early.
      note: compares the dev losses so far with a reference.
    """

    def __init__(
        self,
        workdir: epath.Path | None,
        step: int,
        steps: int,
        on_metrics: OnMetrics | None = None,
        header: Sequence[str] = (),
        watched: str = 'loss',
        note: Note | None = None,
    ):
        self._file = workdir / 'metrics.jsonl' if workdir else None
        self._workdir, self._first, self._board = workdir, step + 1, None
        if workdir:
            files.write_text(self._file, ''.join(_lines_until(self._file, step)))
        self._on_metrics = on_metrics if workdir else None
        numbers = TextColumn('{task.fields[numbers]}')
        self._bar = make_bar('step', numbers, quiet=workdir is None, expand=True)
        self._task = self._bar.add_task('train', total=steps, completed=step, numbers='')
        self._steps, self._watched = steps, f'dev_{watched}'
        self._latest: dict[str, float] = {}
        self._note, self._remark = note, ''
        self._dev = dict(metrics_file.dev_losses(workdir)) if workdir and note else {}
        self._shown, self._doing = '', ''
        say = lambda seconds: print_line(self._bar, f'{self._doing} ({seconds:.0f} s)')
        self._heartbeat = Heartbeat(say)
        for line in header:
            print_line(self._bar, line)

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, error, *_):
        self._heartbeat.stop()
        self._bar.stop()
        if self._board:
            # A full disk would end this, too, and the error that says what was not written would be lost.
            with contextlib.suppress(OSError) if error else contextlib.nullcontext():
                self._board.close()

    def advance(self, step: int) -> None:
        """Moves the bar to a step."""
        self._bar.update(self._task, completed=step)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Shows an activity between updates: in the bar or, if there is none, in lines while it lasts."""
        self._doing = what
        if self._bar.disable:
            self._heartbeat.start()
        self._bar.update(self._task, numbers=what)
        yield
        self._heartbeat.stop()
        self._bar.update(self._task, numbers=self._shown)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Writes the numbers of a step. NaN and infinity, which JSON lacks, become null."""
        if self._file:
            with files.naming(self._file), self._file.open('a') as file:
                file.write(files.json_text({'step': step, **numbers}) + '\n')
            self._board = self._board or _Board(self._workdir / 'tensorboard', self._first)
            self._board.write(step, numbers)
        if self._on_metrics:
            self._on_metrics(step, dict(numbers))
        # The scores on dev stay visible until the next evaluation.
        self._latest |= numbers
        if self._note and math.isfinite(numbers.get('dev_loss', math.nan)):
            self._dev[step] = numbers['dev_loss']
            self._remark = self._note(self._dev)
        remark = f'  {self._remark}' if self._remark else ''
        fixed = len(remark) + len('step') + 2 * len(str(self._steps)) + 1 + _BAR + _TIME + len('    ')
        self._shown = fitting(self._latest, self._bar.console.width - fixed, self._watched) + remark
        self._bar.update(self._task, completed=step, numbers=self._shown)
        if self._bar.disable:
            text = '  '.join(f'{name} {_short(value)}' for name, value in numbers.items())
            text += remark if 'dev_loss' in numbers else ''
            print_line(self._bar, f'step {step}/{self._steps}  {text}')


class _Board:
    """A file of events for TensorBoard, which hides earlier events from the step `first` on.

    It is written here, because tensorboardX's own thread ends with a traceback on a full disk, and then its
    queue waits for ever.
    """

    def __init__(self, folder: epath.Path, first: int):
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._flushed = folder, -math.inf
        with files.naming(self._folder):
            self._writer = event_file_writer.EventsWriter(os.fspath(folder / 'events'))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=first, session_log=start)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Writes the finite numbers of a step."""
        finite = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
        values = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in finite.items()]
        self._write(step=step, summary=summary_pb2.Summary(value=values))

    def close(self) -> None:
        with files.naming(self._folder):
            self._writer.close()

    def _write(self, **content: object) -> None:
        with files.naming(self._folder):
            self._writer.write_event(event_pb2.Event(wall_time=time.time(), **content))
            # Not each time, because a remote folder gets the whole file anew.
            if time.monotonic() - self._flushed > _FLUSH:
                self._writer.flush()
                self._flushed = time.monotonic()


def speed(workdir: epath.Path) -> float | None:
    """Computes the median of the tokens per second that a training reported, or None if it reported none.

    It is a median because other work on the machine slows parts of a training.
    """
    speeds = (numbers.get('tokens_per_second') for numbers in metrics_file.read(workdir))
    known = [speed for speed in speeds if speed is not None]
    return round(statistics.median(known), 1) if known else None


def fitting(numbers: dict[str, float], width: int, watched: str = 'dev_loss') -> str:
    """Formats as many numbers as fit into `width` columns: the loss, `watched`, `SHOWN`, then the others."""
    first = dict.fromkeys(['loss', watched, *SHOWN])
    names = [name for name in first if name in numbers] + [name for name in numbers if name not in first]
    text = ''
    for name in names:
        longer = f'{text}  {SHOWN.get(name, name)} {_short(numbers[name])}'.lstrip()
        if len(longer) > width:
            break
        text = longer
    return text


def _short(value: float) -> str:
    return f'{value:,.0f}' if 1000 <= abs(value) < 1e9 else f'{value:.4g}'


def _lines_until(file: epath.Path, step: int) -> list[str]:
    """Returns the lines up to `step`, one per step, without a last line that a kill cut off.

    Earlier versions wrote the scores on dev as a second line per step, which is joined with the first.
    """
    by_step: dict[int, dict] = {}
    lines = file.read_bytes().splitlines() if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            content = metrics_file.parse_line(line, f'{file}: line {number}')
        except ConfigError:
            if number < len(lines):
                raise
            break
        if content['step'] <= step:
            by_step.setdefault(content['step'], {}).update(content)
    return [json.dumps(content) + '\n' for content in by_step.values()]
