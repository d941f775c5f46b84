"""The training loop: updates, evaluations on dev, checkpoints, and the end of a training."""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from etils import epath

from transformer import config as configs
from transformer import parallel
from transformer.config import Config
from transformer.data.batches import Batches
from transformer.data.prefetch import prefetch
from transformer.nn import models
from transformer.progress import Heartbeat, Progress, make_bar, no_progress, print_line
from transformer.runs.checkpoint import CONFIG, Checkpoints
from transformer.runs.metrics import Metrics, Note, OnMetrics
from transformer.tokens import Batch
from transformer.training import losses, optim
from transformer.training.step import ComputeSums, TrainState, initial_state, started_state, train_step

# Several processes ask each other for signals only after every tenth update: the answer waits for the
# update, so an accelerator starts the next one late.
AGREE_EVERY = 10


class NonFiniteError(ArithmeticError):
    """The loss or the gradient of a step is not finite."""


class Stopped(Exception):
    """A signal ended the training, whose state is saved."""

    def __init__(self, signal_number: int, step: int):
        super().__init__(
            f'stopped by signal {signal_number} at step {step}, which is saved; the same command resumes'
        )
        self.signal_number = signal_number


class _ScoringStopped(Exception):
    """A signal arrived while dev was scored."""


def stopping_progress(stop_signal: Callable[[], int | None]) -> Progress:
    """Returns a progress that ends the scoring of dev before its next batch, once a signal has arrived.

    With several processes it never does: each would stop at a different batch, and wait for the others.
    """

    def stop(stage: str, done: int, total: int) -> None:
        if stop_signal():
            raise _ScoringStopped

    return stop if parallel.process()[1] == 1 else no_progress


@dataclasses.dataclass(frozen=True)
class TrainingPosition:
    """A training's progress, as its checkpoints record it."""

    step: int = 0
    tokens: int = 0  # the sum of all weights
    seconds: float = 0.0
    best: float | None = None  # the lowest cost on dev so far
    stale: int = 0  # evaluations since the last improvement
    # The step's numbers, if a signal ended its scoring of dev. A resumed training scores it first.
    unscored: Mapping[str, float] | None = None

    def judged(self, cost: float | None) -> 'TrainingPosition':
        """Returns the progress after an evaluation. Only a finite cost can be an improvement."""
        if cost is not None and math.isfinite(cost) and (self.best is None or cost < self.best):
            return dataclasses.replace(self, best=cost, stale=0)
        return dataclasses.replace(self, stale=self.stale + 1)

    def is_over(self, config: Config) -> bool:
        """Returns whether the training has made all its steps, or has run out of patience."""
        return self.step >= config.train.steps or 0 < config.train.patience <= self.stale


class DevScores(NamedTuple):
    """The scores on dev that a training computes, and the one that decides which checkpoint is best.

    Attributes:
      functions: (every, function) pairs. A function maps parameters to scores. It is called at the multiples
        of `every` and after the last step.
      cost: picks the score to minimise, None if it is not among them.
      cost_every: the steps between two such scores. `train.patience` counts these evaluations.
    """

    functions: Sequence[tuple[int, Callable[[models.Params], dict[str, float]]]]
    cost: Callable[[Mapping[str, float]], float | None]
    cost_every: int


def train(
    config: Config,
    sums: ComputeSums,
    batches: Batches,
    checkpoints: Checkpoints,
    workdir: epath.Path | None,
    dev: DevScores,
    stop_signal: Callable[[], int | None] = lambda: None,
    on_metrics: OnMetrics | None = None,
    header: Sequence[str] = (),
    start: Callable[[models.Params], models.Params] | None = None,
    note: Note | None = None,
) -> tuple[TrainState, TrainingPosition]:
    """Trains from the newest checkpoint, or from step 0, to the last step or until patience runs out.

    A finished training stays unchanged, even if it ran past `train.steps`.

    Args:
      workdir: the folder of the metrics, or None in processes that do not write.
      stop_signal: returns the number of a signal that asks to stop, or None.
      start: maps the seed's parameters to the first step's, if there is no checkpoint.
      note: compares the dev losses so far with a reference, for the progress.

    Raises:
      NonFiniteError: a loss or gradient is not finite. It names the step and the last good checkpoint.
      Stopped: a signal arrived. The state is saved.
    """
    bar = make_bar('', quiet=workdir is None)
    with Heartbeat(lambda seconds: print_line(bar, f'making or reading the state ({seconds:.0f} s)')):
        state, done = _restore(config, checkpoints, start)
    saved = done
    here = configs.with_accumulation(config, parallel.platform(), parallel.device_count())
    update = parallel.map_update(functools.partial(train_step, here, sums), remat=config.model.remat)
    end = done.step if done.is_over(config) else config.train.steps
    if 0 < done.step < end:
        header = [*header, f'resuming from step {done.step} of {end}']
    reported = done.step if done.unscored is None else done.step - 1
    # Only the first process writes, and what it cannot write must end the others, too.
    with parallel.together():
        metrics = Metrics(workdir, reported, end, on_metrics, header, config.train.best_by, note)
    with metrics:
        update = _compiling_aloud(update, batches.shapes, metrics)
        window = _Window(config, checkpoints, done)
        put = functools.partial(parallel.to_devices, microbatches=config.train.microbatches)
        # The first item is None, without an update, if the restored step's dev scores are missing.
        for batch in itertools.chain(
            [None] * (done.step - reported),
            prefetch(batches, done.step, end, put, process=parallel.process()),
        ):
            step = done.step
            if batch is not None:
                state, step_sums, compiling = update(state, batch)
                step = window.add(step_sums, compiling)
            metrics.advance(step)
            last = step == config.train.steps
            # All processes stop together when any of them gets a signal.
            agreeing = agrees_on_signals(step, parallel.process()[1])
            signal_number = parallel.greatest(stop_signal() or 0) if agreeing else 0
            stopping = signal_number > 0
            saving = stopping or last or step % config.train.checkpoint_every == 0
            due = [function for every, function in dev.functions if last or step % every == 0]
            scores, unscored = {}, None
            reporting = saving or due or step % config.train.log_every == 0 or batch is None
            if reporting:
                epoch = {'epoch': round(step / batches.steps_per_epoch, 3)}
                numbers = done.unscored if batch is None else epoch | window.close()
                try:
                    with metrics.doing('scoring dev'):
                        for function in due:
                            scores |= function(state.evaluated())
                except _ScoringStopped:
                    scores, unscored, signal_number = {}, numbers, stop_signal()
                    stopping = saving = True
                with parallel.together():
                    metrics.write(step, numbers | scores)
            cost, over = dev.cost(scores), last and unscored is None
            if step % dev.cost_every == 0 and unscored is None:
                over |= window.judge(cost)
            if saving:
                saved = dataclasses.replace(window.position(), unscored=unscored)
                meta = dataclasses.asdict(saved) | {CONFIG: dataclasses.asdict(config)}
                provisional = step % dev.cost_every != 0 or unscored is not None
                _, params, optimizer, ema, carried = state
                with parallel.together():
                    checkpoints.save(
                        step, params, optimizer, meta, cost, ema, carried, provisional=provisional
                    )
            if reporting:
                window.restart()
            if over:
                break
            if stopping:
                with parallel.together():
                    checkpoints.wait()
                raise Stopped(signal_number, step)
        with parallel.together():
            checkpoints.wait()
        # The last step is always saved.
        return state, saved


def agrees_on_signals(step: int, processes: int) -> bool:
    """Returns whether the processes of a run ask each other for signals after a step."""
    return processes == 1 or step % AGREE_EVERY == 0


def _compiling_aloud(update: Callable, shapes: int, metrics: Metrics) -> Callable:
    """Shows that an update compiles, which happens once for each shape of a batch.

    Returns:
      The update with a third result: the seconds of a call that compiled, else 0.
    """
    seen = set()

    def call(state: TrainState, batch: Batch) -> tuple[TrainState, losses.Sums, float]:
        shape = tuple(x.shape for x in jax.tree.leaves(batch))
        if shape in seen:
            return *update(state, batch), 0.0
        seen.add(shape)
        began = time.monotonic()
        with metrics.doing(f'compiling shape {len(seen)} of {shapes}'):
            state, sums = update(state, batch)
            jax.block_until_ready(sums)
        return state, sums, time.monotonic() - began

    return call


def _restore(
    config: Config, checkpoints: Checkpoints, start: Callable[[models.Params], models.Params] | None
) -> tuple[TrainState, TrainingPosition]:
    like = jax.eval_shape(functools.partial(initial_state, config))
    items = {name: tree for name, tree in like._asdict().items() if name != 'step' and tree is not None}
    with parallel.together():
        saved = checkpoints.restore_newest(items) if parallel.is_primary() else None
    # All processes continue from the newest step that the first process could read.
    step = parallel.greatest(saved.step if saved else 0)
    with parallel.together():
        if step and saved is None:
            saved = checkpoints.restore(step, items)
        if saved is None:
            first = started_state(config, start) if start else initial_state(config)
            return parallel.replicate(first), TrainingPosition()
    state = TrainState(jnp.int32(saved.step), saved.params, saved.optimizer, saved.ema, saved.carried)
    progress = {key: value for key, value in saved.meta.items() if key != CONFIG}
    return parallel.replicate(state), TrainingPosition(**progress)


class _Window:
    """The sums of the steps since the last report."""

    def __init__(self, config: Config, checkpoints: Checkpoints, done: TrainingPosition):
        self._config, self._checkpoints, self._done = config, checkpoints, done
        self._pending: list[losses.Sums] = []
        self._timed: list[bool] = []
        self._began = self._counted = time.monotonic()

    def add(self, sums: losses.Sums, compiling: float = 0.0) -> int:
        """Adds the sums of the next step, and returns the number of that step.

        Args:
          compiling: the seconds of a step that compiled, which the speed leaves out.
        """
        self._pending.append(sums)
        self._timed.append(not compiling)
        self._began += compiling
        return self._done.step + len(self._pending)

    def restart(self) -> None:
        """Excludes the time since `close` from the speed, but not from the seconds."""
        self._began = time.monotonic()

    def position(self) -> TrainingPosition:
        """Returns the position at the last `close`, but with the seconds until now."""
        since = time.monotonic() - self._counted
        return dataclasses.replace(self._done, seconds=self._done.seconds + since)

    def judge(self, cost: float | None) -> bool:
        """Records an evaluation's cost.

        Returns:
          Whether the training is over: the same answer in all processes.
        """
        self._done = self._done.judged(cost)
        return bool(parallel.greatest(int(self._done.is_over(self._config))))

    def close(self) -> dict[str, float]:
        """Ends the window.

        Returns:
          The means over its tokens, its speed (unless all its steps compiled) and its last learning rate.

        Raises:
          NonFiniteError: a step's loss or gradient is not finite.
        """
        rows = [{k: float(v) for k, v in sums.items()} for sums in jax.device_get(self._pending)]
        norms = [row.pop('gradient_norm') for row in rows]
        for offset, (row, norm) in enumerate(zip(rows, norms, strict=True), start=1):
            if not (math.isfinite(row['loss']) and math.isfinite(norm)):
                self._checkpoints.wait()
                good = max(self._checkpoints.steps(), default=None)
                where = 'there is no checkpoint yet' if good is None else f'last good checkpoint: {good}'
                what = 'gradient' if math.isfinite(row['loss']) else 'loss'
                raise NonFiniteError(f'{what} is not finite at step {self._done.step + offset}; {where}')
        total = {key: sum(row[key] for row in rows) for key in rows[0]}
        now = time.monotonic()
        timed = sum(row['weight'] for row, is_timed in zip(rows, self._timed, strict=True) if is_timed)
        speed = {'tokens_per_second': timed / (now - self._began)} if any(self._timed) else {}
        self._pending, self._timed = [], []
        self._done = dataclasses.replace(
            self._done,
            step=self._done.step + len(rows),
            tokens=self._done.tokens + round(total['weight']),
            seconds=self._done.seconds + now - self._counted,
        )
        self._began = self._counted = now
        return {
            **losses.training_means(total),
            'gradient_norm': norms[-1],
            **speed,
            'learning_rate': float(optim.learning_rate(self._config, self._done.step)),
            'seconds': round(self._done.seconds, 3),
        }
