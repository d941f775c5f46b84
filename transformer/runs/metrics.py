"""What preparation and training report: a header, metrics.jsonl, TensorBoard, and progress bars."""

import json
import math
import statistics
from collections.abc import Callable, Sequence

from etils import epath, epy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from transformer import files, parallel
from transformer.config import Config, ConfigError
from transformer.data import manifest
from transformer.nn import cost, models

# It imports PyTorch where that is installed, which takes a second: so it is imported at the first write.
with epy.lazy_imports():
    import tensorboardX

# A stage of this many units is worth a line where no bar can be drawn.
LONG = 100_000
# The numbers that a narrow terminal shows, and what it calls them.
SHOWN = {'loss': 'loss', 'dev_loss': 'dev_loss', 'dev_bleu': 'dev_bleu', 'tokens_per_second': 'tok/s'}
# Columns of a bar that can still be read, and of the time that is left.
_BAR, _TIME = 10, 9

OnMetrics = Callable[[int, dict[str, float]], object]


def header(config: Config, workdir: epath.Path, lock: manifest.Manifest) -> list[str]:
    """Lines that say, before a training begins, what is trained, on what, and where."""
    devices, (_, processes) = parallel.devices(), parallel.process()
    kinds = ', '.join(sorted({device.device_kind for device in devices}))
    parameters = cost.parameters(models.parameter_shapes(config))
    return [
        f'devices: {len(devices)} ({kinds}), processes: {processes}, parameters: {parameters:,}',
        f'corpus: {_corpus(config)}: {manifest.size(lock, "train")}',
        f'work directory: {workdir}',
    ]


def _corpus(config: Config) -> str:
    data = config.data
    return {'text': f'{data.train} in {data.dir}', 'tfds': data.name}.get(data.source, data.source)


class Stages:
    """Shows the progress of the stages of a preparation; `data.corpus.prepare` calls it.

    On a terminal it draws a bar for each stage. Elsewhere it prints a line when a long stage begins.
    It shows nothing if nothing has to be made.
    """

    def __init__(self, *, quiet: bool = False):
        self._console = Console(stderr=True, quiet=quiet)
        self._bars = Progress(
            TextColumn('preparing {task.description}'),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Moves the bar of a stage to `done` of `total` units."""
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total)
            if not self._console.is_terminal and total >= LONG:
                self._console.print(f'preparing {stage}: {total} examples', highlight=False, soft_wrap=True)
        self._bars.update(self._tasks[stage], completed=done)


class Metrics:
    """Writes the numbers of the steps after `step`, and cuts what an interrupted run wrote of them.

    Args:
      workdir: where `metrics.jsonl`, one object a line, and `tensorboard/` go; None writes no file.
      step: the last step that is already done.
      steps: the last step of the training.
      on_metrics: gets each step that is written, and its numbers.
      header: lines that are shown first.

    Raises:
      ConfigError: metrics.jsonl has a line that is not an object with a step.
    """

    def __init__(
        self,
        workdir: epath.Path | None,
        step: int,
        steps: int,
        on_metrics: OnMetrics | None = None,
        header: Sequence[str] = (),
    ):
        self._file = workdir / 'metrics.jsonl' if workdir else None
        self._workdir, self._first, self._board = workdir, step + 1, None
        if workdir:
            files.write_text(self._file, ''.join(_lines_until(self._file, step)))
        self._on_metrics = on_metrics if workdir else None
        console = Console(stderr=True, quiet=workdir is None)
        self._console = console
        self._bar = Progress(
            TextColumn('step'),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None),
            TextColumn('{task.fields[numbers]}'),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._task = self._bar.add_task('train', total=steps, completed=step, numbers='')
        self._steps = steps
        self._latest: dict[str, float] = {}
        for line in header:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self):
        self._bar.start()
        return self

    def __exit__(self, *_):
        self._bar.stop()
        if self._board:
            self._board.close()

    def advance(self, step: int) -> None:
        """Moves the bar."""
        self._bar.update(self._task, completed=step)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Records the numbers of a step; NaN and infinity, which JSON lacks, become null."""
        if self._file:
            finite = {k: v if math.isfinite(v) else None for k, v in numbers.items()}
            with self._file.open('a') as file:
                file.write(json.dumps({'step': step, **finite}) + '\n')
            if self._board is None:
                folder = str(self._workdir / 'tensorboard')
                self._board = tensorboardX.SummaryWriter(folder, purge_step=self._first)
            for name, value in finite.items():
                if value is not None:
                    self._board.add_scalar(name, value, step)
        if self._on_metrics:
            self._on_metrics(step, dict(numbers))
        # What dev reached stays in view until the next evaluation.
        self._latest |= numbers
        fixed = len('step') + 2 * len(str(self._steps)) + 1 + _BAR + _TIME + len('    ')
        shown = fitting(self._latest, self._console.width - fixed)
        self._bar.update(self._task, completed=step, numbers=shown)
        if not self._console.is_terminal:
            text = '  '.join(f'{name} {_short(value)}' for name, value in numbers.items())
            self._console.print(f'step {step}/{self._steps}  {text}', highlight=False, soft_wrap=True)


def speed(workdir: epath.Path) -> float | None:
    """Target tokens a second of updates: the median of what a training reported, None if it reported none.

    Other work on the machine that lasts for a part of a training moves the median little.
    """
    lines = (workdir / 'metrics.jsonl').read_text().splitlines()
    speeds = (numbers.get('tokens_per_second') for numbers in map(json.loads, lines))
    found = [speed for speed in speeds if speed is not None]
    return round(statistics.median(found), 1) if found else None


def fitting(numbers: dict[str, float], room: int) -> str:
    """As many numbers as fit into `room` columns, those of `SHOWN` before the others."""
    names = [name for name in SHOWN if name in numbers] + [name for name in numbers if name not in SHOWN]
    text = ''
    for name in names:
        longer = f'{text}  {SHOWN.get(name, name)} {_short(numbers[name])}'.lstrip()
        if len(longer) > room:
            break
        text = longer
    return text


def _short(value: float) -> str:
    return f'{value:,.0f}' if 1000 <= abs(value) < 1e9 else f'{value:.4g}'


def _lines_until(file: epath.Path, step: int) -> list[str]:
    """A line for each step up to `step`; a last line that a kill cut off is left out.

    Earlier versions wrote a step's numbers of dev as a second line; they join the first.
    """
    kept: dict[int, dict] = {}
    lines = file.read_text().splitlines() if file.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
            if content['step'] <= step:
                kept.setdefault(content['step'], {}).update(content)
        except ValueError:
            if number < len(lines):
                raise ConfigError(f'{file}: line {number} is damaged') from None
        except (KeyError, TypeError):
            raise ConfigError(f'{file}: line {number} is not an object with a step') from None
    return [json.dumps(content) + '\n' for content in kept.values()]
