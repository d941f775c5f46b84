"""Adam and the learning rate of §5.3, Adafactor, SGD, other schedules, clipping, decay and averages."""

import functools
import math

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from transformer.config import Config, ConfigError, Train, has
from transformer.nn import encoders
from transformer.runs.hashes import named_leaves

# The names of parameters without weight decay.
UNDECAYED = ('bias', 'softmax_bias', 'scale', 'log_scale')
# The bounds within which every update leaves parameters of a name, if a model has them.
BOUNDS = {'log_scale': encoders.LOG_SCALE_BOUNDS}


def learning_rate(config: Config, step: Int[Array, ''] | int) -> Float[Array, '']:
    """Computes the learning rate of an update, the first of which is step 1.

    §5.3, `schedule=inverse_sqrt`: lr_constant · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5).

    Every schedule rises linearly until step `warmup_steps`, to the peak lr_constant · (d_model ·
    warmup_steps)^-0.5, or `peak_lr`. With t = (step - warmup_steps) / (decay_steps - warmup_steps), it
    continues as

    - inverse_sqrt: peak · (warmup_steps / step)^0.5
    - constant: peak
    - linear: peak · max(1 - t, least_lr)
    - cosine: peak · max((1 + cos πt) / 2, least_lr)
    """
    train = config.train
    step = jnp.asarray(step, jnp.float32)
    factor = train.lr_constant * config.model.d_model**-0.5
    if train.peak_lr is not None:
        factor = train.peak_lr * train.warmup_steps**0.5
    if train.schedule == 'inverse_sqrt':
        return factor * jnp.minimum(step**-0.5, step * train.warmup_steps**-1.5)
    risen = factor * train.warmup_steps**-0.5 * jnp.minimum(step / train.warmup_steps, 1.0)
    if train.schedule == 'constant':
        return risen
    t = jnp.clip((step - train.warmup_steps) / (train.decay_steps - train.warmup_steps), 0.0, 1.0)
    left = 1.0 - t if train.schedule == 'linear' else (1.0 + jnp.cos(jnp.pi * t)) / 2.0
    return risen * jnp.maximum(left, train.least_lr)


def optimizer(config: Config) -> optax.GradientTransformation:
    """Returns the optimizer with its learning rate, and the clipping and decay that the config asks for.

    - clip_norm: g ← g · min(1, clip_norm / |g|), where |g| is the norm over all parameters (Pascanu et al.
      2013).
    - weight_decay: w ← w - learning rate · (the direction + weight_decay · w), for all parameters but
      biases and the scales of norms and of cosines (AdamW, Loshchilov and Hutter 2019).
    - frozen: parameters whose names begin with one of these prefixes keep their values, and their gradients
      do not count in |g|.
    """
    train = config.train
    # optax passes the number of updates already made.
    schedule = lambda count: learning_rate(config, count + 1)
    rules = {'adam': lambda: _adam(train), 'adafactor': _adafactor, 'sgd': optax.identity}
    parts = [rules[train.optimizer]()]
    if train.clip_norm:
        parts.insert(0, optax.clip_by_global_norm(train.clip_norm))
    if train.weight_decay:
        parts.append(optax.add_decayed_weights(train.weight_decay, _decayed))
    parts.append(optax.scale_by_learning_rate(schedule))
    if has(config, 'towers'):
        parts.append(optax.stateless(_within_bounds))
    if train.frozen is not None:
        still = optax.masked(optax.set_to_zero(), functools.partial(frozen, train.frozen))
        parts = [still, *parts, still]
    return optax.chain(*parts)


def _adam(train: Train) -> optax.GradientTransformation:
    """Scales gradients to m / (sqrt(v) + ε), where m and v are corrected for their start at 0 or not."""
    corrected = optax.scale_by_adam(train.beta1, train.beta2, train.adam_eps)
    if train.bias_correction:
        return corrected

    def update(gradient, state, params=None):
        _, state = corrected.update(gradient, state, params)
        direction = lambda m, v: m / (jnp.sqrt(v) + train.adam_eps)
        return jax.tree.map(direction, state.mu, state.nu), state

    return optax.GradientTransformation(corrected.init, update)


def _adafactor() -> optax.GradientTransformation:
    """Returns Adafactor without momentum, as T5 uses it (Shazeer and Stern 2018, algorithm 4).

    The second moments of an array are factored over its two largest axes if both have at least 128 entries.
    """
    return optax.chain(
        optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0), optax.scale_by_param_block_rms()
    )


def frozen(prefixes: str, params):
    """Returns which parameters keep their values, as a tree of booleans.

    Raises:
      ConfigError: no parameter has one of the prefixes.
    """
    names = [f'{name}/' for name in named_leaves(params)]
    chosen = tuple(f'{prefix.strip().rstrip("/")}/' for prefix in prefixes.split(','))
    for prefix in chosen:
        if not any(name.startswith(prefix) for name in names):
            tops = ', '.join(sorted({name.partition('/')[0] for name in names}))
            raise ConfigError(
                f'train.frozen={prefixes}: no parameter is {prefix[:-1]!r} or in it; there are {tops}'
            )
    return jax.tree.unflatten(jax.tree.structure(params), [name.startswith(chosen) for name in names])


def _within_bounds(updates, params):
    """Cuts updates so that parameters with bounds stay within them."""

    def cut(path, update, value):
        if path[-1].key not in BOUNDS:
            return update
        return jnp.clip(value + update, *BOUNDS[path[-1].key]) - value

    return jax.tree.map_with_path(cut, updates, params)


def _decayed(params):
    """Returns which parameters weight decay draws towards 0, as a tree of booleans."""
    return jax.tree.map_with_path(lambda path, _: path[-1].key not in UNDECAYED, params)


def moving_average(config: Config, average, params, updates: Int[Array, '']):
    """Computes the exponential moving average of the parameters after an update.

    With d = `ema`, the parameters after update s weigh d^(updates - s): a mean over about 1/(1 - d) updates.
    The weights are divided by their sum (1 - d^updates)/(1 - d), so the first parameters count no more than
    others, and the average can be used from the first update on.

    `average` is the average before this update, and `updates` counts this update too. At the first update
    `average` has no weight.
    """
    decay = config.train.ema
    # (1 - d)/(1 - d^updates). Computed as written, the denominator would lose digits if d is near 1.
    weight = -(1.0 - decay) / jnp.expm1(updates * math.log(decay))
    return jax.tree.map(lambda old, new: old + weight * (new - old), average, params)
