"""What claims measure, by hand; when they hold; and the command that measures them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import claims
from experiments.claims import __main__ as command
from experiments.claims import bottleneck, gradients, parallelism, recall
from experiments.claims.claim import Claim, Verdict, config_of, spread
from transformer.nn.recurrent import RecurrentDecoder
from transformer.tasks.translation import bleu


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
    stack = RecurrentDecoder(config.model, 1, cross=False)
    params = stack.init(keys[2], inputs, jnp.ones((2, 5), jnp.int32), None, train=False)['params']['layer_0']
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
    assert (tokens[:, 9] == symbols).all() and (tokens[:, 8] == recall.ASK).all()
    assert len(set(symbols)) > 8 and not set(symbols) & set(between.flat)
    assert {recall.ASK, *symbols, *between.flat} < set(range(recall.FIRST, recall.VOCABULARY))
    np.testing.assert_array_equal(batch['weight'], np.eye(10)[[9] * 50])


def norms(near: float, far: float) -> list[float]:
    return [near] * 100 + [far] * 28


@pytest.mark.parametrize(
    ('attention', 'lstm', 'holds'), [(0.2, 1e-3, True), (0.05, 1e-3, False), (0.2, 0.1, False)]
)
def test_gradients_are_judged_by_the_worst_seed(attention, lstm, holds):
    good = {'RNN': norms(1, 0), 'GRU': norms(1, 0), 'LSTM': norms(1, 0), 'self-attention': norms(1, 1)}
    other = good | {'LSTM': norms(2, 2 * lstm), 'self-attention': norms(3, 3 * attention)}
    verdict = gradients.judge([good, other])
    assert verdict.holds == holds and f'[{attention:.2f}, 1.00]' in verdict.number


def test_recall_is_judged_by_the_longest_lag_and_the_worst_seed():
    found = lambda *last: {
        name: {'5': 1.0, '20': 1.0, '80': value} for name, value in zip(recall.LAYERS, last, strict=True)
    }
    assert recall.judge([found(0.1, 0.3, 0.2, 1.0), found(0.1, 0.4, 0.2, 0.95)]).holds
    assert not recall.judge([found(0.1, 0.3, 0.2, 1.0), found(0.1, 0.5, 0.2, 0.95)]).holds


def test_the_bottleneck_is_judged_by_what_is_lost_on_long_sources():
    found = lambda a, b: {
        'with attention': {bottleneck.SHORT: 90.0, bottleneck.LONG: 90.0 - a},
        'without attention': {bottleneck.SHORT: 70.0, bottleneck.LONG: 70.0 - b},
    }
    assert bottleneck.judge([found(5, 20), found(5, 6)]).holds
    assert not bottleneck.judge([found(5, 20), found(5, 4)]).holds
    groups = bleu.by_length(['a ' * 9, 'a ' * 15], ['x', 'x'], ['x', 'x'], 'de')
    assert list(groups) == [bottleneck.SHORT, bottleneck.LONG]


def test_parallelism_is_judged_by_medians():
    found = lambda transformer, lstm: {
        'Transformer': {'16': 100.0, '64': 0.0, '256': 100 / transformer},
        'LSTM': {'16': 300.0, '64': 0.0, '256': 300 / lstm},
    }
    assert parallelism.judge([found(1, 5), found(1, 1), found(1, 5)]).holds
    assert not parallelism.judge([found(1, 5), found(3, 5), found(3, 5)]).holds


def test_spread():
    assert spread([1.0, 2.0, 6.0], '.1f') == '3.0 [1.0, 6.0]'


def small(holds: bool, why: str = '') -> Claim:
    """A claim about its seeds."""
    return Claim(
        statement='Seeds are <small>.',
        source='§0',
        criterion='the greatest is 2',
        seeds=2,
        measure=lambda seed: {'seed': seed},
        judge=lambda found: Verdict(holds, spread([one['seed'] for one in found], '.1f')),
        draw=lambda axes, found: axes[0].plot([one['seed'] for one in found]),
        why=why,
    )


def test_the_command_measures_draws_and_tells(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, 'CLAIMS', {'first': small(True), 'second': small(False, 'Because.')})
    call = ['claims', f'--output={tmp_path}/new']
    assert command.main([*call, 'second']) == 0
    assert 'first' not in capsys.readouterr().out
    # What was measured before stays in the table.
    assert command.main([*call, 'first']) == 0
    out = capsys.readouterr()
    assert 'first: holds: 1.5 [1.0, 2.0]' in out.err
    lines = out.out.splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [['first', 'holds'], ['second', 'fails']]
    assert (
        'Holds if: the greatest is 2. Found, mean [least, greatest] over the seeds: 1.5 [1.0, 2.0]' in out.out
    )
    names = {path.name for path in (tmp_path / 'new').iterdir()}
    assert names == {
        'claims.md',
        'claims.html',
        *(f'{n}.{e}' for n in ('first', 'second') for e in ('json', 'png')),
    }
    result = json.loads((tmp_path / 'new' / 'second.json').read_text())
    assert result['holds'] is False and result['found'] == [{'seed': 1}, {'seed': 2}]
    page = (tmp_path / 'new' / 'claims.html').read_text()
    assert 'Seeds are &lt;small&gt;.' in page and 'src="second.png"' in page and 'Because.' in page


def test_unknown_claims(capsys, tmp_path):
    assert command.main(['claims', 'gradient', f'--output={tmp_path}/new']) == 2
    assert "'gradient': no such claim; choose of gradients, recall" in capsys.readouterr().err
    assert not (tmp_path / 'new').exists()


def test_claims_say_what_they_need():
    for name, claim in claims.CLAIMS.items():
        assert claim.seeds >= 3 and claim.statement.endswith('.') and claim.source, name
