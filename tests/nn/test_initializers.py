"""Standard deviations of first values, by `model.init`."""

import functools
import math

import jax
import numpy as np
import pytest

from transformer.config import config_dict, resolve
from transformer.nn import models

D, F, H, C, ROWS = 64, 256, 4, 36, 300
SIZES = {
    'model.N': 1,
    'model.d_model': D,
    'model.d_ff': F,
    'model.h': H,
    'model.d_k': C,
    'model.d_v': C,
    'data.pieces': ROWS,
    'model.tie_embeddings': 'inputs',
    'data.max_len': 64,
    'data.batch_tokens': 2048,
}
LEARNED = {'model.positions': 'learned', 'model.max_len': 512}
QUERY, OUTPUT = (f'decoder/layer_0/self_attention/{name}/kernel' for name in ('query', 'output'))
INNER, OUTER = (f'decoder/layer_0/feed_forward/{name}/kernel' for name in ('inner', 'outer'))
WORDS, SOFTMAX, POSITIONS = 'embedding/table', 'softmax/table', 'target_positions/table'
EQUAL = (QUERY, OUTPUT, INNER, OUTER, WORDS, SOFTMAX)
# Of a normal distribution that is cut at two standard deviations: sqrt(1 - 4 φ(2) / (2 Φ(2) - 1)).
CUT = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


@functools.cache
def values(init: str, *, learned: bool = False, **options: float) -> dict[str, np.ndarray]:
    """The first values by path."""
    changes = {f'model.{name}': value for name, value in options.items()} | {'model.init': init}
    config = resolve(config_dict({**SIZES, **(LEARNED if learned else {}), **changes}))
    params = jax.jit(lambda key: models.initialize(config, key))(jax.random.key(0))
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator='/'): np.asarray(x) for path, x in paths}


@pytest.mark.parametrize(('init', 'fan_out'), [('t2t', 3 * H * C), ('xavier', H * C)])
def test_glorot(init, fan_out):
    """Uniform, over the released code's kernel of queries, keys and values or over each kernel."""
    limit = math.sqrt(6 / (D + fan_out))
    assert np.abs(values(init)[QUERY]).max() == pytest.approx(limit, rel=1e-2)


def test_gpt2():
    found = values('normal', learned=True, init_std=0.05, init_std_positions=0.01)
    assert {name: found[name].std() for name in EQUAL} == pytest.approx(dict.fromkeys(EQUAL, 0.05), rel=0.05)
    assert found[POSITIONS].std() == pytest.approx(0.01, rel=0.02)
    assert np.abs(found[INNER]).max() > 3 * 0.05
    assert not found['decoder/layer_0/feed_forward/inner/bias'].any()


def test_bert():
    found = values('truncated_normal', learned=True, init_std=0.05)
    names = (*EQUAL, POSITIONS)
    expected = dict.fromkeys(names, 0.05 * CUT)
    assert {name: found[name].std() for name in names} == pytest.approx(expected, rel=0.05)
    assert all(np.abs(found[name]).max() <= 2 * 0.05 for name in names)


def test_t5():
    found = values('t5')
    expected = {
        QUERY: (D * C) ** -0.5,
        QUERY.replace('query', 'key'): D**-0.5,
        OUTPUT: (H * C) ** -0.5,
        INNER: D**-0.5,
        OUTER: F**-0.5,
        WORDS: 1.0,
        SOFTMAX: D**-0.5,
    }
    assert {name: found[name].std() for name in expected} == pytest.approx(expected, rel=0.05)
    assert np.abs(found[INNER]).max() > 3 * D**-0.5
