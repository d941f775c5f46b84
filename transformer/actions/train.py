"""Trains a model: from a config to a work directory with checkpoints, scores and result.json."""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from absl import logging
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.actions import data as run_data
from transformer.actions import on_track
from transformer.actions.evaluate import score_split
from transformer.config import Config, ConfigError
from transformer.config.files import find_config, lock_beside, read_config_file
from transformer.data import codec, manifest, word_vectors
from transformer.data.batches import Batches
from transformer.data.codec import Labels
from transformer.data.dataset import Dataset
from transformer.data.word_vectors import PieceRows
from transformer.nn import cost, models
from transformer.progress import Progress
from transformer.runs import curve, metrics, owner, process, restore, warm_start, workdir
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint
from transformer.runs.restore import Origin, Trained
from transformer.runs.retention import averaged_steps
from transformer.runs.workdir import Result, Run
from transformer.tasks import sums_of, task_of
from transformer.training import loop, losses, optim, split_sums
from transformer.training.loop import DevScores
from transformer.training.step import empty_carried


class Finished(NamedTuple):
    """A finished training: the contents of result.json, the model that was scored, and its data."""

    result: Result
    trained: Trained
    dataset: Dataset


def train(
    config: Config | ml_collections.ConfigDict | str | os.PathLike,
    folder: epath.PathLike,
    on_metrics: metrics.OnMetrics | None = None,
    init_from: Sequence[str] = (),
    evaluate: bool = True,
) -> Result:
    """Implements `transformer.train`, which explains the arguments."""
    lock_file = ''
    if isinstance(config, str | os.PathLike):
        file = find_config(os.fspath(config))
        lock_file, config = lock_beside(file), read_config_file(file)
    resolved = config if isinstance(config, Config) else configs.resolve(config)
    process.keep_programs()
    resolved = run_data.with_absolute_paths(resolved)
    return run_training(resolved, epath.Path(folder), lock_file, on_metrics, init_from, evaluate).result


def run_training(
    config: Config,
    folder: epath.Path,
    lock_file: str,
    on_metrics: metrics.OnMetrics | None = None,
    init_from: Sequence[str] = (),
    evaluate: bool = True,
) -> Finished:
    """Trains or resumes a model, and evaluates it.

    Args:
      lock_file: the data's expected manifest, if the file exists; differences are warnings.
      on_metrics, init_from, evaluate: as for `transformer.train`.

    Raises:
      ConfigError: a mistake of the user's. Nothing was changed, unless it shows later, as damage can.
      NonFiniteError, Stopped: as `loop.train`.
    """
    with parallel.together():
        configs.check_devices(config, parallel.device_count())
        configs.check_platform(config, parallel.platform())
        check_best(config)
        owner.check_free(folder)
        if parallel.is_primary():
            # Before data are prepared, which can take an hour.
            workdir.check_folder(folder, config)
        expected = manifest.expected(lock_file)
        origins = warm_start.origins(init_from)
        start = None if origins else warm_start.continued(config, folder)
        inherited = start.codecs if start else warm_start.codecs_of(config, origins)
        dataset = run_data.of_config(config, given=inherited)
        if expected is not None and parallel.is_primary():
            for difference in manifest.differences(dataset.manifest, expected, lock_file):
                logging.warning('%s', difference)
        if configs.has(config, 'classes'):
            labels = [one for one in dataset.codecs.values() if isinstance(one, Labels)]
            if labels and labels[0].size < 2:
                raise ConfigError(f'data.train: all examples have the class {labels[0].names[0]!r}')
            # A number in place of a class is one output.
            config = configs.with_classes(config, labels[0].names if labels else ['a number'])
        if config.train.frozen is not None:
            optim.frozen(config.train.frozen, models.parameter_shapes(config))
        if origins:
            warm_start.warn_of_classes(origins, dataset.codecs)
            start = warm_start.start(config, origins, folder)
        # Built before the work directory is written, so that bad data leaves it unchanged.
        task = task_of(config)
        batches = {split: task.batches(config, dataset, split) for split in ('train', 'dev')}
        warn_of_large_batches(config, dataset, batches['train'])
        config = configs.with_steps(config, batches['train'].steps_per_epoch)
        check_best_is_computed(config, batches['dev'])
        if parallel.is_primary():
            workdir.check_claim(folder, config, dataset.manifest, start.record if start else None)
            restore.check_resume(folder)
            check_average(config, folder)
        rows = _word_rows(config, dataset, folder)
    with contextlib.ExitStack() as owned:
        with parallel.together():
            owned.enter_context(owner.hold(folder))
        return _train(config, folder, dataset, batches, on_metrics, start, rows, evaluate)


def _word_rows(config: Config, dataset: Dataset, folder: epath.Path) -> PieceRows | None:
    """Reads the vectors that rows of a new training's embedding start from."""
    if config.model.vectors is None or workdir.has_checkpoint(folder):
        return None
    if 'embedding' not in models.parameter_shapes(config):
        raise ConfigError(
            f'model.vectors={config.model.vectors}: the model has no embedding for all its texts'
        )
    tokenizer = next(iter(codec.tokenizers(dataset.codecs).values()))
    return word_vectors.rows_of(config.model.vectors, tokenizer, config.model.d_model)


def warn_of_large_batches(config: Config, dataset: Dataset, batches: Batches) -> None:
    """Warns if every batch holds all examples of its shape, so that its other rows are empty."""
    if batches.steps_per_epoch <= batches.shapes and parallel.is_primary():
        logging.warning(
            'data.batch_tokens=%d: an epoch of %s is only %d updates; smaller batches have fewer empty rows',
            config.data.batch_tokens, manifest.size(dataset.manifest, 'train'), batches.steps_per_epoch,
        )  # fmt: skip


def check_best(config: Config) -> None:
    """Raises ConfigError if the task has no `train.best_by`, or its checkpoints would not be kept."""
    train, measures = config.train, {measure.name: measure for measure in task_of(config).measures}
    setting = f'train.best_by={train.best_by!r}'
    if train.best_by not in measures:
        raise ConfigError(f'{setting}: choose one of {", ".join(measures)}')
    watched = measures[train.best_by].watched
    name, every = ('watch_every', train.watch_every) if watched else ('eval_every', train.eval_every)
    if not every:
        raise ConfigError(f'{setting}: needs train.{name}, which is 0')
    if train.watch_every and task_of(config).watch is None:
        raise ConfigError(
            f'train.watch_every={train.watch_every}: train.task={train.task} has no such scores'
        )
    causes = {
        'train.patience': train.patience > 0,
        setting: train.best_by != configs.OPTIONS['train.best_by'].default,
        "train.scored='best'": train.scored == 'best',
    }
    cause = next((cause for cause, asks_for_the_best in causes.items() if asks_for_the_best), None)
    if cause and every % train.checkpoint_every:
        raise ConfigError(
            f'train.{name}={every}: must be a multiple of train.checkpoint_every={train.checkpoint_every} '
            f'with {cause}, so that evaluated checkpoints are kept'
        )


def check_best_is_computed(config: Config, dev: Batches) -> None:
    """Raises ConfigError if `train.best_by` is neither watched nor a mean that training computes on dev."""
    measures = {measure.name: measure for measure in task_of(config).measures}
    name = config.train.best_by
    if measures[name].watched or name == 'loss':
        return
    batch = jax.tree.map(lambda x: x.reshape(config.train.microbatches, -1, *x.shape[1:]), dev.batch(0))
    state = models.parameter_shapes(config), empty_carried(config)
    evaluate = functools.partial(split_sums.evaluation_step, sums_of(config))
    trace = jax.make_jaxpr(evaluate, axis_env=[(parallel.AXIS, 1)], return_shape=True)
    _, (sums, _) = trace(state, batch)
    computed = losses.means(dict.fromkeys(sums, 1.0))
    if name not in computed:
        possible = ', '.join(one for one in measures if one in computed or measures[one].watched)
        raise ConfigError(f'train.best_by={name!r}: training does not compute it; choose one of {possible}')


def check_average(config: Config, folder: epath.Path) -> None:
    """Raises ConfigError if a checkpoint that the training's end averages was made, but no longer exists."""
    train, saved = config.train, workdir.saved_steps(folder)
    newest = max(saved, default=0)
    if not train.average_last:
        return
    end = max(train.steps, newest)
    averaged = averaged_steps(end, _number_averaged(config, end), train.average_every)
    if missing := [step for step in averaged if step < newest and step not in saved]:
        possible = len(averaged) - 1 - averaged.index(missing[-1])
        raise ConfigError(
            f'train.average_last={train.average_last}: {folder} no longer has the checkpoints '
            f'{", ".join(map(str, missing))}; at most {possible} can be averaged'
        )


def _number_averaged(config: Config, steps: int) -> int:
    """Returns how many checkpoints are averaged after so many steps. The last step is always one of them."""
    return min(config.train.average_last, 1 + (steps - 1) // config.train.average_every)


def _train(
    config: Config,
    folder: epath.Path,
    dataset: Dataset,
    batches: Mapping[str, Batches],
    on_metrics: metrics.OnMetrics | None,
    start: warm_start.Start | None,
    rows: PieceRows | None,
    evaluate: bool,
) -> Finished:
    """Trains and evaluates in a work directory that this process owns."""
    record = start.record if start else None
    with parallel.together():
        if parallel.is_primary():
            workdir.claim(folder, config, dataset.codecs, dataset.manifest, record)
            workdir.copy_data(folder, dataset)
    with parallel.together():
        # Another process could have read other data or options. A shared disk may show new files late.
        if (folder / 'config.json').exists():
            workdir.check_claim(folder, config, dataset.manifest, record)
        averaging = config.train.average_last, config.train.average_every
        checkpoints = Checkpoints(folder / 'checkpoints', config.train.keep, averaging)
    header = [
        *metrics.header(config, folder, dataset.manifest, batches['train'].steps_per_epoch),
        *(warm_start.describe(record) if record else ()),
        *([f'model.vectors: {len(rows.pieces)} rows of the embedding start from the file'] if rows else ()),
    ]
    with contextlib.closing(checkpoints), process.precision(config), process.stop_signals() as stop_signal:
        state, done = loop.train(
            config,
            sums_of(config),
            batches['train'],
            checkpoints,
            folder if parallel.is_primary() else None,
            _dev_scores(config, dataset, batches['dev'], loop.stopping_progress(stop_signal)),
            stop_signal,
            on_metrics,
            header,
            functools.partial(_first_params, config, record, rows) if record or rows else None,
            on_track.notes(config, dataset.manifest),
        )
        # Of a signal during the last evaluation the loop does not know.
        if number := parallel.greatest(stop_signal() or 0):
            raise loop.Stopped(number, done.step)
    run = Run.open(folder)
    with parallel.together():
        if parallel.is_primary():
            _record(run, state.params, done, batches['train'].steps_per_epoch)
    trained, origin = restore.load(run)
    if parallel.is_primary() and done.step != config.train.steps:
        logging.warning('%s: %s', folder, _why_it_ended(config, done, origin))
    if not evaluate:
        return Finished(run.result(), trained, dataset)
    return Finished(_score_training(run, trained, origin, dataset), trained, dataset)


def _first_params(
    config: Config, record: dict[str, object] | None, rows: PieceRows | None, fresh: models.Params
) -> models.Params:
    """Returns the parameters before the first update: of other runs, of a file of vectors, or fresh ones."""
    params = warm_start.first_params(config, record, fresh) if record else fresh
    if rows is None:
        return params
    table = np.array(params['embedding']['table'])
    table[rows.pieces] = rows.vectors
    return {**params, 'embedding': {**params['embedding'], 'table': table}}


def _dev_scores(config: Config, dataset: Dataset, batches: Batches, progress: Progress) -> DevScores:
    """Returns the scores on dev that training reports, and the score by which a checkpoint is the best."""
    task, train = task_of(config), config.train

    def means(params: models.Params) -> dict[str, float]:
        scores = split_sums.means(sums_of(config), params, batches, progress, empty_carried(config))
        return {f'dev_{name}': value for name, value in scores.items()}

    best = next(measure for measure in task.measures if measure.name == train.best_by)

    def watched(params: models.Params) -> dict[str, float]:
        scores = task.watch(Trained(config, params, dataset.codecs), dataset, progress)
        if best.watched and best.name not in scores:
            raise ConfigError(f'train.best_by={best.name!r}: dev has only {", ".join(scores)}')
        return {f'dev_{name}': value for name, value in scores.items()}

    both = (train.eval_every, means), (train.watch_every, watched)
    functions = [(every, function) for every, function in both if every]

    def cost(scores: Mapping[str, float]) -> float | None:
        value = scores.get(f'dev_{best.name}')
        return -value if value is not None and best.better == 'higher' else value

    return DevScores(functions, cost, train.watch_every if best.watched else train.eval_every)


def _record(run: Run, params: models.Params, done: loop.TrainingPosition, steps_per_epoch: int) -> None:
    """Averages checkpoints if the config asks for it; writes curve.json and result.json, unscored if new."""
    train = run.config.train
    if train.average_last:
        last = _number_averaged(run.config, done.step)
        if last < train.average_last:
            logging.warning(
                '%s: train.average_last=%d, but only %d can be averaged: %d updates give no more with '
                'train.average_every=%d',
                run.folder, train.average_last, last, done.step, train.average_every,
            )  # fmt: skip
        restore.average(run, last)
    digest, earlier = fingerprint(jax.device_get(params)), run.result()
    is_new = earlier.get('params_sha256') != digest
    # Where a finished training is only repeated, its machine and its speed stay.
    environment = process.environment() | {'tokens_per_second': metrics.speed(run.folder)}
    new = {
        'params': cost.parameters(params),
        'params_sha256': digest,
        'steps': done.step,
        'epochs': round(done.step / steps_per_epoch, 3),
        'tokens': done.tokens,
        'seconds': round(done.seconds, 1),
        'config': dataclasses.asdict(run.config),
        **{name: value if is_new else earlier.get(name, value) for name, value in environment.items()},
        **({'init_from': start} if (start := run.start()) else {}),
    }

    def replace(old: Result) -> Result:
        # Earlier scores of the same parameters and options stay until new scores replace them.
        scores = old.get('scores', {}) if not is_new and _evaluated_alike(old, run) else {}
        later = {'evaluations': old['evaluations']} if 'evaluations' in old else {}
        evaluated = bool(scores) and old.get('evaluated', True)
        return new | {'evaluated': evaluated, 'scores': scores} | later

    workdir.update_result(run.folder, replace)
    if is_new or not (run.folder / curve.FILE).exists():
        curve.write(run.folder, run.manifest, digest)


def _evaluated_alike(result: Result, run: Run) -> bool:
    """Returns whether a result's scores are of the checkpoint and the options that a run is scored with."""
    now = restore.origin(run, 'scored')
    made_by = ((one.get('checkpoint'), one.get('steps')) for one in result.get('scores', {}).values())
    if any(one != (now.name, now.steps) for one in made_by):
        return False
    try:
        old = configs.from_json(json.dumps(result['config'])) if 'config' in result else run.config
    except ConfigError:
        return False
    return configs.evaluation_options(old) == configs.evaluation_options(run.config)


def _why_it_ended(config: Config, done: loop.TrainingPosition, origin: Origin) -> str:
    """Explains why a training has more or fewer steps than its config, and names the scored checkpoint."""
    train = config.train
    if done.step > train.steps:
        why = (
            f'already trained for {done.step} steps, more than train.steps={train.steps}: no further training'
        )
    else:
        why = (
            f'stopped early, at step {done.step} of {train.steps}: dev {train.best_by} was not better in '
            f'train.patience={train.patience} evaluations'
        )
    return f'{why}; the checkpoint {origin.name}, of step {", ".join(map(str, origin.steps))}, is scored'


def _score_training(run: Run, trained: Trained, origin: Origin, dataset: Dataset) -> Result:
    """Scores every split but train, and returns the contents of result.json."""
    result, splits = run.result(), [split for split in dataset.splits if split != 'train']
    for split in splits:
        scores, lines = score_split(trained, origin, dataset, split)
        add = functools.partial(_with_scores, split, scores, split == splits[-1])
        result = add(result)
        with parallel.together():
            if parallel.is_primary():
                workdir.write_lines(run.folder, f'{split}.{origin.name}', lines)
                workdir.update_result(run.folder, add)
    return result


def _with_scores(split: str, scores: dict[str, object], is_last: bool, result: Result) -> Result:
    """Returns the contents of result.json with the training's scores of a split."""
    # An evaluation made before the training ended can have the name of the training's own scores.
    name = f'{split}.{scores["checkpoint"]}'
    others = {key: old for key, old in result.get('evaluations', {}).items() if key != name}
    later = {'evaluations': others} if 'evaluations' in result else {}
    evaluated = is_last or result.get('evaluated', False)
    return result | {'evaluated': evaluated, 'scores': {**result.get('scores', {}), split: scores}} | later
