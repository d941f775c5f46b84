"""The claims' measurements, by hand; their verdicts; and the command that measures them."""

import contextlib
import functools
import json
import pathlib
import re
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
import programs
import pytest

from configs import tiny
from experiments import claims
from experiments.claims import __main__ as command
from experiments.claims import (
    beams,
    bottleneck,
    depth,
    extrapolation,
    gradients,
    grammar,
    head_count,
    heads,
    mask,
    offsets,
    order,
    parallelism,
    pronoun,
    recall,
    rows,
    scaling,
    smoothing,
    toys,
    warmup,
)
from experiments.claims.claim import OVER_PAIRS, Verdict, config_of, interval, spread, train
from experiments.rendering import formats
from transformer import config as configs
from transformer.config import ConfigError
from transformer.data.generated.grammar.inflection import IT, NOUNS
from transformer.data.generated.grammar.sentences import sentence_pairs
from transformer.nn import recurrent
from transformer.nn.kernels.table import KERNELS
from transformer.nn.layers import Sublayer
from transformer.nn.stacks import Stack
from transformer.runs.restore import Trained
from transformer.tasks.translation import bleu
from transformer.tokens import EOS, PAD, Tokens
from transformer.training.step import initial_state

ROOT = pathlib.Path(__file__).parents[2]
# Shared by the claims about translation.
SMALL_CORPUS = {'data.train_examples': 1000}


def one_text(shape: tuple[int, int]) -> Tokens:
    """Makes rows of one segment each."""
    places = jnp.broadcast_to(jnp.arange(shape[1]), shape)
    return Tokens(places, jnp.ones_like(places), places)


def test_norms_of_a_recurrent_layer(monkeypatch):
    """Against the product of Jacobians of h_t = tanh(W x_t + U h_{t-1})."""
    monkeypatch.setattr(gradients, 'LENGTH', 5)
    monkeypatch.setattr(gradients, 'ROWS', 2)
    config = config_of(gradients.LANGUAGE | gradients.LAYERS['RNN'] | {'model.d_model': 4, 'train.seed': 3})
    keys = jax.random.split(jax.random.key(3), 3)
    inputs = jax.random.normal(keys[0], (2, 5, 4))
    x = np.asarray(inputs, np.float64)
    v = np.asarray(jax.random.normal(keys[1], (2, 4)), np.float64)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    stack = recurrent.make_decoder(config.model)
    params = stack.init(keys[2], inputs, one_text((2, 5)), None, train=False)['params']['layer_0']
    w, u = (np.asarray(params[name], np.float64) for name in ('inputs', 'recurrent'))
    squares = np.zeros(5)
    for row in range(2):
        states = [np.zeros(4)]
        for t in range(5):
            states.append(np.tanh(x[row, t] @ w + states[-1] @ u))
        back = v[row]
        for distance in range(5):
            back = back * (1 - states[5 - distance] ** 2)
            squares[distance] += np.sum((w @ back) ** 2)
            back = u @ back
    np.testing.assert_allclose(gradients.norms(config), np.sqrt(squares / 2), rtol=1e-4)


def test_texts_to_recall():
    batch = recall.texts(np.random.default_rng(0), 50, 7)
    tokens, segments, positions = batch['text']
    assert tokens.shape == (50, 10) and (segments == 1).all() and (positions == np.arange(10)).all()
    symbols, between = tokens[:, 0], tokens[:, 1:8]
    assert (tokens[:, 9] == symbols).all() and (tokens[:, 8] == recall.QUESTION).all()
    assert len(set(symbols)) > 8 and not set(symbols) & set(between.flat)
    assert {recall.QUESTION, *symbols, *between.flat} < set(range(toys.FIRST, toys.VOCABULARY))
    np.testing.assert_array_equal(batch['weight'], np.eye(10)[[9] * 50])


@pytest.mark.parametrize('factor', [1.0, 3.0])
def test_saturation_by_hand(monkeypatch, factor):
    """Against the entropy of w = softmax(q·k / sqrt(d_k)), and d(u·Σ wv) / dlogit = w (u·v - u·Σ wv)."""
    monkeypatch.setattr(scaling, 'ROWS', 2)
    monkeypatch.setattr(scaling, 'KEYS', 5)
    monkeypatch.setattr(scaling, 'VALUES', 3)
    keys = jax.random.split(jax.random.key(7), 4)
    shapes = (2, 5, 1, 9), (2, 5, 1, 9), (2, 5, 1, 3), (2, 5, 1, 3)
    q, k, v, u = (
        np.asarray(jax.random.normal(*draw), np.float64)[:, :, 0] for draw in zip(keys, shapes, strict=True)
    )
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    entropies, norms = [], []
    for row in range(2):
        for query in range(5):
            w = np.exp(k[row] @ q[row, query] * factor / 3)
            w /= w.sum()
            along = v[row] @ u[row, query]
            entropies.append(-w @ np.log(w) / np.log(5))
            norms.append(np.linalg.norm(w * (along - w @ along)))
    found = scaling.saturation(9, factor, 7)
    np.testing.assert_allclose(found['entropy'], np.mean(entropies), rtol=1e-4)
    np.testing.assert_allclose(found['gradient'], np.median(norms), rtol=1e-4)
    assert scaling.FACTORS['divided'](9) == 1 and scaling.FACTORS['not divided'](9) == 3


def test_shuffled_rows():
    batch = order.pairs(np.random.default_rng(0), 50)
    tokens, segments, positions = batch['source']
    assert tokens.shape == (50, 8) and (segments == 1).all() and (positions == np.arange(8)).all()
    assert all(len(set(row)) == 8 for row in tokens.tolist())
    assert set(tokens.flat) == set(range(toys.FIRST, toys.FIRST + order.SYMBOLS))
    assert len(set(tokens[:, 0])) > 8
    np.testing.assert_array_equal(batch['target'].tokens, tokens[:, :1])


def test_what_shuffling_changes(monkeypatch):
    monkeypatch.setattr(order, 'TESTED', 4)
    shifts = {}
    for name in order.MODELS:
        config = config_of(order.MODEL | {'model.positions': name, 'model.d_model': 8, 'model.d_ff': 8})
        params = programs.initialize(config, jax.random.key(0))
        # A training's parameters come as numpy's arrays.
        shifts[name] = order.shift(config, jax.device_get(params), np.random.default_rng(1))
    assert shifts['none'] < 1e-6 and 0.1 < shifts['sinusoidal'] < 2


def test_the_first_symbol_is_told(monkeypatch):
    """By a model that tells it in the first 256 rows of 1,024, and the second symbol in the others."""

    def logits(params, batch):
        tokens = batch['source'].tokens
        told = np.where(np.arange(1024) < 256, tokens[:, 0], tokens[:, 1])
        return np.eye(toys.VOCABULARY)[told][:, None]

    monkeypatch.setattr(toys, 'logits', lambda config: logits)
    assert order.accuracy(None, None, np.random.default_rng(0)) == 0.25


def test_residuals_of_offsets(monkeypatch):
    """Of one number, where least squares is a quotient of sums; and of the encodings that are judged."""
    monkeypatch.setattr(offsets, 'LENGTH', 64)
    monkeypatch.setattr(offsets, 'OFFSETS', (1, 5))
    square = np.arange(69.0)[:, None] ** 2
    found = offsets.residuals(square, np.random.default_rng(2))
    places = np.random.default_rng(2).permutation(64)
    for k in (1, 5):
        now, after = (square[places + step, 0] for step in (0, k))
        slope = np.sum(now[:32] * after[:32]) / np.sum(now[:32] ** 2)
        expected = np.linalg.norm(slope * now[32:] - after[32:]) / np.linalg.norm(after[32:])
        np.testing.assert_allclose(found[str(k)], expected, rtol=1e-6)
    monkeypatch.setattr(offsets, 'D_MODEL', 8)
    assert offsets.judge([offsets.measure(1), offsets.measure(2)]).holds


def test_what_a_position_depends_on():
    """In one layer of full attention on all, of local attention on near ones; with the mask, none later."""
    distance = np.arange(mask.LENGTH)[:, None] - np.arange(mask.LENGTH)
    for kernel, reached in (('full', np.abs(distance) >= 0), ('local', np.abs(distance) <= 5)):
        config = config_of(mask.MODEL | {'model.N': 1, 'model.attention': kernel} | mask.KERNELS[kernel])
        np.testing.assert_array_equal(mask.norms(config, 'causal', 1) > 0, reached & (distance >= 0))
        np.testing.assert_array_equal(mask.norms(config, 'no mask', 1) > 0, reached)


def test_what_is_after_a_position_and_what_is_not(monkeypatch):
    monkeypatch.setattr(mask, 'KERNELS', {'full': {}})
    monkeypatch.setattr(mask, 'norms', lambda *_: np.asarray([[1.0, 2.0], [4.0, 3.0]]))
    assert mask.measure(1)['full']['causal'] == {'later': 2.0, 'others': 4.0}


@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_gradients_of_a_stack(monkeypatch, norm):
    """Layer by layer, against those of the whole encoder."""
    monkeypatch.setattr(depth, 'LENGTH', 4)
    config = config_of(depth.MODEL | {'model.d_model': 8, 'model.norm': norm, 'model.N': 2})
    keys = jax.random.split(jax.random.key(3), 4)
    x, v = (jax.random.normal(key, (depth.ROWS, 4, 8)) for key in keys[:2])
    initial, forward, _, _ = depth._programs(config, ())
    first = initial(keys[2], x)
    layers = [first['params'], initial(keys[3], forward(first, x))['params']]
    final = (
        {'final': {'norm': {'layer': {'scale': jnp.ones(8), 'bias': jnp.zeros(8)}}}} if norm == 'pre' else {}
    )

    def projected(layers):
        params = {f'layer_{i}': layer for i, layer in enumerate(layers)} | final
        return jnp.sum(
            Stack(config.model, config.model.N, causal=False).apply(
                {'params': params}, x, one_text(x.shape[:2]), train=False
            )
            * v
        )

    gradient = jax.jit(jax.grad(projected))(layers)
    found = depth.norms(config, (), 2, 3)
    for name, part in (('first', gradient[0]), ('last', gradient[1]), ('all', gradient)):
        np.testing.assert_allclose(found[name], optax.tree.norm(part), rtol=1e-4)
    assert 0 < found['different'] < 1


def test_what_variants_leave_out():
    x = jnp.asarray([[1.0, 2.0, 4.0, 0.5]])
    sublayer = Sublayer(config_of(depth.MODEL | {'model.d_model': 4}).model)
    params = sublayer.init(jax.random.key(0), x, x, train=False, method='after')
    normed = lambda y: (y - y.mean()) / y.std()
    expected = {
        'post-norm': normed(x + 3 * x**2),
        'no residuals': normed(3 * x**2),
        'no LayerNorm': x + 3 * x**2,
        'neither': 3 * x**2,
    }
    for name, values in expected.items():
        with contextlib.ExitStack() as stack:
            for change in depth.VARIANTS[name][1]:
                stack.enter_context(nn.intercept_methods(change))
            y = 3 * sublayer.apply(params, x, method='before') ** 2
            found = sublayer.apply(params, x, y, train=False, method='after')
        np.testing.assert_allclose(found, values, rtol=1e-5)


def test_texts_to_repeat():
    batch = extrapolation.texts(np.random.default_rng(0), 50, 24)
    tokens, segments, positions = batch['text']
    assert tokens.shape == (50, 24) and (segments == 1).all() and (positions == np.arange(24)).all()
    np.testing.assert_array_equal(batch['weight'], np.tile([0, 0, 0, 0, 1, 1, 1, 1], (50, 3)))
    scored = batch['weight'] > 0
    np.testing.assert_array_equal(tokens[scored], np.roll(tokens, 4, axis=1)[scored])
    first = tokens[:, [0, 1, 2, 3, 8, 9, 10, 11]]
    assert set(first.flat) == set(range(toys.FIRST, toys.FIRST + extrapolation.SYMBOLS))
    assert all(abs(np.corrcoef(a, b)[0, 1]) < 0.5 for a, b in zip(first.T, first.T[1:], strict=False))


def test_what_is_repeated_along_the_row(monkeypatch):
    """By a model that tells the symbols of the first half of the row, and one in four of the others."""

    def logits(params, batch):
        tokens = batch['text'].tokens
        place = np.arange(tokens.shape[1])
        told = np.where((place < 64) | (place % 4 == 1), tokens, 0)
        return np.eye(toys.VOCABULARY)[told]

    monkeypatch.setattr(toys, 'logits', lambda config: logits)
    monkeypatch.setattr(extrapolation, 'TESTED', 4)
    assert extrapolation.accuracy(None, None, 1) == [1.0] * 8 + [0.25] * 8


def test_updates_of_several_models():
    """Each model of a program learns as it would alone, with the learning rates of its own config."""
    small = {'model.N': 1, 'model.d_model': 8, 'model.vocab_size': 259, 'data.pieces': 259}
    # Without the biases of keys, whose gradient is 0 but for rounding, which Adam makes large.
    config = config_of(warmup.MODEL | small | {'model.biases': 'ffn'})
    batches = [extrapolation.texts(np.random.default_rng(i), 8, 8) for i in range(3)]
    each = [
        configs.replace(config, {'train.peak_lr': rate, 'train.warmup_steps': 2, 'train.microbatches': 8})
        for rate in (0.01, 0.1)
    ]
    schedules = [warmup.rates(one)[:3] for one in each]
    np.testing.assert_allclose(schedules[1], [0.05, 0.1, 0.1], rtol=1e-6)
    first = initial_state(configs.replace(config, {'train.seed': 5}))
    params, state = jax.tree.map(lambda x: jnp.stack([x, x]), (first.params, first.optimizer))
    for i, batch in enumerate(batches):
        params, state, _ = warmup._update(config)(params, state, batch, np.asarray(schedules)[:, i])
    for i, one in enumerate(each):
        expected = train(one, batches, 5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[i], b, atol=1e-5), params, expected)


def norms(near: float, far: float) -> list[float]:
    return [near] * 100 + [far] * 28


def of_depth(post=(1.0, 1.0), no_residuals=0.0, no_norm=1000.0):
    at = lambda reach, growth: {
        '2': {'first': 1.0, 'last': 1.0, 'all': 3.0},
        '24': {'first': 2 * reach, 'last': 2.0, 'all': 3 * growth},
    }
    values = {'post-norm': post, 'pre-norm': (1.0, 1.0), 'no residuals': (no_residuals, 1.0)}
    values |= {'no LayerNorm': (1.0, no_norm), 'neither': (0.0, 0.0)}
    return {name: at(*value) for name, value in values.items()}


def of_scaling(divided=(1, 1), not_divided=(0, 0)):
    at = lambda entropy, gradient: {'entropy': 0.8 * entropy, 'gradient': 0.1 * gradient}
    kept = {'divided': divided, 'not divided': not_divided}
    return {name: {'4': at(1, 1), '512': at(*shares)} for name, shares in kept.items()}


def of_order(none=(1e-7, 0.12), sinusoidal=(0.6, 1.0)):
    return {
        name: {'shift': shift, 'accuracy': accuracy}
        for name, (shift, accuracy) in {'none': none, 'sinusoidal': sinusoidal}.items()
    }


def of_mask(leak=0.0, unmasked=0.2, others=1.0):
    at = lambda later, others: {'later': later, 'others': others}
    good = {'causal': at(0.0, 1.0), 'no mask': at(0.5, 1.0)}
    return dict.fromkeys(mask.KERNELS, good) | {
        'local': {'causal': at(leak, others), 'no mask': at(unmasked, 1.0)}
    }


def of_warmup(post=1.0, pre=-0.5):
    by_rate = lambda least: {'0.001': least + 1, '0.003': least, '0.01': least + 2, '0.03': 9.0}
    costs = {'post': post, 'pre': pre}
    return {
        norm: {'1': by_rate(3 + cost), '50': dict(reversed(by_rate(3.0).items()))}
        for norm, cost in costs.items()
    }


def of_beams(alpha='0.0', beam='1', values=(70, 1.0, -5.0)):
    values_of = {
        '0.0': {'1': (70, 1.0, -5.0), '4': (72, 0.99, -4.0), '64': (65, 0.9, -3.5)},
        '0.6': {'1': (70, 1.0, 0), '4': (73, 1.01, 0), '64': (71, 1.0, 0)},
    }
    values_of[alpha][beam] = values
    name = lambda three: dict(zip(('bleu', 'length', 'logp'), three, strict=True))
    return {a: {b: name(three) for b, three in of.items()} for a, of in values_of.items()}


def of_recall(*last):
    return {n: {'5': 1.0, '20': 1.0, '80': v} for n, v in zip(recall.LAYERS, last, strict=True)}


def of_bottleneck(attention, without):
    return {
        'with attention': {bottleneck.SHORT: 90.0, bottleneck.LONG: 90.0 - attention},
        'without attention': {bottleneck.SHORT: 70.0, bottleneck.LONG: 70.0 - without},
    }


def of_offsets(t2t=1e-6, least=0.9):
    return {'paper': {'1': 1e-8, '2': 1e-8}, 't2t': {'1': 1e-8, '2': t2t}, 'random': {'1': 1.0, '2': least}}


def of_gradients(attention=0.2, lstm=1e-3):
    zero = norms(1, 0)
    return {'RNN': zero, 'GRU': zero, 'LSTM': norms(2, 2 * lstm), 'self-attention': norms(3, 3 * attention)}


def of_extrapolation(within=1.0, beyond=0.95):
    others = dict.fromkeys(extrapolation.POSITIONS, [1.0] * 4 + [0.0] * 12)
    return others | {'sinusoidal': [within] * 4 + [beyond] * 12}


def of_smoothing(**scores):
    without = {'perplexity': 1.2, 'accuracy': 0.9, 'bleu': 80.0}
    better = {'perplexity': 1.3, 'accuracy': 0.91, 'bleu': 80.5}
    return {'eps_ls 0': without, 'eps_ls 0.1': better | scores}


# A claim's module, a measurement of one seed, what holds, and what does not.
JUDGED = [
    (gradients, of_gradients, [(), (1, 0)], [(0.05,), (0.2, 0.1)]),
    (recall, of_recall, [(0.1, 0.3, 0.2, 1.0), (0.1, 0.4, 0.2, 0.95)], [(0.1, 0.5, 0.2, 0.95)]),
    (bottleneck, of_bottleneck, [(5, 20), (5, 6)], [(5, 4)]),
    (scaling, of_scaling, [(), ((0.6, 0.6), (0.05, 0.05))],
     [((0.6, 0.4), (0.05, 0.05)), ((0.6, 0.6), (0.2, 0.05))]),
    (order, of_order, [(), ((1e-7, 0.13), (0.5, 1.0))],
     [((1e-4, 0.13),), ((1e-7, 0.2),), ((1e-7, 0.13), (0.01, 1.0)), ((1e-7, 0.13), (0.5, 0.8))]),
    (offsets, of_offsets, [(), (1e-7, 1.0)], [(1e-3, 0.9), (1e-7, 0.3)]),
    (mask, of_mask, [(), (0.0, 0.1)], [(1e-30,), (0.0, 0.0), (0.0, 0.2, 0.0)]),
    (depth, of_depth, [(), ((0.5, 5.0), 0.001, 100.0)],
     [((0.05, 5.0),), ((0.5, 50.0),), ((0.5, 5.0), 0.1), ((0.5, 5.0), 0.001, 5.0)]),
    (extrapolation, of_extrapolation, [(), (1.0, 1.0)], [(1, 0.8), (0.5, 0.5)]),
    (warmup, of_warmup, [(), (0.2, 0.0)], [(0.05, 0.0), (0.2, 0.08)]),
    (beams, of_beams, [()],
     [('0.6', '1', (74, 1.0, 0)), ('0.0', '64', (65, 0.9, -4.5)), ('0.0', '64', (73, 0.9, -3.5)),
      ('0.0', '64', (65, 1.0, -3.5)), ('0.6', '4', (73, 0.98, 0))]),
    (head_count, lambda few, many: {'A1': few, 'base': 2.0, 'A4': many}, [(3, 3), (2.1, 2.1)],
     [(1.9, 2.1), (2.1, 1.9)]),
    (smoothing, lambda key=None, value=None: of_smoothing(**({key: value} if key else {})), [()],
     [('perplexity', 1.2), ('accuracy', 0.9), ('bleu', 80.0)]),
]  # fmt: skip


@pytest.mark.parametrize('judged', JUDGED, ids=lambda judged: judged[0].__name__.rpartition('.')[2])
def test_a_claim_must_hold_with_every_seed(judged):
    module, measured, good, bad = judged
    holding = [measured(*values) for values in good]
    assert module.judge(holding).holds
    for values in bad:
        assert not module.judge([*holding, measured(*values)]).holds, values


def test_verdicts_show_the_spread():
    assert '[0.20, 1.00]' in gradients.judge([of_gradients(), of_gradients(1, 0)]).number
    both_ends = [{'A1': 2.5, 'base': 2.0, 'A4': 4.0}, {'A1': 3, 'base': 2, 'A4': 3}]
    numbers = re.findall(r'\+[\d.]+', head_count.judge(both_ends).number)
    assert numbers == ['+0.750', '+0.500', '+1.000', '+1.500', '+1.000', '+2.000']
    assert {row: rows.config_of(row).model.h for row in head_count.HEADS} == head_count.HEADS


def test_groups_of_the_bottleneck_and_kernels_of_the_mask_exist():
    groups = bleu.by_length(['a ' * 9, 'a ' * 12, 'a ' * 15], ['x'] * 3, ['x'] * 3, 'de')
    assert tuple(groups) == bottleneck.GROUPS
    assert set(mask.KERNELS) == set(KERNELS) - {'flash'}


def test_parallelism_is_judged_by_medians():
    def verdict(*slowdowns: tuple[float, float]) -> bool:
        at = lambda first, slower: {'16': first, '64': 0.0, '256': first / slower}
        return parallelism.judge(
            [{'Transformer': at(100.0, a), 'LSTM': at(300.0, b)} for a, b in slowdowns]
        ).holds

    assert verdict((1, 5), (1, 1), (1, 5)) and not verdict((1, 5), (3, 5), (3, 5))


def test_spread():
    assert spread([1.0, 2.0, 6.0], '.1f') == '3.0 [1.0, 6.0]'


def small(holds: bool) -> types.ModuleType:
    """Makes a claim about its seeds."""
    claim = types.ModuleType('small', 'Seeds are\nsmall.')
    claim.SOURCE, claim.CRITERION, claim.SEEDS = '§0', 'the greatest is 2', 2
    claim.measure = lambda seed: {'seed': seed}
    claim.judge = lambda measured: Verdict(holds, spread([m['seed'] for m in measured], '.1f'))
    claim.PANELS = (lambda axes, measured: axes.plot([m['seed'] for m in measured]),)
    return claim


def test_the_command_measures_and_writes(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, 'CLAIMS', {'first': small(True), 'second': small(False)})
    (tmp_path / 'second.json').write_text('{"why": "Because."}')
    monkeypatch.setattr(command, 'COMMITTED', tmp_path)
    call = ['claims', f'--output={tmp_path}/new']
    assert command.main([*call, 'second']) == 0
    assert 'first' not in capsys.readouterr().out
    # Earlier results stay in the table.
    assert command.main([*call, 'first', 'first']) == 0
    out = capsys.readouterr()
    assert out.err.count('first') == 1 and out.out.count('1.5 [1.0, 2.0]') == 2
    lines = out.out.splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [['first', 'holds'], ['second', 'fails']]
    assert {path.name for path in (tmp_path / 'new').iterdir()} == {
        'claims.md', 'first.json', 'first.png', 'second.json', 'second.png'
    }  # fmt: skip
    result = json.loads((tmp_path / 'new' / 'second.json').read_text())
    assert result['holds'] is False and result['found'] == [{'seed': 1}, {'seed': 2}]
    page = (tmp_path / 'new' / 'claims.md').read_text()
    cells = [cell.strip() for cell in page.splitlines()[2].split('|')]
    assert cells[1:3] == ['first', 'holds'] and cells[-2] == '1.5 [1.0, 2.0]'
    assert 'first: Seeds are small.' in page and page.count('Because.') == 1


def test_a_damaged_result_is_named(tmp_path):
    for content in ('{"claim": "lookup", ', '{"claim": "lookup"}', '[]'):
        (tmp_path / 'lookup.json').write_text(content)
        with pytest.raises(ConfigError, match='lookup.json'):
            command.read(tmp_path)


def test_committed_results_are_judged_and_printed_as_they_were():
    folder = ROOT / 'experiments' / 'results' / 'claims'
    results = command.read(folder)
    assert [result['claim'] for result in results] == [*claims.CLAIMS]
    for result in results:
        verdict = claims.CLAIMS[result['claim']].judge(result['found'])
        assert (verdict.holds, verdict.number) == (result['holds'], result['number'])
    assert formats.markdown(*command.table(results, wide=True)) == (folder / 'claims.md').read_text()


@pytest.mark.parametrize('name', claims.CLAIMS)
def test_every_claim_is_drawn(name):
    folder = ROOT / 'experiments' / 'results' / 'claims'
    measured = json.loads((folder / f'{name}.json').read_text())['found']
    figure = command.draw(claims.CLAIMS[name], measured)
    assert all(len([*axes.lines, *axes.patches]) >= len(measured) for axes in figure.axes)
    matplotlib.pyplot.close(figure)


def test_unknown_claims(capsys, tmp_path):
    assert command.main(['claims', 'gradient', f'--output={tmp_path}/new']) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1 and all(name in error for name in ("'gradient'", *claims.CLAIMS))
    assert not (tmp_path / 'new').exists()


def test_claims_say_what_they_need():
    for name, claim in claims.CLAIMS.items():
        assert claim.SEEDS >= 3 or claim.NUMBERS == OVER_PAIRS, name
        assert command.statement(claim).endswith('.') and claim.SOURCE and claim.CRITERION, name


@pytest.fixture(scope='module')
def translator():
    """Trains the model of the claims about the grammar, with few updates and pairs."""
    sizes = {'model.d_model': 32, 'model.d_ff': 64, 'model.N_decoder': 1}
    sizes |= {'train.steps': 6, 'train.warmup_steps': 2}
    with pytest.MonkeyPatch.context() as patch:
        changed = lambda: changed_tiny(SMALL_CORPUS | sizes)
        patch.setattr(grammar, 'tiny', types.SimpleNamespace(get_config=changed))
        patch.setattr(grammar, 'PAIRS', 5)
        real = grammar.trained
        model = real(2)
        # One model stands for every seed's; all have one tokenizer.
        patch.setattr(grammar, 'trained', lambda seed: model)
        yield model
        for cached in (real, grammar.questions):
            cached.cache_clear()


def changed_tiny(changes):
    config = tiny.get_config()
    with config.unlocked():
        config.update_from_flattened_dict(changes)
    return config


def test_questions_come_in_pairs_that_differ_in_what_it_means(translator):
    found = grammar.questions()
    source, target = (translator.codecs[side] for side in ('source', 'target'))
    text = lambda side, tokens: side.decode([int(token) for token in tokens if token > 1])
    assert len(found.asked) == 10 and len(found.pronouns) <= 3
    seen = {source for source, _ in sentence_pairs('train')}
    for row in range(10):
        tokens = found.batch['source'].tokens[row]
        assert text(source, tokens[found.it[row]]) == 'it' and text(source, tokens) not in seen
        pronoun = text(target, [found.pronouns[found.answers[row]]])
        noun = text(source, tokens[found.antecedent[row]])
        [gender] = {each.gender for each in NOUNS.values() if each.english == noun}
        assert IT[gender].nominative == pronoun
        written = found.batch['target'].tokens[row]
        assert text(target, [written[found.asked[row]]]) == pronoun
        assert f' {pronoun} ' in text(target, written)
    even, odd = slice(0, None, 2), slice(1, None, 2)
    np.testing.assert_array_equal(found.antecedent[even], found.other[odd])
    assert (found.answers[even] != found.answers[odd]).all()


def test_what_is_blocked_cannot_be_seen(translator):
    """If nothing but itself can attend to the antecedent, no answer depends on which word it is."""
    found = grammar.questions()
    of, to = (~found.antecedent)[:, :, None], found.antecedent[:, None, :]
    encoder, cross = grammar.BLOCKABLE
    everything = {encoder: of & to, cross: to}
    source = found.batch['source']
    other = source._replace(tokens=np.where(found.antecedent, 400, source.tokens))
    shape = (10, grammar.ROOM, grammar.ROOM)

    def differs(masks):
        masks = {kind: np.broadcast_to(masks.get(kind, False), shape) for kind in grammar.BLOCKABLE}
        logits = functools.partial(grammar._logits, translator.config, translator.params)
        one, two = (logits(found.batch | {'source': tokens}, masks) for tokens in (source, other))
        return float(abs(one - two)[found.batch['target'].segments > 0].max())

    assert differs(everything) == 0
    for kind in everything:
        assert differs({kind: everything[kind]}) > 1e-6


def test_answers_are_those_of_the_model(translator):
    found = grammar.questions()
    params, batch = jax.tree.map(jnp.asarray, (translator.params, found.batch))
    logits = np.asarray(programs.apply(translator.config, params, batch))
    answers = grammar.answers(translator, {})
    for row, place in enumerate(found.asked):
        three = np.array([logits[row, place, token] for token in found.pronouns], np.float64)
        logp = np.log(np.exp(three) / np.exp(three).sum())
        assert answers.right[row] == (logp.argmax() == found.answers[row])
        np.testing.assert_allclose(answers.logp[row], logp[found.answers[row]], atol=1e-5)


def test_log_p_of_the_reference(translator):
    found = grammar.questions()
    logits = np.asarray(
        grammar._logits(translator.config, translator.params, found.batch, grammar._masks({}))
    )
    target = found.batch['target']
    for row, text in enumerate(grammar.answers(translator, {}).text):
        length = int(target.segments[row].sum())
        assert target.tokens[row, length - 1] == EOS and not target.tokens[row, length:].any()
        p = np.exp(logits[row, :length].astype(np.float64))
        p = p[np.arange(length), target.tokens[row, :length]] / p.sum(axis=-1)
        assert text == pytest.approx(np.log(p).sum(), rel=1e-5)


def test_each_piece_of_a_translation_is_the_likeliest_after_those_before(translator):
    # After three updates it writes nothing but ends, untrained and with large numbers this and that.
    untrained = jax.tree.map(lambda leaf: 4 * leaf, programs.initialize(translator.config, jax.random.key(0)))
    texts = {}
    for name, params in (('ends', translator.params), ('goes on', untrained)):
        model = translator._replace(params=params)
        texts[name] = written = grammar.translations(model, {})
        positions = np.tile(np.arange(grammar.ROOM), (10, 1))
        target = Tokens(written, np.ones_like(written), positions)
        batch = {'source': grammar.questions().batch['source'], 'target': target}
        params, batch = jax.tree.map(jnp.asarray, (params, batch))
        logits = np.asarray(programs.apply(model.config, params, batch))
        for row, tokens in enumerate(written):
            ends = np.flatnonzero(tokens == EOS)
            length = ends[0] + 1 if len(ends) else grammar.ROOM
            assert not tokens[length:].any()
            likeliest = logits[row, np.arange(length)].max(axis=-1)
            # Two that are equally likely may change places.
            np.testing.assert_allclose(
                logits[row, np.arange(length), tokens[:length]], likeliest, rtol=1e-5, err_msg=name
            )
    assert (texts['ends'] == EOS).any() and max(
        len({*row} - {EOS, PAD}) for row in texts['goes on'].tolist()
    ) > 1
    encoder, cross = grammar.BLOCKABLE
    alone = {encoder: ~np.eye(grammar.ROOM, dtype=bool), cross: np.arange(grammar.ROOM) > 0}
    assert (grammar.translations(model, alone) != texts['goes on']).any()


def test_translations_that_are_the_reference_but_for_the_pronoun(translator):
    found = grammar.questions()
    reference, rows = found.batch['target'].tokens, np.arange(10)
    assert pronoun.equal(reference) == {'all': [1] * 10, 'but the pronoun': [0] * 10}
    written = reference.copy()
    written[rows[:5], found.asked[:5]] = [
        next(token for token in found.pronouns if token != reference[row, found.asked[row]])
        for row in range(5)
    ]
    assert pronoun.equal(written) == {'all': [0] * 5 + [1] * 5, 'but the pronoun': [1] * 5 + [0] * 5}
    # Another word is no other pronoun, and another translation is neither.
    written[0, found.asked[0]] = 400
    written[1, 0] += 1
    assert pronoun.equal(written) == {
        'all': [0] * 5 + [1] * 5,
        'but the pronoun': [0] * 2 + [1] * 3 + [0] * 5,
    }


def test_a_removed_head_adds_nothing(translator):
    """Without its output kernel it is as with values of 0, and another head is as before."""
    values = jax.tree.map(np.array, translator.params)
    for part in values['encoder']['layer_1']['self_attention']['value'].values():
        part[..., 2, :] = 0.0
    removed = heads.remove_head(translator.params, 1, 2)
    logp = lambda params: grammar.answers(translator._replace(params=params), {}).logp
    np.testing.assert_allclose(logp(removed), logp(values), atol=1e-5)
    assert np.abs(logp(removed) - logp(translator.params)).max() > 1e-6
    changed = [
        jax.tree_util.keystr(path)
        for (path, old), new in zip(
            jax.tree_util.tree_leaves_with_path(translator.params), jax.tree.leaves(removed), strict=True
        )
        if (np.asarray(old) != new).any()
    ]
    assert changed == ["['encoder']['layer_1']['self_attention']['output']['kernel']"]


def test_the_preference_for_the_antecedent(translator):
    found, weights = grammar.questions(), grammar.attended(translator)
    preferred = grammar.preference(weights, found)
    assert preferred.shape == weights.shape[:3] == (2, 4, 10)
    [it], [meant], [other] = (np.flatnonzero(mark[3]) for mark in (found.it, found.antecedent, found.other))
    expected = weights[1, 2, 3, it, meant] - weights[1, 2, 3, it, other]
    np.testing.assert_allclose(preferred[1, 2, 3], expected, rtol=1e-5)
    real = found.batch['source'].segments > 0
    np.testing.assert_allclose(weights.sum(-1)[:, :, real], 1.0, rtol=1e-5)


def test_claims_about_heads_are_judged(translator):
    before, antecedent = [0.1, 0.4, 0.1, 0.1], [0.9, 0.0, 0.0, 0.0]
    found = lambda **changes: [
        {'heads': ['1.1', '1.2', '2.1', '2.2'], 'before': before, 'antecedent': antecedent,
         'lost': [[1.0, 0.5], [0.0, 0.1], [0.0, 0.1], [0.0, 0.1]],
         'text': [[0.0, 0.0], [2.0, 4.0], [0.0, 0.0], [0.0, 0.0]], **changes}
    ]  # fmt: skip
    assert heads.judge(found()).holds
    number = heads.judge(found()).number
    for part in ('1.2', '0.40', '4.0', '3.00 [3.00, 3.00]', '0.700 [0.700, 0.700]'):
        assert part in number
    worse = found(before=[0.1, 0.2, 0.1, 0.1])
    assert not heads.judge(worse).holds and not heads.judge(found() + worse).holds
    assert heads.judge(found() + found()).number.count('4.0') == 2
    assert not heads.judge(found(antecedent=[0.0, 0.9, 0.0, 0.0])).holds
    assert not heads.judge(found(lost=[[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])).holds
    answers = {'nothing': [1] * 10, 'it → antecedent': [0] * 10, 'it → other noun': [1] * 10}
    same = {'nothing': {'all': [1] * 6 + [0] * 2, 'but the pronoun': [0] * 8}}
    one = {'head': [2, 3], 'preferred': [0.5] * 6, 'right': answers, 'same': same}
    assert pronoun.judge([one]).holds
    number = pronoun.judge([one]).number
    assert all(part in number for part in ('0.50 [0.50, 0.50]', '0.75 [', '0.00 [0.00, 0.00]'))
    for change in (
        {'preferred': [0.05] * 6},
        {'right': answers | {'nothing': [1] * 8 + [0] * 2}},
        {'right': answers | {'it → antecedent': [1] * 10}},
    ):
        assert not pronoun.judge([one | change]).holds
    # Each runs as the command runs it.
    for claim in (heads, pronoun):
        measured = [claim.measure(1), claim.measure(2)]
        assert json.loads(json.dumps(measured)) == measured and claim.judge(measured).number


def test_claims_about_rows_measure_what_they_judge(monkeypatch):
    """With the smallest rows, which are not trained: `translator` is, by the same function."""
    real, trained = rows.config_of, []
    sizes = {'model.N': 1, 'model.N_decoder': 1, 'model.d_model': 16, 'model.d_ff': 16}
    sizes |= {'model.h': 4, 'model.d_k': 4, 'model.d_v': 4}
    search = {'decode.beam': 1, 'decode.extra_len': 0, 'decode.max_source_len': 4}
    smallest = SMALL_CORPUS | sizes | search | {'data.dev': 'dev[:40]'}
    assert (real('A4').model.h, real('A4').train.steps, real('D3').train.eps_ls) == (16, 300, 0.0)
    # One microbatch on each of the eight devices.
    assert real('A4').train.microbatches == config_of({}).train.microbatches == 8
    tiny_row = lambda row: configs.replace(real(row), smallest)
    monkeypatch.setattr(rows, 'config_of', functools.cache(tiny_row))
    monkeypatch.setattr(rows, 'UPDATES', 2)

    def initialized(dataset, config, updates, seed):
        trained.append((config, updates, seed))
        params = jax.device_get(programs.initialize(config, jax.random.key(seed)))
        return Trained(config, params, dataset.codecs)

    monkeypatch.setattr(rows, 'train_on', initialized)
    monkeypatch.setattr(beams, 'SENTENCES', 3)
    # Each beam, with each alpha, is a program of its own.
    monkeypatch.setattr(beams, 'BEAMS', (2,))
    rows.trained.cache_clear()
    for claim in (head_count, smoothing):
        measured = claim.measure(1)
        assert json.loads(json.dumps(measured)) == measured and claim.judge([measured]).number
    measured = beams.measure(1)
    assert json.loads(json.dumps(measured)) == measured
    assert [set(measured[alpha]['2']) for alpha in beams.ALPHAS] == [
        {'bleu', 'length', 'logp'},
        {'bleu', 'length'},
    ]
    # A trained row is not trained again.
    assert rows.trained('base', 1) is rows.trained('base', 1)
    assert trained == [(rows.config_of(row), 2, 1) for row in ('A1', 'base', 'A4', 'D3')]
    rows.trained.cache_clear()


def test_an_interval_over_pairs_of_sentences():
    assert interval([0.5] * 8) == '0.5 [0.5, 0.5]'
    mean, low, high = map(float, re.findall(r'[\d.]+', interval([0.0, 0.0, 1.0, 1.0] * 50, '.3f')))
    # A mean of 100 pairs, each 0 or 1, has the standard deviation 0.05.
    assert mean == 0.5 and abs(low - 0.402) < 0.02 and abs(high - 0.598) < 0.02
    # Where both of a pair make 1, nothing varies.
    assert interval([0.0, 1.0] * 50, '.3f') == '0.500 [0.500, 0.500]'
