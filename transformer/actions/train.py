"""What each command does, in order, for any task."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import ml_collections
from absl import logging
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.actions import data as corpora
from transformer.actions.evaluate import scores_of
from transformer.actions.load import local
from transformer.config import Config
from transformer.config.files import lock_beside, read_config_file
from transformer.data import cache as corpus_cache
from transformer.data import manifest
from transformer.data.batches import Batches, Running, Windows
from transformer.data.dataset import Dataset
from transformer.nn import cost, models
from transformer.runs import metrics, owner, process, restore, warm_start, workdir
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint
from transformer.runs.restore import Trained
from transformer.tasks.task import sums, task_of
from transformer.training import loop, split_sums
from transformer.training.loop import Progress


def run_preparation(config: Config, lock_file: str) -> list[str]:
    """Makes the corpus that training reads, after downloading its dataset.

    Args:
      lock_file: what is expected of the corpus, if there is such a file.

    Returns:
      Lines that say what was made.

    Raises:
      ConfigError: bad data, or a dataset that cannot be had.
    """
    expected = manifest.expected(lock_file)
    dataset = corpora.of_config(config, download=True)
    report = [*manifest.describe(dataset.manifest), f'lock file: {dataset.folder / corpus_cache.LOCK}']
    if expected is not None:
        report += manifest.differences(dataset.manifest, expected, lock_file) or [f'all as {lock_file} says']
    return report


class Finished(NamedTuple):
    """A training at its end: the contents of result.json, the model that was scored, and its data."""

    result: dict[str, object]
    trained: Trained
    dataset: Dataset


def run_training(
    config: Config,
    folder: epath.Path,
    lock_file: str,
    on_metrics: metrics.OnMetrics | None = None,
    init_from: str | None = None,
) -> Finished:
    """Trains, or resumes, and evaluates.

    Args:
      lock_file: as for `run_preparation`; differences are warnings.
      on_metrics: gets the numbers that metrics.jsonl gets, in the process that writes it.
      init_from: the other run whose parameters and tokenizer it starts from, as for `warm.start`.

    Raises:
      ConfigError: a mistake of the user's; nothing was changed.
      NonFiniteError, Stopped: as `training.train`.
    """
    configs.check_devices(config, parallel.device_count())
    configs.check_platform(config, parallel.platform())
    owner.check_free(folder)
    expected = manifest.expected(lock_file)
    start = warm_start.start(config, init_from, folder)
    dataset = corpora.of_config(config, given=start.codec if start else None)
    if expected is not None and parallel.is_primary():
        for difference in manifest.differences(dataset.manifest, expected, lock_file):
            logging.warning('%s', difference)
    # Made first, so that bad data changes nothing.
    task = task_of(config)
    batches = {split: task.batches(config, dataset, split) for split in ('train', 'dev')}
    if parallel.is_primary():
        workdir.check_claim(folder, config, dataset.manifest, start.record if start else None)
    with owner.owned(folder):
        return _train(config, folder, dataset, batches, on_metrics, start)


def _train(
    config: Config,
    folder: epath.Path,
    dataset: Dataset,
    batches: dict[str, Batches | Running | Windows],
    on_metrics: metrics.OnMetrics | None,
    start: warm_start.Start | None,
) -> Finished:
    """Trains and evaluates in a work directory that this process owns."""
    if parallel.is_primary():
        workdir.claim(folder, config, dataset.codec, dataset.manifest, start.record if start else None)
        workdir.keep_data(folder, dataset)
    parallel.wait_for_all()
    averaging = (config.train.average_last, config.train.average_every)
    checkpoints = Checkpoints(folder / 'checkpoints', config.train.keep, averaging)
    try:
        with process.precision(config), process.stop_signals() as stop_signal:
            state, done = loop.train(
                config,
                sums(config),
                batches['train'],
                checkpoints,
                folder if parallel.is_primary() else None,
                _on_eval(config, dataset, batches['dev']),
                stop_signal,
                on_metrics,
                [
                    *metrics.header(config, folder, dataset.manifest),
                    *(warm_start.describe(start.record) if start else ()),
                ],
                functools.partial(warm_start.first_params, start.record) if start else None,
            )
    finally:
        checkpoints.close()
    if parallel.is_primary():
        _record(config, folder, state.params, done)
    parallel.wait_for_all()
    trained, origin = restore.load(folder, tokenizer=dataset.codec)
    if parallel.is_primary() and done.step != config.train.steps:
        logging.warning('%s: %s', folder, _why_it_ended(config, done, origin))
    return Finished(_score_training(folder, trained, origin, dataset), trained, dataset)


def _record(config: Config, folder: epath.Path, params: models.Params, done: Progress) -> None:
    """Averages checkpoints where the config says so, and writes the result without new scores."""
    if config.train.average_last:
        restore.average(folder)
    digest = fingerprint(jax.device_get(params))
    new = {
        'params': cost.parameters(params),
        'params_sha256': digest,
        'steps': done.step,
        'tokens': done.tokens,
        'seconds': round(done.seconds, 1),
        'tokens_per_second': metrics.speed(folder),
        'config': dataclasses.asdict(config),
        **process.environment(),
        **({'init_from': start} if (start := workdir.read_start(folder)) else {}),
    }

    def replaced(old: dict[str, object]) -> dict[str, object]:
        # Scores of these parameters stay until the new ones are there.
        scores = old.get('scores', {}) if old.get('params_sha256') == digest else {}
        later = {'evaluations': old['evaluations']} if 'evaluations' in old else {}
        return new | {'scores': scores} | later

    workdir.update_result(folder, replaced)


def _why_it_ended(config: Config, done: Progress, origin: restore.Origin) -> str:
    """Why a training has more or fewer steps than its config says, and which checkpoint is scored."""
    train, scored = config.train, f'{origin.name}, of step {", ".join(map(str, origin.steps))}'
    if done.step > train.steps:
        return (
            f'already trained for {done.step} steps, more than train.steps={train.steps}: nothing is '
            f'trained; what is scored is the checkpoint {scored}'
        )
    return (
        f'stopped early, at step {done.step} of {train.steps}: dev {train.best_by} was not better in '
        f'train.patience={train.patience} evaluations; what is scored is the checkpoint {scored}'
    )


def _on_eval(config: Config, dataset: Dataset, dev) -> dict[int, list[Callable]]:
    """The numbers of dev that training reports, by interval in steps."""

    def dev_means(params: models.Params) -> dict[str, float]:
        scores = split_sums.means(sums(config), params, dev)
        return {f'dev_{name}': value for name, value in scores.items()}

    def dev_scores(params: models.Params) -> dict[str, float]:
        return task_of(config).dev_scores(Trained(config, params, dataset.codec), dataset)

    due = {config.train.eval_every: [dev_means]}
    if config.train.bleu_every:
        due.setdefault(config.train.bleu_every, []).append(dev_scores)
    return due


def _score_training(
    folder: epath.Path, trained: Trained, origin: restore.Origin, dataset: Dataset
) -> dict[str, object]:
    """Scores every split but train at the end of a training. Returns the contents of result.json."""
    result = workdir.read_result(folder)
    for split in (split for split in dataset.splits if split != 'train'):
        scores, lines = scores_of(trained, origin, dataset, split)
        add = functools.partial(_with_scores, split, scores)
        result = add(result)
        if parallel.is_primary():
            workdir.write_lines(folder, f'{split}.{origin.name}', lines)
            workdir.update_result(folder, add)
    return result


def _with_scores(split: str, scores: dict[str, object], result: dict[str, object]) -> dict[str, object]:
    """The contents of result.json with the training's scores of a split."""
    # An evaluation before the end of the training may have the name that the training's lines have now.
    name = f'{split}.{scores["checkpoint"]}'
    others = {key: old for key, old in result.get('evaluations', {}).items() if key != name}
    later = {'evaluations': others} if 'evaluations' in result else {}
    return result | {'scores': {**result.get('scores', {}), split: scores}} | later


def train(
    config: Config | ml_collections.ConfigDict | str | os.PathLike,
    folder: epath.PathLike,
    on_metrics: metrics.OnMetrics | None = None,
    init_from: str | None = None,
) -> dict[str, object]:
    """`transformer.train`, which says more."""
    lock_file = ''
    if isinstance(config, str | os.PathLike):
        lock_file = lock_beside(os.fspath(config))
        config = read_config_file(os.fspath(config))
    resolved = config if isinstance(config, Config) else configs.resolve(config)
    process.keep_programs()
    return run_training(local(resolved), epath.Path(folder), lock_file, on_metrics, init_from).result
