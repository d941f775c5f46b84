"""What preparation and training report: metrics.jsonl, TensorBoard, and progress bars."""

import json
import math

from etils import epath
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tensorboardX import SummaryWriter

from transformer import files
from transformer.options import ConfigError

# A stage of this many units is worth a line where no bar can be drawn.
LONG = 100_000


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

    Raises:
      ConfigError: metrics.jsonl has a line that is not an object with a step.
    """

    def __init__(self, workdir: epath.Path | None, step: int, steps: int):
        self._file = workdir / 'metrics.jsonl' if workdir else None
        self._board = None
        if workdir:
            files.write_text(self._file, ''.join(_lines_until(self._file, step)))
            self._board = SummaryWriter(str(workdir / 'tensorboard'), purge_step=step + 1)
        console = Console(stderr=True, quiet=workdir is None)
        self._console = console
        self._bar = Progress(
            TextColumn('step'),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn('{task.fields[numbers]}'),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task('train', total=steps, completed=step, numbers='')
        self._steps = steps

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
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
        text = '  '.join(f'{name} {value:.4g}' for name, value in numbers.items())
        self._bar.update(self._task, completed=step, numbers=text)
        if not self._console.is_terminal:
            self._console.print(f'step {step}/{self._steps}  {text}', highlight=False, soft_wrap=True)


def _lines_until(file: epath.Path, step: int) -> list[str]:
    """The lines of steps up to `step`; a last line that a kill cut off is left out."""
    kept = []
    for line in file.read_text().splitlines(keepends=True) if file.exists() else []:
        try:
            if json.loads(line)['step'] <= step:
                kept.append(line)
        except ValueError:
            break
        except (KeyError, TypeError):
            raise ConfigError(f'{file}: line {len(kept) + 1} is not an object with a step') from None
    return kept
