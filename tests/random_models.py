"""Random models, and rows of a batch, for the tests of imports and exports."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import Config
from transformer.data import vocabulary
from transformer.data.generated.grammar import sentences
from transformer.data.tokenizers.sentence_piece import SentencePieceTokenizer
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tokens import Tokens

SMALL = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'model.vocab_size': 400,
    'data.pieces': 400,
    'data.max_len': 40,
    'data.row_len': 40,
    'data.batch_tokens': 640,
}
PAIR = {'model.N_decoder': 1, 'decode.max_source_len': 100, 'decode.extra_len': 100}


@functools.cache
def tokenizers() -> tuple[SentencePieceTokenizer, SentencePieceTokenizer]:
    """Trains tokenizers of the grammar's English and German."""
    texts = zip(*sentences.sentence_pairs('train')[:400], strict=True)
    source, target = (SentencePieceTokenizer(vocabulary.train(text, 400)) for text in texts)
    return source, target


def random_model(config: Config) -> Trained:
    """Makes a model whose every parameter is random, also biases and norms."""
    rng = np.random.default_rng(0)

    def draw(path, leaf) -> np.ndarray:
        return np.asarray((path[-1].key == 'scale') + 0.3 * rng.normal(size=leaf.shape), np.float32)

    params = jax.tree_util.tree_map_with_path(draw, models.parameter_shapes(config))
    source, target = tokenizers()
    codecs = {'source': source, 'target': target if config.data.vocabulary == 'separate' else source}
    return Trained(config, params, codecs | {'text': source})


def tokens_of(rows: list[list[int]]) -> Tokens:
    """Makes rows of pieces, with two places of padding after the longest."""
    width = max(map(len, rows)) + 2
    padded = lambda row, fill: [*row, *[fill] * (width - len(row))]
    tokens = jnp.array([padded(row, 0) for row in rows])
    segments = jnp.array([padded([1] * len(row), 0) for row in rows])
    return Tokens(tokens, segments, jnp.broadcast_to(jnp.arange(width), tokens.shape))


def rows_of(texts: list[list[list[int]]], width: int) -> Tokens:
    """Makes rows of several texts each, with their segments and positions."""
    found = np.zeros((3, len(texts), width), np.int32)
    for r, row in enumerate(texts):
        pieces = [(piece, n, place) for n, text in enumerate(row, 1) for place, piece in enumerate(text)]
        found[:, r, : len(pieces)] = np.array(pieces, np.int32).reshape(-1, 3).T
    return Tokens(*found)


def random_params(config: Config) -> dict:
    """Draws all parameters, so that no bias and no scale has a special value and can be forgotten."""
    rng = np.random.default_rng(1)
    draw = lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / np.sqrt(leaf.shape[0])
    return jax.tree.map(draw, models.parameter_shapes(config))
