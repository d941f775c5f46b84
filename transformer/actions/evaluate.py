"""What `evaluate` and `compare` do, for any task."""

from collections.abc import Mapping, Sequence

from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.actions import data as corpora
from transformer.config import Config, ConfigError
from transformer.data import text_input
from transformer.data.dataset import Dataset
from transformer.nn import models
from transformer.runs import process, restore, workdir
from transformer.runs.restore import Trained
from transformer.tasks.contract import Evaluation
from transformer.tasks.task import task_of


def run_evaluation(
    folder: epath.Path,
    splits: Sequence[str],
    choice: str = 'scored',
    changes: dict[str, object] | None = None,
) -> list[Evaluation]:
    """Evaluates a checkpoint on splits, and records each beside what the training scored.

    Args:
      choice: scored, best, latest, average or a step.
      changes: options of decoding, and data.dir, that differ from the work directory's config.

    Raises:
      ConfigError: a mistake of the user's; nothing was changed.
    """
    check_evaluation(folder, choice, changes)
    for split in splits:
        corpora.check_split(folder, split)
    dataset = corpora.of_workdir(folder, changes)
    trained, origin = restore.load_and_tell(folder, choice, changes, dataset.codec)
    return [_recorded(folder, trained, origin, dataset, split, split, {'split': split}) for split in splits]


def check_evaluation(folder: epath.Path, choice: str, changes: Mapping[str, object] | None) -> Config:
    """The config of an evaluation, whose checkpoint is there; reads neither data nor parameters.

    Raises:
      ConfigError: as `run_evaluation`.
    """
    config = restore.changed(workdir.read_config(folder), changes or {})
    configs.check_devices(config, parallel.device_count())
    restore.origin(config, folder, choice)
    return config


def run_file_evaluation(
    folder: epath.Path,
    paths: dict[str, str],
    choice: str = 'scored',
    changes: dict[str, object] | None = None,
) -> Evaluation:
    """As `run_evaluation`, on the text of files; the training's data is not needed.

    Args:
      paths: a file for each field that the model reads.

    Raises:
      ConfigError: a mistake of the user's; nothing was changed.
    """
    config = check_evaluation(folder, choice, changes)
    check_fields(folder, paths)
    dataset = text_input.read(paths, config.data, workdir.read_tokenizer(folder))
    trained, origin = restore.load_and_tell(folder, choice, changes, dataset.codec)
    files = text_input.identity(paths)
    of = text_input.name_of(files)
    return _recorded(folder, trained, origin, dataset, text_input.SPLIT, of, {'files': files})


def check_fields(folder: epath.Path, paths: Mapping[str, str]) -> None:
    """Raises ConfigError where the fields of given files are not those that a model reads."""
    wanted = models.build(workdir.read_config(folder)).FIELDS
    if set(paths) != set(wanted):
        raise ConfigError(f'{folder}: its model reads {" and ".join(wanted)}; given: {", ".join(paths)}')


def _recorded(
    folder: epath.Path,
    trained: Trained,
    origin: restore.Origin,
    dataset: Dataset,
    split: str,
    of: str,
    what: dict[str, object],
) -> Evaluation:
    """Evaluates a split and records it.

    Args:
      of: what its name begins with.
      what: says in its entry what was scored.
    """
    scores, lines = scores_of(trained, origin, dataset, split)
    entry = what | scores
    found = Evaluation(workdir.evaluation_name(folder, trained.config, of, entry), entry, lines)
    if parallel.is_primary():
        workdir.write_evaluation(folder, *found)
    return found


def scores_of(
    trained: Trained, origin: restore.Origin, dataset: Dataset, split: str
) -> tuple[dict[str, object], list[str]]:
    """What result.json says of an evaluation, and the lines that the model wrote."""
    with process.precision(trained.config):
        scores, lines = task_of(trained.config).evaluate(trained, dataset, split)
    made_by = {'checkpoint': origin.name, 'steps': origin.steps, 'tokens': origin.tokens}
    return made_by | scores, lines
