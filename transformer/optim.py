"""Adam and the learning rate of §5.3."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from transformer.config import Config


def learning_rate(config: Config, step: Int[Array, ''] | int) -> Float[Array, '']:
    """lr_constant · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5); the first step is 1."""
    step = jnp.asarray(step, jnp.float32)
    factor = config.train.lr_constant * config.model.d_model**-0.5
    return factor * jnp.minimum(step**-0.5, step * config.train.warmup_steps**-1.5)


def adam(config: Config) -> optax.GradientTransformation:
    """Adam with this learning rate, without clipping or weight decay."""
    train = config.train
    # optax passes the number of updates already made.
    schedule = lambda count: learning_rate(config, count + 1)
    return optax.adam(schedule, b1=train.beta1, b2=train.beta2, eps=train.adam_eps)
