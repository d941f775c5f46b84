"""Evaluates trained models on splits of their data, or on files, and records the scores."""

from collections.abc import Mapping, Sequence

from transformer import config as configs
from transformer import parallel
from transformer.actions import data as run_data
from transformer.config import Config, ConfigError
from transformer.data import text_input
from transformer.data.dataset import Dataset
from transformer.nn import models
from transformer.progress import Stages
from transformer.runs import process, restore, workdir
from transformer.runs.restore import Origin, Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tasks.contract import Evaluation


def evaluate(
    run: Run, splits: Sequence[str], choice: str = 'scored', changes: Mapping[str, object] | None = None
) -> list[Evaluation]:
    """Evaluates a checkpoint on splits, and records the scores beside the training's own.

    Args:
      choice: scored, best, latest, average or a step.
      changes: options that may differ from the work directory's config, such as decode.beam or data.dir.
    """
    check_evaluation(run, choice, changes)
    workdir.check_writable(run.folder)
    for split in splits:
        run_data.check_split(run, split)
    dataset = run_data.of_run(run, changes)
    model = restore.load_and_report(run, choice, changes)
    return [_record(run, model, dataset, split, split, {'split': split}) for split in splits]


def evaluate_files(
    run: Run, paths: Mapping[str, str], choice: str = 'scored', changes: Mapping[str, object] | None = None
) -> Evaluation:
    """Evaluates a checkpoint on a file of text for each field; needs no data of the training."""
    config = check_evaluation(run, choice, changes)
    workdir.check_writable(run.folder)
    check_fields(run, paths)
    reading, identity = task_of(config).reading(config), text_input.identity(paths)
    dataset = text_input.read(paths, config.data, reading, run.codecs)
    model, name = restore.load_and_report(run, choice, changes), text_input.name_of(identity)
    return _record(run, model, dataset, text_input.SPLIT, name, {'files': identity})


def check_evaluation(run: Run, choice: str, changes: Mapping[str, object] | None) -> Config:
    """Checks an evaluation's options and checkpoint, and returns its config; reads no data or parameters."""
    config = restore.changed(run.config, changes or {})
    configs.check_devices(config, parallel.device_count())
    restore.origin(run, choice)
    return config


def check_fields(run: Run, paths: Mapping[str, str]) -> None:
    """Raises ConfigError if the files given are not for exactly the fields that the model reads."""
    fields = getattr(models.build(run.config), 'FIELDS', ())
    if not fields:
        raise ConfigError(f'{run.folder}: its model reads no text files; evaluate its splits')
    if set(paths) != set(fields):
        flags = {'source': '--source=FILE', 'target': '--reference=FILE', 'text': '--text=FILE'}
        needed, given = (' '.join(flags[name] for name in names) for names in (fields, paths))
        raise ConfigError(f'{run.folder}: its model reads {" and ".join(fields)}: use {needed}, not {given}')


def _record(
    run: Run, model: tuple[Trained, Origin], dataset: Dataset, split: str, texts: str, what: dict[str, object]
) -> Evaluation:
    """Evaluates a split and records the scores, with `what`, under a name that begins with `texts`."""
    (trained, origin), (scores, lines) = model, score_split(*model, dataset, split)
    entry = what | {'options': configs.evaluation_options(trained.config)} | scores
    name = workdir.evaluation_name(run, trained.config, texts, origin.name)
    if parallel.is_primary():
        workdir.write_evaluation(run.folder, name, entry, lines)
    return Evaluation(name, entry, lines)


def score_split(
    trained: Trained, origin: Origin, dataset: Dataset, split: str
) -> tuple[dict[str, object], list[str]]:
    """Evaluates a split; returns its entry of result.json, and the model's output lines."""
    stages = Stages(f'scoring {split}:', quiet=not parallel.is_primary())
    with process.precision(trained.config), stages:
        scored = task_of(trained.config).evaluate(trained, dataset, split, stages)
    made_by = {'checkpoint': origin.name, 'steps': origin.steps, 'tokens': origin.tokens}
    return made_by | scored.how | scored.scores, scored.lines
