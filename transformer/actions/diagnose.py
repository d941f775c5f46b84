"""Diagnoses a training: the findings that every task shares, and the findings of its own task."""

from collections.abc import Mapping

from absl import logging

from transformer.actions import data as run_data
from transformer.config import ConfigError
from transformer.runs import metrics_file, restore, workdir
from transformer.runs.workdir import Run
from transformer.tasks import findings, task_of
from transformer.tasks.findings import Finding, Outcome


def diagnose(run: Run, split: str, changes: Mapping[str, object]) -> tuple[Outcome, list[Finding]]:
    """Finds what may be wrong with a training and with the scores of a split, or of the last evaluation.

    The parameters are not read. Without scores of the split, only the training itself is examined.
    """
    if 'train' not in run.manifest['splits']:
        raise ConfigError(f'{run.folder}: was not trained here, so there is no training to diagnose')
    run_data.check_split(run, split)
    outcome, config = _outcome(run, split), restore.changed(run.config, changes)
    found = [*findings.of_training(config, run.manifest, outcome)]
    find = task_of(config).findings
    if outcome.entry and find:
        trained = restore.Trained(config, None, run.codecs)
        found += find(trained, run_data.of_run(run, changes), outcome)
    return outcome, found


def _outcome(run: Run, split: str) -> Outcome:
    """Reads what a training left behind."""
    scored = run.last_scores(split)
    name, entry = scored or ('', {})
    try:
        lines = workdir.read_lines(run.folder, name, entry) if scored else []
    except (OSError, ConfigError) as error:
        logging.warning('%s; the outputs are not examined', error)
        entry, lines = {}, []
    steps = entry.get('steps') or [line['step'] for line in metrics_file.read(run.folder)]
    if not steps:
        raise ConfigError(f'{run.folder}: has no metrics of a training, nor scores of {split}')
    epochs, losses = run.result().get('epochs', 0), metrics_file.dev_losses(run.folder)
    return Outcome(max(steps), epochs, losses, split, entry, lines)
