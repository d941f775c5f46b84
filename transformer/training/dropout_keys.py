"""Random keys for several microbatches in one program: each microbatch draws its own numbers.

A microbatch's dropout must not depend on the number of microbatches that share its program. So several
microbatches share a special key that contains one key for each. `jax.random.fold_in` changes all of them, and
an array drawn from the special key has equal parts along the first axis, one drawn from each key.
"""

import functools
import math
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.extend import random as implementations
from jaxtyping import Array, Int, UInt32

THREEFRY = 'threefry2x32'


def of_microbatches(key: Array, indexes: Int[Array, 'M']) -> Array:
    """Returns a key from which each microbatch draws numbers of its own, by `fold_in(key, index)`."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, indexes)
    kind = _kind(str(jax.random.key_impl(key)), indexes.shape[0])
    return jax.random.wrap_key_data(jax.random.key_data(keys), impl=kind)


@functools.cache
def _kind(name: str, count: int) -> Hashable:
    """Defines the implementation of keys that contain `count` keys of JAX's implementation `name`."""
    wrap = functools.partial(jax.random.wrap_key_data, impl=name)
    data = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=name)))

    def fold_in(keys, number):
        return jax.random.key_data(jax.vmap(jax.random.fold_in, (0, None))(wrap(keys), number))

    def random_bits(keys, bit_width, shape):
        if not shape or shape[0] % count:
            raise ValueError(f'{count} microbatches cannot share the rows of {shape}')
        part = (shape[0] // count, *shape[1:])
        if name == THREEFRY and bit_width == 32 and part[-1] % 2 == 0:
            return _threefry_bits(keys, part).reshape(shape)
        # One key at a time, because rbg draws other numbers under vmap.
        dtype = jnp.dtype(f'uint{bit_width}')
        return jnp.concatenate([jax.random.bits(key, part, dtype) for key in wrap(keys)])

    def split(keys, shape):
        parts = jax.vmap(lambda key: jax.random.split(key, shape))(wrap(keys))
        return jnp.moveaxis(jax.random.key_data(parts), 0, len(shape))

    def seed(number):
        raise NotImplementedError(f'{number}: keys of microbatches come from of_microbatches')

    return implementations.define_prng_impl(
        key_shape=(count, *data.shape),
        seed=seed,
        split=split,
        random_bits=random_bits,
        fold_in=fold_in,
        name=f'{count} x {name}',
        tag=f'{count}x{name}',
    )


def _threefry_bits(keys: UInt32[Array, 'M 2'], shape: tuple[int, ...]) -> UInt32[Array, 'M ...']:
    """Draws random words from each key, two per hash.

    jax.random.bits draws one per hash, so that it can shard arrays. The counters are computed here, where
    they are used, so that XLA fuses the draw with the operation that uses the random words.
    """
    half = (*shape[:-1], shape[-1] // 2)
    counter = sum(
        jax.lax.broadcasted_iota(jnp.uint32, half, axis) * math.prod(half[axis + 1 :])
        for axis in range(len(half))
    )
    whole = (len(keys), *half)
    spread = lambda words: jnp.broadcast_to(words.reshape(-1, *[1] * len(half)), whole)
    counters = jnp.broadcast_to(counter, whole)
    first, second = implementations.threefry2x32_p.bind(
        spread(keys[:, 0]), spread(keys[:, 1]), jnp.zeros_like(counters), counters
    )
    return jnp.concatenate([first, second], axis=-1)
