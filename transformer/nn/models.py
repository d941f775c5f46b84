"""Whole models by kind and form, all with one contract, so that callers need not know the model.

    model(batch, train) -> logits                    every model; of `vectors`, decisions with their logits
    factors(batch, train) -> (vectors, matrix)       models that predict pieces: logits are their product
    outputs(batch, train) -> vectors [B S D]         encoders
    encode(source) -> memory                         models that write, of `Tokens` or of images
    start(memory, max_len) -> (constants, state)
    step(constants, state, tokens [R]) -> (logits [R V], state)
    read_on(batch, train) -> (factors, state)        recurrent language models: rows that continue `carried`

`constants` never changes, and all hypotheses of a sentence share it: a pytree of arrays with first axis B. A
step can run W hypotheses per sentence, in rows b·W + w of `tokens` and of the arrays in `state`. Only the
caches in `state` have one row per sentence (nn/cache.py). The first token of a hypothesis is `START`.
"""

import functools
from collections.abc import Callable
from types import ModuleType

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from transformer.config import FORMS, Config, form_of, has, image_tower
from transformer.nn import convolutional, heads, recurrent, stacks
from transformer.nn.decoders import EncoderDecoder, ImageWriter, LanguageModel
from transformer.nn.encoders import ImageEncoder, TextEncoder, TwoTowers
from transformer.nn.resnet import ResNet
from transformer.nn.word_vectors import WordVectors
from transformer.tokens import Batch, Tokens

Params = dict[str, object]
# The file of each kind, whose `make_pair`, `make_encoder` and `make_decoder` make the parts of a model. A
# table has no parts.
KINDS = {'transformer': stacks, 'recurrent': recurrent, 'convolutional': convolutional, 'table': None}


def _with_parts(kind: ModuleType | None, form: str, config: Config) -> nn.Module:
    """Puts the parts of a kind into the module of a form."""
    m = config.model
    if has(config, 'pair'):
        return EncoderDecoder(m, kind.make_pair)
    if has(config, 'image') and has(config, 'writes'):
        make_image = lambda: ImageEncoder(image_tower(config), config.images, kind.make_encoder, None)
        return ImageWriter(m, make_image, kind.make_pair)
    if form == 'text':
        return LanguageModel(m, kind.make_decoder)
    if form == 'vectors':
        return WordVectors(m, config.words)
    if has(config, 'towers'):
        return _two_towers(kind, config)
    make_head = functools.partial(heads.HEADS[form], config)
    if has(config, 'image') and kind is convolutional:
        return ResNet(m, config.images, make_head)
    if has(config, 'image'):
        return ImageEncoder(m, config.images, kind.make_encoder, make_head)
    make_encoder = kind.make_encoder
    if form == 'classes' and config.classify.causal:
        make_encoder = functools.partial(make_encoder, causal=True)
    return TextEncoder(m, make_encoder, make_head)


def _two_towers(kind: ModuleType, config: Config) -> TwoTowers:
    image, text, own = image_tower(config), config.model, config.contrastive
    head = lambda model, images: lambda _: heads.Projection(model, own.d_e, images)
    make_text_encoder = functools.partial(kind.make_encoder, causal=own.causal)
    return TwoTowers(
        lambda: ImageEncoder(image, config.images, kind.make_encoder, head(image, config.images)),
        lambda: TextEncoder(text, make_text_encoder, head(text, None)),
    )


# Makes the module of each kind and form (config/tasks.py lists them) from a config.
MODELS: dict[tuple[str, str], Callable[[Config], nn.Module]] = {
    (kind, form): functools.partial(_with_parts, KINDS[kind], form)
    for form in FORMS
    for kind in FORMS[form].kinds
}


def build(config: Config) -> nn.Module:
    """Returns the model that a config describes."""
    return MODELS[config.model.kind, form_of(config)](config)


def fields(config: Config) -> tuple[str, ...]:
    """Returns the texts that a config's model reads. A model that writes predicts the last one."""
    return build(config).FIELDS


def blank(config: Config, rows: int = 1, length: int = 2) -> Batch:
    """Returns a batch for the model without content: full rows of piece 0, or black images."""
    sizes = dict.fromkeys(fields(config), length)
    if has(config, 'pair') and has(config, 'one_text'):
        # A text fills its row, or its source does.
        running, denoise = config.data.batching == 'running', config.denoise
        count = np.array(denoise.raw_length(length) if running else length - 1)
        sizes = dict(zip(sizes, map(int, denoise.lengths(count)), strict=True))
    texts = {field: _full(rows, size) for field, size in sizes.items()}
    if has(config, 'image'):
        size, channels = config.images.size, config.images.channels
        examples = (1,) if texts else ()
        texts['image'] = np.zeros((rows, *examples, size, size, channels), np.uint8)
    return texts | heads.blank(config, rows, length)


def _full(rows: int, length: int) -> Tokens:
    """Returns rows of one text each, of piece 0."""
    tokens = np.zeros((rows, length), np.int32)
    positions = np.broadcast_to(np.arange(length, dtype=np.int32), tokens.shape).copy()
    return Tokens(tokens, np.ones_like(tokens), positions)


def empty_state(config: Config, rows: int) -> tuple:
    """Returns the state that rows of a recurrent language model begin with, unless they continue others."""
    return build(config).apply({}, rows, method='empty')


def initialize(config: Config, key: Array) -> Params:
    """Draws fresh parameters, in float32. Under jit, it computes only these."""
    batch = jax.tree.map(jnp.asarray, blank(config))
    params = build(config).init(key, batch, train=False)['params']
    # With jax_enable_x64, some would be float64.
    return jax.tree.map(lambda array: array.astype(jnp.float32), params)


def parameter_shapes(config: Config) -> Params:
    """Returns the parameters' shapes and types without computing the parameters."""
    # A copy, because the caller may change its tree.
    return jax.tree.map(lambda leaf: leaf, _traced_shapes(config))


@functools.lru_cache(maxsize=64)
def _traced_shapes(config: Config) -> Params:
    return jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
