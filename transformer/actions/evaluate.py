"""Evaluates trained models on splits of their data, or on files, and records the scores."""

import os
from collections.abc import Mapping, Sequence

from transformer import config as configs
from transformer import parallel
from transformer.actions import data as run_data
from transformer.config import Config, ConfigError, declare
from transformer.data import text_input
from transformer.data.dataset import Dataset
from transformer.progress import Stages
from transformer.runs import process, restore, workdir
from transformer.runs.restore import Origin, Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tasks.contract import Evaluation

# The options that name other content of a split: which content, and how it is read.
SPLITS = ('data.dev', 'data.test')
OWN = (*SPLITS, 'data.source', 'data.name', 'data.columns', 'data.pictures', 'data.unreadable')


def evaluate(
    run: Run, splits: Sequence[str], choice: str = 'scored', changes: Mapping[str, object] | None = None
) -> list[Evaluation]:
    """Evaluates a checkpoint on splits, and records the scores beside the training's own.

    Args:
      choice: scored, best, latest, average or a step.
      changes: options that can differ from the work directory's config, such as decode.beam or data.dir.
    """
    with parallel.together():
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
    """Evaluates a checkpoint on a file of text for each field, without data of the training."""
    with parallel.together():
        config = check_evaluation(run, choice, changes)
        workdir.check_writable(run.folder)
        check_fields(run, paths)
        reading, identity = task_of(config).reading(config), text_input.identity(paths)
        dataset = text_input.read(paths, config.data, reading, run.codecs)
        model, name = restore.load_and_report(run, choice, changes), text_input.name_of(identity)
    return _record(run, model, dataset, text_input.SPLIT, name, {'files': identity})


def evaluate_own(run: Run, choice: str, changes: Mapping[str, object]) -> list[Evaluation]:
    """Evaluates a checkpoint on other content of dev or test, which the task's own reader reads.

    Args:
      changes: options, among them `data.dev` or `data.test`. Files are in `data.dir`, if that is given, else
        in the current folder.
    """
    own = {key: changes[key] for key in (*OWN, 'data.dir') if key in changes}
    with parallel.together():
        config = check_evaluation(run, choice, {k: v for k, v in changes.items() if k not in own})
        workdir.check_writable(run.folder)
        # What is generated has no folder.
        if declare.has_meaning(configs.OPTIONS, configs.flatten(config) | own, 'data.dir'):
            own.setdefault('data.dir', os.curdir)
        config = configs.portable(configs.replace(config, own), parallel.platform())
        task_reading, sets = task_of(config).reading(config), []
        for split in [key.removeprefix('data.') for key in SPLITS if key in changes]:
            sets.append(text_input.of_source(config.data, task_reading, run.codecs, split))
        model, evaluations = restore.load_and_report(run, choice), []
    model = model[0]._replace(config=config), model[1]
    for dataset, identity in sets:
        # Other columns of the same file are other content.
        read = (f'{key.partition(".")[2]}={own[key]}' for key in OWN if key in changes and key not in SPLITS)
        name = '.'.join([text_input.name_of(identity), *read])
        evaluations.append(_record(run, model, dataset, text_input.SPLIT, name, {'files': identity}))
    return evaluations


def check_evaluation(run: Run, choice: str, changes: Mapping[str, object] | None) -> Config:
    """Checks an evaluation's options and checkpoint, and returns its config. Reads no data or parameters."""
    config = restore.changed(run.config, changes or {})
    configs.check_devices(config, parallel.device_count())
    restore.origin(run, choice)
    # Read again when the scores are added to it.
    run.result()
    return config


def check_fields(run: Run, paths: Mapping[str, str]) -> None:
    """Raises ConfigError if the files are not for exactly the task's fields, or one is no regular file."""
    for path in paths.values():
        if os.path.exists(path) and not os.path.isfile(path):
            raise ConfigError(f'{path}: not a regular file, which can be read twice')
    fields, flags = task_of(run.config).reading(run.config).fields, run_data.own_files(run.config)
    if flags is None:
        raise ConfigError(
            f'{run.folder}: its examples have {" and ".join(fields)}: use evaluate with {run_data.OWN_SPLIT}'
        )
    if set(paths) != set(fields):
        given = ' '.join(run_data.FLAGS[name] for name in paths)
        raise ConfigError(
            f'{run.folder}: its model reads {" and ".join(fields)}: use {" ".join(flags)}, not {given}'
        )


def _record(
    run: Run, model: tuple[Trained, Origin], dataset: Dataset, split: str, texts: str, what: dict[str, object]
) -> Evaluation:
    """Evaluates a split and records the scores, with `what`, under a name that begins with `texts`."""
    (trained, origin), (scores, lines) = model, score_split(*model, dataset, split)
    entry = what | {'options': configs.evaluation_options(trained.config)} | scores
    name = workdir.evaluation_name(run, trained.config, texts, origin.name)
    with parallel.together():
        if parallel.is_primary():
            workdir.write_evaluation(run.folder, name, entry, lines)
    return Evaluation(name, entry, lines)


def score_split(
    trained: Trained, origin: Origin, dataset: Dataset, split: str
) -> tuple[dict[str, object], list[str]]:
    """Evaluates a split, and returns its entry of result.json and the model's output lines."""
    stages = Stages(f'scoring {split}:', quiet=not parallel.is_primary())
    with process.precision(trained.config), stages:
        scored = task_of(trained.config).evaluate(trained, dataset, split, stages)
    made_by = {'checkpoint': origin.name, 'steps': origin.steps, 'tokens': origin.tokens}
    lines = {workdir.LINES: workdir.lines_sha256(scored.lines)}
    return made_by | scored.how | scored.scores | lines, scored.lines
