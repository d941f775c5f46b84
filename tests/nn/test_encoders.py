"""Encoders of every kind under every head: dependences of vectors, packed rows, pooling in numpy."""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_models import rows_of

from tests import programs
from transformer import config as configs
from transformer.config import Config, ConfigError, config_dict, resolve
from transformer.nn import heads, models
from transformer.nn.encoders import TextEncoder, text_types
from transformer.tokens import EOS, Batch

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
    'labels': lambda m, _: heads.PositionLabels(m, 4),
}
POOLS = {'mean': lambda x: x.mean(axis=0), 'first': lambda x: x[0], 'last': lambda x: x[-1]}
RNG = np.random.default_rng(0)
TEXTS = [RNG.integers(3, 60, length).tolist() for length in (5, 3, 4)]
# Rows by the texts in them: each alone, and packed in two orders.
ROWS = [[0], [1], [2], [1, 2], [2, 1]]
PLACES = np.array([[0, 2], [1, 1], [3, 0], [6, 2], [5, 4]])


class Answers(NamedTuple):
    """An encoder's outputs for `ROWS`, and each head's.

    Attributes:
      influence: [S R S], how much the vector at a position moves with the piece at another one.
      turned: with the rows in reverse order.
      tight: for the first row without padding.
      hidden: at `PLACES`.
    """

    params: dict
    vectors: np.ndarray
    influence: np.ndarray
    logits: dict[str, np.ndarray]
    turned: np.ndarray
    tight: np.ndarray
    hidden: np.ndarray


def config_of(kind: str, **changes) -> Config:
    return resolve(config_dict(MODEL | KINDS[kind][0] | changes))


def batch_of(rows: list[list[int]], width: int = 12) -> Batch:
    """Makes rows of several texts, and labels of two examples a row."""
    text = jax.device_put(rows_of([[TEXTS[b] for b in row] for row in rows], width))
    return {'text': text, 'label': jnp.zeros((len(rows), 2), jnp.int32)}


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
    shared = {name: params['labels'][name] for name in params['labels'] if name != 'head'}
    params = {head: own | shared for head, own in params.items()}
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
    def everything(params, batch, tight):
        shift = jnp.zeros((*batch['text'].tokens.shape, config.model.d_model))
        moved, found = jax.jacrev(vectors, has_aux=True)(shift, params, batch)
        logits = {head: apply(head, params, batch) for head in HEADS}
        turned = apply('pieces', params, jax.tree.map(lambda x: x[::-1], batch))
        hidden = apply('pieces', params, batch | {'places': PLACES})
        return found, jnp.abs(moved).sum(axis=-1), logits, turned, apply('pieces', params, tight), hidden

    tight = batch_of(ROWS[:1], len(TEXTS[0]))
    return Answers(params, *jax.device_get(everything(params, batch_of(ROWS), tight)))


def places(row: list[int]) -> list[tuple[int, slice]]:
    """Lists the texts of a row, and their places."""
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
def test_other_examples_of_a_row_change_nothing(kind, head):
    logits = answers(kind).logits[head]
    for r, row in enumerate(ROWS):
        for e, (b, place) in enumerate(places(row)):
            alone = 0 if head in POOLS else slice(len(TEXTS[b]))
            close(logits[r, e if head in POOLS else place], logits[b, alone])


@pytest.mark.parametrize('kind', KINDS)
def test_padding_and_the_order_of_the_batch_change_nothing(kind):
    found = answers(kind)
    close(found.logits['pieces'][0, : len(TEXTS[0])], found.tight[0])
    close(found.turned[::-1], found.logits['pieces'])


@pytest.mark.parametrize('kind', KINDS)
def test_heads_in_numpy(kind):
    """All of them read the same vectors, because they share the encoder's parameters."""
    found = answers(kind)
    linear = lambda head, x: x @ found.params[head]['head']['kernel'] + found.params[head]['head']['bias']
    close(found.logits['labels'], linear('labels', found.vectors))
    for head, pool in POOLS.items():
        for r, row in enumerate(ROWS):
            for e, (_, place) in enumerate(places(row)):
                close(found.logits[head][r, e], linear(head, pool(found.vectors[r, place])))


@pytest.mark.parametrize('kind', KINDS)
def test_hidden_pieces_at_their_places(kind):
    found = answers(kind)
    close(found.hidden, np.take_along_axis(found.logits['pieces'], PLACES[..., None], axis=1))


CLASSIFIED = {'train.task': 'classify', 'classify.classes': 3, 'classify.pool': 'last'}
LABELLED = {'train.task': 'labelling', 'labelling.classes': 5}


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize(
    ('task', 'head'),
    [
        (CLASSIFIED, (heads.Classes, 3)),
        (LABELLED, (heads.PositionLabels, 5)),
        ({'train.task': 'answers'}, (heads.PositionLabels, 2)),
    ],
    ids=['classes', 'tags', 'spans'],
)
def test_the_head_of_a_form(kind, task, head):
    """Its width and how it pools are options of the task."""
    config = config_of(kind, **task)
    made, (expected, width) = models.build(config).make_head(None), head
    assert type(made) is expected and getattr(made, 'pool', 'last') == 'last'
    shapes = models.parameter_shapes(config)['head']
    assert {name: leaf.shape for name, leaf in shapes.items()} == {'kernel': (16, width), 'bias': (width,)}


@pytest.mark.parametrize('kind', KINDS)
def test_parameters_are_float32_also_where_others_are_float64(kind):
    config = config_of(kind, **CLASSIFIED)
    expected = jax.tree.map(lambda leaf: (leaf.shape, jnp.float32), models.parameter_shapes(config))
    with jax.enable_x64(True):
        params = jax.eval_shape(lambda: models.initialize(config, jax.random.key(0)))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params) == expected


def test_texts_have_types_of_their_own():
    """As BERT's, an end has its text's type. If there are more texts than types, the last share one."""
    rows = [[5, 6, EOS, 7, EOS], [8, EOS], [9, EOS, EOS, 5]], [[3, EOS, 4, EOS, 5, EOS]]
    text = jax.device_put(rows_of(rows, 12))
    expected = np.array([[0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 2, 0], [0, 0, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(text_types(text, 3), expected)
    np.testing.assert_array_equal(text_types(text, 2), np.minimum(expected, 1))
    typed = config_of('transformer', **CLASSIFIED, **{'model.token_types': 2, 'model.text_types': True})
    one_type = configs.replace(typed, {'model.text_types': False})
    params = programs.initialize(typed, jax.random.key(0))
    table = jax.random.normal(jax.random.key(1), (2, 16))
    params |= {'positions': params['positions'] | {'token_types': table}}
    vectors = lambda config, **batch: models.build(config).apply({'params': params}, batch, method='outputs')
    found = vectors(typed, text=text)
    close(found, vectors(one_type, text=text, types=jnp.minimum(expected, 1)))
    assert np.abs(found - vectors(one_type, text=text)).max() > 0.1


def test_types_of_texts_need_a_table_of_two():
    for types in (0, 1):
        with pytest.raises(ConfigError, match='^model.text_types.* model.token_types=2'):
            config_of('transformer', **CLASSIFIED, **{'model.token_types': types, 'model.text_types': True})


def test_an_unknown_number_of_classes():
    with pytest.raises(ConfigError) as error:
        models.parameter_shapes(config_of('recurrent', **LABELLED | {'labelling.classes': None}))
    assert str(error.value).startswith('labelling.classes:')
