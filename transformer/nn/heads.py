"""Heads: turn an encoder's vectors [R S D] into logits. A new head is a class, and a line in `HEADS`."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from transformer.config import TASKS, Config, ConfigError, Model, form_of
from transformer.config.tasks import Images
from transformer.nn import matmul, word_vectors
from transformer.nn.layers import ACTIVATIONS, Embedding, Linear, Norm, Softmax, linear
from transformer.tokens import Batch, Tokens


class Pieces(nn.Module):
    """A head that predicts the pieces of a text, or only the pieces at the batch's `places`.

    The softmax reads Norm(activation(W x + b)) of a vector x. With `model.softmax_bias` this is BERT's head
    for masked words. With `pairs` the head also tells whether a row's second text follows the first.
    """

    model: Model
    embedding: Embedding
    pairs: bool = False

    def setup(self):
        self.head, self.head_norm = linear(self.model, self.model.d_model), Norm(self.model)
        self.logits = Softmax(self.model, self.embedding)
        nn.share_scope(self, self.logits)
        if self.pairs:
            self.pooler = linear(self.model, self.model.d_model)
            self.next_sentence = linear(_in_float32(self.model), 2)

    def __call__(self, x: Float[Array, 'R S D'], batch: Batch) -> Float[Array, 'R P V']:
        if self.pairs and self.is_initializing():
            self.classes(x)
        return matmul.logits(*self.factors(x, batch))

    def factors(
        self, x: Float[Array, 'R S D'], batch: Batch
    ) -> tuple[Float[Array, 'R P _'], Float[Array, 'V _']]:
        """Returns the vectors and the matrix whose product is the logits."""
        if 'places' in batch:
            x = jnp.take_along_axis(x, batch['places'][..., None], axis=1)
        # With any other activation (swiglu, geglu), the head uses gelu.
        activate = ACTIVATIONS.get(self.model.activation, ACTIVATIONS['gelu'])
        return self.logits.factors(self.head_norm(activate(self.head(x))))

    def classes(self, x: Float[Array, 'R S D']) -> Float[Array, 'R 2']:
        """Returns the logits of a pair's class: a linear map of tanh(W x + b), x a row's first vector."""
        return self.next_sentence(jnp.tanh(self.pooler(x[:, 0])))


def _in_float32(model: Model) -> Model:
    """Sets the type of a linear map: in bfloat16, numbers lose digits, and near logits become equal."""
    return dataclasses.replace(model, dtype=jnp.promote_types(model.dtype, jnp.float32).name)


class Classes(nn.Module):
    """A head that classifies each segment of a row, an example, by the mean, first or last of its vectors.

    The batch's labels [R E] give the number of examples. With one class, it predicts a number.
    """

    model: Model
    classes: int
    pool: str

    def setup(self):
        self.head = linear(_in_float32(self.model), self.classes)

    def __call__(self, x: Float[Array, 'R S D'], batch: Batch) -> Float[Array, 'R E K']:
        vectors = pool_examples(x, batch['text'], batch['label'].shape[1], self.pool)
        return self.head(vectors)


def pool_examples(x: Float[Array, 'R S D'], text: Tokens, examples: int, pool: str) -> Float[Array, 'R E D']:
    """Pools the vectors of each example, in float32, to zero if a row lacks the example."""
    chosen = text.segments[:, None] == jnp.arange(1, examples + 1)[None, :, None]
    if pool == 'first':
        chosen &= (text.positions == 0)[:, None]
    elif pool == 'last':
        following = jnp.pad(text.segments, ((0, 0), (0, 1)))[:, 1:]
        chosen &= (text.segments != following)[:, None]
    weights = chosen / jnp.maximum(jnp.sum(chosen, axis=-1, keepdims=True), 1)
    return jnp.einsum('RES,RSD->RED', weights, x.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)


class PositionLabels(nn.Module):
    """A head that labels every position, as a tag or as the begin and the end of a span."""

    model: Model
    labels: int

    def setup(self):
        self.head = linear(_in_float32(self.model), self.labels)

    def __call__(self, x: Float[Array, 'R S D'], batch: Batch) -> Float[Array, 'R S K']:
        del batch
        return self.head(x)


class ImageClasses(nn.Module):
    """A head that classifies an image by its class token's vector (Dosovitskiy et al. 2021, §3.1).

    Without a class token, it reads the mean of the patches' vectors (Beyer et al. 2022).
    """

    model: Model
    classes: int
    images: Images

    def setup(self):
        kernel = nn.initializers.zeros if self.images.begin == 'zeros' else None
        self.head = Linear(_in_float32(self.model), (self.classes,), kernel_init=kernel)

    def __call__(self, x: Float[Array, 'B S D'], batch: Batch) -> Float[Array, 'B K']:
        del batch
        return self.head(pool_image(x, self.images))


def pool_image(x: Float[Array, 'B S D'], images: Images) -> Float[Array, 'B D']:
    """Returns the class token's vector or, without a class token, the mean of the patches'."""
    return x[:, 0] if images.pool == 'token' else jnp.mean(x, axis=1)


class Projection(nn.Module):
    """A head that maps an example's vector into a space of width `width`, without a bias.

    Attributes:
      images: how the vector of an image is pooled; None for texts, whose vector is their last piece's. Their
        batch's `weight` [R E] gives the number of examples of a row.
    """

    model: Model
    width: int
    images: Images | None

    def setup(self):
        kernel = nn.initializers.normal(self.model.d_model**-0.5)
        self.projection = Linear(self.model, (self.width,), use_bias=False, kernel_init=kernel)

    def __call__(self, x: Float[Array, 'R S D'], batch: Batch) -> Float[Array, 'R *E W']:
        if self.images is None:
            vectors = pool_examples(x, batch['text'], batch['weight'].shape[1], 'last')
        else:
            vectors = pool_image(x, self.images)
        return self.projection(vectors).astype(jnp.float32)


# Makes a form's head from the config and the text encoder's embedding, if there is one.
HEADS = {
    'pieces': lambda config, embedding: Pieces(config.model, embedding, _group(config).next_sentence > 0),
    'classes': lambda config, _: Classes(config.model, number_of_classes(config), _group(config).pool),
    'tags': lambda config, _: PositionLabels(config.model, number_of_classes(config)),
    'spans': lambda config, _: PositionLabels(config.model, 2),
    'image_classes': lambda config, _: ImageClasses(config.model, number_of_classes(config), config.images),
}


def number_of_classes(config: Config) -> int:
    """Returns the number of classes of the task's data, or raises ConfigError if it is unknown."""
    if (classes := _group(config).classes) is None:
        group = TASKS[config.train.task].group
        raise ConfigError(f'{group}.classes: missing; it is known once the data is read')
    return classes


def _group(config: Config) -> object:
    return getattr(config, TASKS[config.train.task].group)


def blank(config: Config, rows: int, length: int) -> Batch:
    """Returns the fields of a batch that the head reads beside vectors and texts, without content."""
    form = form_of(config)
    if form == 'image_text':
        return {'weight': np.ones((rows, 1), np.float32)}
    if form == 'pieces':
        types = {'types': np.zeros((rows, length), np.int32)} if _group(config).next_sentence else {}
        return {'places': np.zeros((rows, _group(config).places(length)), np.int32), **types}
    if form == 'vectors':
        return word_vectors.blank(config, rows, length)
    return {'label': np.zeros((rows, 1), np.int32)} if form == 'classes' else {}


def blank_labels(config: Config, rows: int, length: int) -> Batch:
    """Returns what the loss of full rows reads beside the model's input: class 0, with weight 1."""
    zeros = lambda *shape: np.zeros((rows, *shape), np.int32)
    ones = lambda *shape: np.ones((rows, *shape), np.float32)
    match form_of(config):
        case 'pieces':
            places = _group(config).places(length)
            classes = {'next': zeros()} if _group(config).next_sentence else {}
            return {'target': zeros(places), 'weight': ones(places), **classes}
        case 'classes' | 'image_writes':
            return {'weight': ones(1)}
        case 'tags':
            # 0 is no tag.
            return {'tags': Tokens(zeros(length) + 1, zeros(length) + 1, zeros(length))}
        case 'spans':
            return {'span': zeros(1, 2), 'weight': ones(1)}
        case 'image_classes':
            return {'label': zeros(), 'weight': ones()}
        case _:
            return {}
