"""Other codebases' models beside ours, here with a model of a module that the test makes."""

import sys
import types

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from experiments.compiled import peers
from transformer.config import ConfigError

ROWS, LENGTH, PIECES, EPS = 4, 6, 11, 0.1


class Bigrams(nn.Module):
    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        return nn.Embed(PIECES, PIECES)(tokens)


@pytest.fixture
def bigrams(monkeypatch):
    monkeypatch.setitem(sys.modules, 'bigrams', types.SimpleNamespace(Bigrams=Bigrams))
    inputs = dict.fromkeys(('text', 'labels'), (ROWS, LENGTH))
    model = lambda module: module.Bigrams()
    peer = peers.Peer('bigrams', 'elsewhere', model, lambda model, x: model(x['text']), inputs, EPS)
    monkeypatch.setitem(peers.PEERS, 'bigrams', peer)


def run(chunks: int, text: np.ndarray, labels: np.ndarray, table: np.ndarray) -> tuple:
    program = peers.update('bigrams', chunks, jax.devices()[0]).compile()
    split = lambda x: x.reshape(chunks, -1, LENGTH)
    params = {'Embed_0': {'embedding': table}}
    batch = {'text': split(text), 'labels': split(labels)}
    return program(params, optax.adam(0.0).init(params), batch, jax.random.key(0))


def test_an_update_is_adams_with_the_smoothed_loss_of_labels(bigrams):
    draw = np.random.default_rng(0)
    text, labels = (draw.integers(0, PIECES, (ROWS, LENGTH), np.int32) for _ in range(2))
    labels[0, 3:] = 0
    table = draw.normal(size=(PIECES, PIECES)).astype(np.float32)
    logits = table.astype(float)[text]
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    targets = (1 - EPS) * np.eye(PIECES)[labels] + EPS / PIECES
    of_logits = (weights - targets) * (labels > 0)[..., None] / (labels > 0).sum()
    gradient = np.zeros_like(logits, shape=table.shape)
    np.add.at(gradient, text, of_logits)
    # The first update of Adam is the sign of the gradient.
    expected = table - 1e-4 * gradient / (abs(gradient) + 1e-9)
    for chunks in (1, 2):
        params, state = run(chunks, text, labels, table)
        [updated] = jax.tree.leaves(params)
        np.testing.assert_allclose(jax.tree.leaves(state[0].mu)[0], 0.1 * gradient, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(updated, expected, rtol=0, atol=2e-7)


def test_what_cannot_be_compiled(bigrams, monkeypatch):
    device = jax.devices()[0]
    with pytest.raises(ConfigError, match='3'):
        peers.update('bigrams', 3, device)
    monkeypatch.delitem(sys.modules, 'bigrams')
    with pytest.raises(ConfigError, match='elsewhere'):
        peers.update('bigrams', 1, device)
