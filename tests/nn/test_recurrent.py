"""Recurrent models, recomputed in numpy step by step; shared dropout; their cost."""

import functools
from collections.abc import Iterator

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from random_models import random_params

from transformer.config import Config, config_dict, resolve
from transformer.inference import attention
from transformer.nn import cells, cost, models
from transformer.nn.cache import choose_rows
from transformer.tokens import Batch, Tokens

SMALL = {
    'model.kind': 'recurrent',
    'model.N': 2,
    'model.d_model': 6,
    'model.vocab_size': 270,
    'data.pieces': 270,
}
SOURCE, TARGET = [5, 9, 4, 8, 1], [7, 6, 3, 1]


def config_of(**changes) -> Config:
    return resolve(config_dict({**SMALL, **{f'model.{key}': value for key, value in changes.items()}}))


def row(tokens: list[int]) -> Tokens:
    return jax.tree.map(jnp.asarray, attention.one_row(tokens))


def pair() -> Batch:
    return {'source': row(SOURCE), 'target': row(TARGET)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def cell_step(cell: str, p: dict, x, state, fed=None):
    """Computes one step of a cell from its equations; the state is (h,) or (h, c)."""
    u = p['recurrent'].shape[0]
    block = lambda name, k: p[name][..., k * u : (k + 1) * u]
    outside = lambda k: (
        x @ block('inputs', k) + block('bias', k) + (0 if fed is None else fed @ block('fed', k))
    )
    h = state[0]
    gate = lambda k, seen=h: outside(k) + seen @ block('recurrent', k)
    if cell == 'rnn_tanh':
        return (np.tanh(gate(0)),)
    if cell == 'rnn_relu':
        return (np.maximum(gate(0), 0),)
    if cell == 'gru':
        z, r = sigmoid(gate(0)), sigmoid(gate(1))
        return ((1 - z) * h + z * np.tanh(gate(2, r * h)),)
    i, f, g, o = (gate(k) for k in range(4))
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def embed(params: dict, tokens: list[int]) -> list[np.ndarray]:
    table = params['embedding']['table']
    return [table[t] * np.sqrt(table.shape[1]) if t else np.zeros(table.shape[1]) for t in tokens]


def encode(config: Config, params: dict) -> tuple[list[np.ndarray], list[tuple]]:
    """Computes the outputs of the top layer, and the last state of every layer."""
    m, xs, last = config.model, embed(params, SOURCE), []
    for n in range(m.N):
        sides, ends = [], []
        for name, p in sorted(params['encoder'][f'layer_{n}'].items(), reverse=True):  # forward first
            state = (np.zeros(p['recurrent'].shape[0]),) * (2 if m.cell == 'lstm' else 1)
            ys = []
            for x in xs if name == 'forward' else xs[::-1]:
                state = cell_step(m.cell, p, x, state)
                ys.append(state[0])
            sides.append(ys if name == 'forward' else ys[::-1])
            ends.append(state)
        ys = [np.concatenate(parts) for parts in zip(*sides, strict=True)]
        last.append(tuple(np.concatenate(parts) for parts in zip(*ends, strict=True)))
        xs = [x + y for x, y in zip(xs, ys, strict=True)] if m.residual and n else ys
    return xs, last


def score(alignment: str, p: dict, query, memory) -> float:
    if alignment == 'dot':
        return query @ memory
    if alignment == 'general':
        return query @ (memory @ p['memory'])
    return p['vector'] @ np.tanh(query @ p['query'] + memory @ p['memory'])


def decode(config: Config, params: dict) -> tuple[np.ndarray, np.ndarray]:
    """Computes the logits of every target token, and the alignment."""
    m, (memory, states) = config.model, encode(config, params)
    p = params['decoder'].get('cross_attention')
    fed, logits, alignment = np.zeros(m.d_model), [], []

    def look_up(query):
        weights = softmax(np.array([score(m.alignment, p, query, one) for one in memory]))
        alignment.append(weights)
        return weights @ np.array(memory)

    for x in embed(params, [0, *TARGET[:-1]]):
        entering = fed if m.input_feeding else None
        if m.alignment == 'additive':
            entering = context = look_up(states[0][0])
        for n in range(m.N):
            states[n] = cell_step(
                m.cell, params['decoder'][f'layer_{n}'], x, states[n], None if n else entering
            )
            x = x + states[n][0] if m.residual and n else states[n][0]
        if m.alignment in ('dot', 'general', 'concat'):
            context = look_up(x)
        if m.alignment != 'none':
            x = fed = np.tanh(np.concatenate([context, x]) @ p['combine'])
        logits.append(params['embedding']['table'] @ x)
    return np.array(logits), np.array(alignment)


def equations(jaxpr, in_scan: bool = False) -> Iterator[tuple[jax.extend.core.JaxprEqn, bool]]:
    """Yields the equations of a program and its inner programs, and whether a scan repeats them."""
    for equation in jaxpr.eqns:
        yield equation, in_scan
        for inner in cost.inner_jaxprs(equation):
            yield from equations(inner, in_scan or equation.primitive.name == 'scan')


@pytest.mark.parametrize(
    'changes',
    [
        {'cell': 'lstm', 'alignment': 'general', 'input_feeding': True, 'reverse_source': True},
        {'cell': 'gru', 'alignment': 'additive', 'bidirectional': True},
        {'cell': 'rnn_tanh', 'alignment': 'concat', 'residual': True},
        {'cell': 'rnn_relu', 'alignment': 'dot', 'N': 1},
        {'cell': 'lstm', 'alignment': 'none', 'bidirectional': True, 'residual': True},
    ],
    ids=lambda changes: '-'.join(map(str, changes.values())),
)
def test_the_equations_in_numpy(changes):
    config = config_of(**changes)
    params = random_params(config)
    logits, alignment = decode(config, params)
    run = lambda params: models.build(config).apply(
        {'params': params}, pair(), train=False, mutable=['intermediates']
    )
    found, kept = jax.jit(run)(params)
    np.testing.assert_allclose(found[0], logits, rtol=1e-4, atol=1e-5)
    if config.model.alignment == 'none':
        assert not kept
        return
    shown = attention.attention_weights(config, params, pair())
    assert set(shown) == {'decoder/cross_attention'}
    # One layer, one head.
    np.testing.assert_allclose(shown['decoder/cross_attention'][0, 0], alignment, rtol=1e-4, atol=1e-6)


def test_initial_values():
    config = config_of(cell='lstm', d_model=32, N=1)
    params = jax.jit(lambda key: models.initialize(config, key))(jax.random.key(0))
    layer = params['decoder']['layer_0']
    np.testing.assert_array_equal(layer['bias'], np.repeat([0, 1, 0, 0], 32))
    for block in np.split(np.asarray(layer['recurrent']), 4, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(32), atol=1e-5)
    assert float(jnp.abs(layer['inputs']).max()) == pytest.approx(np.sqrt(6 / 64), rel=1e-2)


def test_kernels_are_made_one_by_one():
    """On CPUs batched QR decompositions wait for threads that they hold themselves, for ever with few."""
    config = config_of(cell='lstm', bidirectional=True)
    program = jax.make_jaxpr(functools.partial(models.initialize, config))(jax.random.key(0))
    shapes = {e.outvars[0].aval.shape for e, _ in equations(program.jaxpr) if e.primitive.name == 'qr'}
    # Each direction of the encoder has half the width.
    assert shapes == {(3, 3), (6, 6)}


def test_variational_dropout_is_one_draw_a_segment():
    segments = jnp.array([[1], [1], [1], [2], [2], [0]])
    draw = lambda shared: cells.SegmentDropout(0.5, shared).apply(
        {}, jnp.ones((6, 1, 64)), segments, train=True, rngs={'dropout': jax.random.key(0)}
    )
    once, anew = draw(True)[:, 0], draw(False)[:, 0]
    assert set(np.unique(once)) == {0.0, 2.0}
    np.testing.assert_array_equal(once[0], once[2])
    np.testing.assert_array_equal(once[3], once[4])
    assert (once[0] != once[3]).any() and (anew[0] != anew[1]).any()


def read_step_by_step(cell: str, reverse: bool, kernel, row: cells.LayerInputs) -> cells.Carry:
    """Computes `cells.read_rows`, without a scan and without a gradient of its own."""
    length, rows = row.begin.shape
    carry = zeros = cells.empty_carry(cell, rows, kernel.shape[0])
    carries = [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        now = jax.tree.map(lambda x: x[t], row)
        carry = choose_rows(now.begin, zeros if now.initial is None else now.initial, carry)
        carry, _ = cells.advance(cell, kernel, now.projected, carry, now.dropped)
        carries[t] = carry
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *carries)


@pytest.mark.parametrize(
    ('cell', 'dtype', 'given', 'reverse'),
    [
        *[(cell, 'float32', True, False) for cell in cells.CELLS],
        *[(cell, 'bfloat16', True, True) for cell in cells.CELLS],
        ('lstm', 'float32', False, True),
    ],
)
def test_the_gradient_of_a_scan_is_that_of_its_steps(cell, dtype, given, reverse):
    """With microbatches beside each other, as in training; `given` is with all that a row may have."""
    microbatches, length, rows, width = 2, 5, 3, 4
    rng, (blocks, arrays, _) = np.random.default_rng(0), cells.CELLS[cell]
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    kernel = draw(width, blocks * width).astype(dtype)
    projected = draw(microbatches, length, rows, blocks * width).astype(dtype)
    state = lambda: draw(length, rows, width)
    begin = jnp.asarray(rng.random((length, rows)) < 0.3)
    initial = tuple(state() for _ in range(arrays)) if given else None
    dropped = state() if given else None
    weights = [draw(microbatches, length, rows, width) for _ in range(arrays)]

    def loss(read, arrays):
        kernel, projected, initial, dropped = arrays
        one = lambda projected: read(
            cell, reverse, kernel, cells.LayerInputs(projected, begin, initial, dropped)
        )
        return sum(jnp.sum(w * carry) for w, carry in zip(weights, jax.vmap(one)(projected), strict=True))

    def found(read):
        differentiate = jax.jit(jax.value_and_grad(functools.partial(loss, read)))
        return differentiate((kernel, projected, initial, dropped))

    leaves = [jax.tree.leaves(found(read)) for read in (cells.read_rows, read_step_by_step)]
    for mine, expected in zip(*leaves, strict=True):
        mine, expected = (np.asarray(x, np.float32) for x in (mine, expected))
        tolerance = 1e-5 if dtype == 'float32' else 2e-2
        assert np.linalg.norm(mine - expected) <= tolerance * np.linalg.norm(expected)


@pytest.mark.parametrize(('cell', 'number'), [('lstm', 1), ('gru', 2), ('rnn_tanh', 1), ('rnn_relu', 1)])
def test_a_scan_makes_no_product_for_the_gradient_of_its_kernel(cell, number):
    """Going back, it makes one for each that it made going forth, of as many rows."""
    blocks, length, rows, width = cells.CELLS[cell].blocks, 7, 3, 4
    row = cells.LayerInputs(
        jnp.ones((length, rows, blocks * width)), jnp.ones((length, rows), bool), None, None
    )
    loss = lambda kernel, row: jnp.sum(cells.read_rows(cell, False, kernel, row)[0])
    program = jax.make_jaxpr(jax.grad(loss, (0, 1), allow_int=True))(jnp.ones((width, blocks * width)), row)
    products = [
        e.outvars[0].aval.shape
        for e, in_scan in equations(program.jaxpr)
        if in_scan and e.primitive.name == 'dot_general'
    ]
    assert len(products) == 2 * number
    assert {shape[0] for shape in products} == {rows}


@pytest.mark.parametrize(
    'changes',
    [
        {'cell': 'lstm', 'alignment': 'general', 'input_feeding': True},
        {'cell': 'gru', 'alignment': 'additive', 'bidirectional': True, 'N_decoder': 3},
        {'cell': 'rnn_tanh', 'alignment': 'concat', 'N_decoder': 1},
        {'cell': 'rnn_relu', 'alignment': 'dot'},
        {'cell': 'lstm', 'alignment': 'none'},
    ],
    ids=lambda changes: '-'.join(map(str, changes.values())),
)
def test_flops_are_those_of_every_matrix_at_every_position(changes):
    config, source, target = config_of(**changes), 5, 7
    m, products = config.model, 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(models.parameter_shapes(config)):
        name = jax.tree_util.keystr(path, simple=True, separator='/')
        if len(leaf.shape) == 2:
            # The keys are computed for the source; the embedding's one matrix is a product in the softmax.
            read = name.startswith('encoder') or name.endswith('cross_attention/memory')
            products += leaf.size * (source if read else target)
    if m.alignment != 'none':
        products += 2 * target * source * m.d_model
    lengths = {'source': source, 'target': target, 'text': target}
    batch = {field: models.blank(config, 3, lengths[field])[field] for field in models.blank(config)}
    assert cost.forward_cost(config, batch).flops == 2 * 3 * products
