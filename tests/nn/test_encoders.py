"""Encoders of every kind under every head: what a vector depends on, packed rows, pooling in numpy."""

import dataclasses
import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import TASKS, Config, ConfigError, config_dict, resolve
from transformer.config.tasks import Images, Spec
from transformer.nn import heads, models
from transformer.nn.encoders import TextEncoder
from transformer.tokens import Batch, Tokens

MODEL = {
    'train.task': 'masked',
    'data.source': 'text',
    'data.name': None,
    'model.N': 1,
    'model.d_model': 16,
    'model.vocab_size': 60,
    'data.pieces': 60,
}
# Whether the vector at i depends on the piece at j of its segment.
KINDS = {
    'transformer': ({'model.kind': 'transformer', 'model.h': 2, 'model.d_ff': 24}, lambda i, j: True),
    'recurrent': ({'model.kind': 'recurrent'}, lambda i, j: j <= i),
    'bidirectional': ({'model.kind': 'recurrent', 'model.bidirectional': True}, lambda i, j: True),
    'convolutional': ({'model.kind': 'convolutional'}, lambda i, j: abs(i - j) <= 1),
}
HEADS = {
    'pieces': heads.Pieces,
    **{pool: lambda m, _, pool=pool: heads.Classes(m, 3, pool) for pool in ('mean', 'first', 'last')},
    'labels': lambda m, _: heads.Labels(m, 4),
}
POOLS = {'mean': lambda x: x.mean(axis=0), 'first': lambda x: x[0], 'last': lambda x: x[-1]}
RNG = np.random.default_rng(0)
TEXTS = [RNG.integers(3, 60, length).tolist() for length in (5, 3, 4)]
# Rows by the texts in them: each alone, and packed in two orders.
ROWS = [[0], [1], [2], [1, 2], [2, 1]]


class Answers(NamedTuple):
    """What an encoder computes for `ROWS`, and each head; `alone` is of rows without padding."""

    params: dict
    vectors: np.ndarray
    influence: np.ndarray  # [S R S]: how much the vector at a position moves with the piece at another one
    logits: dict[str, np.ndarray]
    turned: dict[str, np.ndarray]
    alone: list[dict[str, np.ndarray]]


def config_of(kind: str, **changes) -> Config:
    return resolve(config_dict(MODEL | KINDS[kind][0] | changes))


def batch_of(rows: list[list[int]], width: int = 12) -> Batch:
    """Rows of several texts, and labels of two examples a row."""
    arrays = np.zeros((3, len(rows), width), np.int32)
    for r, row in enumerate(rows):
        parts = [(TEXTS[b], [s] * len(TEXTS[b]), range(len(TEXTS[b]))) for s, b in enumerate(row, start=1)]
        joined = np.concatenate([np.array(part, np.int32) for part in parts], axis=1)
        arrays[:, r, : joined.shape[1]] = joined
    return {'text': Tokens(*map(jnp.asarray, arrays)), 'label': jnp.zeros((len(rows), 2), jnp.int32)}


def encoder(config: Config, head: str) -> TextEncoder:
    make_head = functools.partial(HEADS[head], config.model)
    return TextEncoder(config.model, models.KINDS[config.model.kind].make_encoder, make_head)


def random_params(module: nn.Module) -> dict:
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), batch_of(ROWS), train=False))['params']
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: (rng.normal(size=x.shape) / x.shape[0] ** 0.5).astype(np.float32), shapes)


@functools.cache
def answers(kind: str) -> Answers:
    config = config_of(kind)
    params = {head: random_params(encoder(config, head)) for head in HEADS}
    apply = lambda head, params, batch, **more: encoder(config, head).apply(
        {'params': params[head]}, batch, train=False, **more
    )

    def vectors(shift, params, batch):
        def add_shift(call, args, kwargs, context):
            found = call(*args, **kwargs)
            embedded = context.module.name == 'embedding' and context.method_name == '__call__'
            return found + shift if embedded else found

        with nn.intercept_methods(add_shift):
            found = apply('labels', params, batch, method='outputs')
        return jnp.sin(found).sum(axis=(0, 2)), found

    @jax.jit
    def everything(params, batch, alone):
        shift = jnp.zeros((*batch['text'].tokens.shape, config.model.d_model))
        moved, found = jax.jacrev(vectors, has_aux=True)(shift, params, batch)
        logits = {head: apply(head, params, batch) for head in HEADS}
        turned = {head: apply(head, params, jax.tree.map(lambda x: x[::-1], batch)) for head in HEADS}
        each = [{head: apply(head, params, one) for head in HEADS} for one in alone]
        return found, jnp.abs(moved).sum(axis=-1), logits, turned, each

    alone = [batch_of([[b]], len(TEXTS[b])) for b in range(len(TEXTS))]
    return Answers(params, *jax.device_get(everything(params, batch_of(ROWS), alone)))


def places(row: list[int]) -> list[tuple[int, slice]]:
    """Each text of a row, and where it is."""
    ends = np.cumsum([len(TEXTS[b]) for b in row])
    return [(b, slice(end - len(TEXTS[b]), end)) for b, end in zip(row, ends, strict=True)]


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize('kind', KINDS)
def test_what_a_vector_depends_on(kind):
    reaches = KINDS[kind][1]
    for r, row in enumerate(ROWS):
        segments = np.zeros(12, int)
        for number, (_, place) in enumerate(places(row), start=1):
            segments[place] = number
        for i in range(np.count_nonzero(segments)):
            expected = [segments[j] == segments[i] and reaches(i, j) for j in range(12)]
            np.testing.assert_array_equal(answers(kind).influence[i, r] > 0, expected)


@pytest.mark.parametrize('head', HEADS)
@pytest.mark.parametrize('kind', KINDS)
def test_padding_and_other_examples_change_nothing(kind, head):
    found = answers(kind)
    for r, row in enumerate(ROWS):
        for e, (b, place) in enumerate(places(row)):
            mine = found.logits[head][r, e if head in POOLS else place]
            close(mine, found.alone[b][head][0, 0 if head in POOLS else slice(None)])


@pytest.mark.parametrize('kind', KINDS)
def test_equivariant_to_the_order_of_the_batch(kind):
    for head, logits in answers(kind).logits.items():
        close(answers(kind).turned[head][::-1], logits)


@pytest.mark.parametrize('kind', KINDS)
def test_heads_in_numpy(kind):
    found = answers(kind)
    linear = lambda head, x: x @ found.params[head]['head']['kernel'] + found.params[head]['head']['bias']
    config = config_of(kind)
    close(found.logits['labels'], linear('labels', found.vectors))
    for head, pool in POOLS.items():
        params = {'params': found.params[head]}
        vectors = encoder(config, head).apply(params, batch_of(ROWS), method='outputs')
        for r, row in enumerate(ROWS):
            for e, (_, place) in enumerate(places(row)):
                close(found.logits[head][r, e], linear(head, pool(np.asarray(vectors)[r, place])))


def test_hidden_pieces_at_their_places():
    config = config_of('recurrent')
    places = jnp.array([[0, 2], [1, 1], [3, 0], [6, 2], [5, 4]])
    params = {'params': answers('recurrent').params['pieces']}
    found = models.build(config).apply(params, batch_of(ROWS) | {'places': places}, train=False)
    close(found, np.take_along_axis(answers('recurrent').logits['pieces'], places[..., None], axis=1))


@dataclasses.dataclass(frozen=True)
class Group(Images):
    """A task's own options, with what a head of classes needs."""

    pool: str = 'last'


@pytest.mark.parametrize('kind', ['transformer', 'recurrent', 'convolutional'])
@pytest.mark.parametrize(('form', 'width'), [('classes', 3), ('tags', 3), ('spans', 2)])
def test_a_form_has_its_head(monkeypatch, kind, form, width):
    """It takes its width and its pooling from the task's group of options."""
    monkeypatch.setitem(TASKS, 'masked', Spec(form, 'images'))
    config = dataclasses.replace(config_of(kind), images=Group(classes=3))
    shapes = models.parameter_shapes(config)['head']
    assert {name: leaf.shape for name, leaf in shapes.items()} == {'kernel': (16, width), 'bias': (width,)}
    made = models.build(config).make_head(None)
    assert getattr(made, 'pool', None) == ('last' if form == 'classes' else None)


def test_an_unknown_number_of_classes(monkeypatch):
    monkeypatch.setitem(TASKS, 'masked', Spec('tags', 'images'))
    with pytest.raises(ConfigError) as error:
        models.parameter_shapes(dataclasses.replace(config_of('recurrent'), images=Group()))
    assert str(error.value).startswith('images.classes:')
