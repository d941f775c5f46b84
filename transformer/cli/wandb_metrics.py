"""Sends the metrics of a training to Weights & Biases."""

import contextlib
import dataclasses
import uuid
from collections.abc import Iterator

from etils import epath

from transformer import files, parallel
from transformer.config import Config, ConfigError
from transformer.runs.metrics import OnMetrics


@contextlib.contextmanager
def send_to(project: str | None, config: Config, folder: epath.Path) -> Iterator[OnMetrics | None]:
    """Yields a function that sends the numbers of a step to a project, or None without a project.

    The run there has the name of the work directory. A training that is resumed continues it.

    Raises:
      ConfigError: the package wandb is missing, or refuses the run.
    """
    if project == '':
        raise ConfigError('--wandb: missing the name of a project')
    with parallel.together():
        wandb = _package() if project and parallel.is_primary() else None
    if wandb is None:
        yield None
        return
    run = None

    def send(step: int, numbers: dict[str, float]) -> None:
        nonlocal run
        # Not before the first numbers, when the work directory belongs to this training.
        if run is None:
            try:
                run = wandb.init(
                    project=project,
                    name=folder.name,
                    id=_run_id(folder),
                    resume='allow',
                    dir=str(folder),
                    config=dataclasses.asdict(config),
                )
            except Exception as error:
                # Any kind: the account, the key, the network.
                raise ConfigError(f'--wandb={project}: {" ".join(str(error).split())}') from error
        run.log(numbers, step=step)

    try:
        yield send
    finally:
        if run:
            run.finish()


def _package():
    try:
        import wandb
    except ModuleNotFoundError:
        raise ConfigError('--wandb: needs the package wandb: pip install wandb') from None
    return wandb


def _run_id(folder: epath.Path) -> str:
    """Returns the name of a work directory's run at Weights & Biases, which no other run has."""
    file = folder / 'wandb' / 'run_id'
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        files.write_text(file, uuid.uuid4().hex)
    return file.read_text()
