"""Word vectors: two tables, one of inputs and one of outputs, and the decisions that train them.

Letters: R rows, S words that are predicted, T words near them, N noise words, J inner nodes of a Huffman
tree. Words are compared with those near them in B blocks of rows, because most words of a row are far apart.
"""

from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import Config, Model
from transformer.config.tasks import Words
from transformer.nn.kernels.kernel import pad
from transformer.tokens import Batch

# Places of a block.
BLOCK = 16


class Decisions(NamedTuple):
    """Binary decisions: whether a word is near or noise, or which way to go at an inner node.

    Attributes:
      logits: of the answer yes.
      yes: 1 where yes is right, else 0.
      weight: how much each counts.
    """

    logits: Float[Array, '...']
    yes: Float[Array, '...']
    weight: Float[Array, '...']


class WordPredictions(NamedTuple):
    """The predictions of a batch: how many, and the decisions that they consist of."""

    count: Float[Array, '']
    decisions: list[Decisions]


class Table(nn.Module):
    """A V x d_model matrix whose rows are vectors."""

    model: Model
    limit: float  # the first values are uniform in ±limit

    @nn.compact
    def __call__(self, tokens: Int[Array, '*B'], share: Float[Array, '*B']) -> Float[Array, '*B D']:
        """Returns each token's row. Its gradient is multiplied by `share`."""
        size = (self.model.vocab_size, self.model.d_model)
        draw = lambda key: jax.random.uniform(key, size, minval=-self.limit, maxval=self.limit)
        rows = self.param('table', draw)[tokens]
        still = jax.lax.stop_gradient(rows)
        return still + share[..., None] * (rows - still)


class WordVectors(nn.Module):
    """Skip-gram and CBOW (Mikolov et al. 2013a, §3), by noise words or hierarchical softmax (2013b, §2)."""

    FIELDS: ClassVar[tuple[str, ...]] = ('text',)
    model: Model
    words: Words

    def setup(self):
        self.embedding = Table(self.model, 0.5 / self.model.d_model)
        self.output = Table(self.model, 0.0)

    def __call__(self, batch: Batch, *, train: bool) -> WordPredictions:
        """Computes the decisions that predict each word from the words near it."""
        del train  # no dropout
        batch = jax.tree.map(lambda a: pad(a, BLOCK), batch) | {
            k: batch[k] for k in ('noise', 'noise_share') if k in batch
        }
        text, reach = batch['text'], self.words.window
        x = self.embedding(text.tokens, batch['share'][..., 0])
        near = _near(_blocks(text.segments), _around(text.segments, reach), _blocks(batch['near'])[..., None])
        if self.words.predict == 'skipgram':
            # Each word T is an input of its own.
            inputs, made, subscripts = _around(x, reach), near, 'BTD,BS_D->BST_'
        else:
            # All words T add up to one input of the word S.
            inputs = _mean_with_gradient_of_sum(near, _around(x, reach))
            made, subscripts = jnp.any(near, -1).astype(x.dtype), 'BSD,BS_D->BS_'
        if self.words.output == 'hierarchical':
            decisions = [self._of_paths(inputs, made, batch, subscripts)]
        else:
            right = _blocks(self.output(text.tokens, batch['share'][..., 1]))
            logits = jnp.einsum(subscripts.replace('_', ''), inputs, right)
            inputs = x if self.words.predict == 'skipgram' else inputs.reshape(x.shape)
            decisions = [Decisions(logits, jnp.ones_like(made), made), self._of_noise(inputs, made, batch)]
        return WordPredictions(jnp.sum(made), decisions)

    def _of_noise(self, x, made, batch: Batch) -> Decisions:
        """Tells predicted words from noise words. A noise word that is the predicted word does not count."""
        tokens, noise, reach = batch['text'].tokens, batch['noise'], self.words.window
        logits = jnp.einsum('RTD,RND->RTN', x, self.output(noise, batch['noise_share']))
        differs = lambda words: (
            noise[:, None, None] != words.reshape(*noise.shape[:1], -1, words.shape[1], 1)
        ).astype(x.dtype)
        if self.words.predict == 'skipgram':
            # The words S that each word T predicts, so windows are around T here.
            segments = batch['text'].segments
            predicted = _near(
                _blocks(segments), _around(segments, reach), _around(batch['near'], reach)[:, None]
            )
            differ = differs(_around(tokens, reach))
            weight = jnp.einsum(
                'RnTS,RnSN->RnTN', predicted.reshape(*differ.shape[:2], -1, predicted.shape[-1]), differ
            )
        else:
            weight = made.reshape(len(noise), -1, BLOCK, 1) * differs(_blocks(tokens))
        share = self.words.negatives / self.words.pool
        return Decisions(logits, jnp.zeros_like(logits), share * weight.reshape(logits.shape))

    def _of_paths(self, x, made, batch: Batch, subscripts: str) -> Decisions:
        """Decides at each inner node from the root to the predicted word: yes where the code is 0."""
        path = batch['path']
        nodes = _blocks(self.output(path, batch['path_share']))
        logits = jnp.einsum(subscripts.replace('_', 'J'), x, nodes)
        yes, along = _blocks(batch['yes']), _blocks(path > 0).astype(x.dtype)
        if made.ndim == 3:
            yes, along = yes[:, :, None], along[:, :, None]
        return Decisions(logits, yes, made[..., None] * along)


def _blocks(a: Array) -> Array:
    """Cuts rows into blocks, which become rows."""
    return a.reshape(-1, BLOCK, *a.shape[2:])


def _around(a: Array, reach: int) -> Array:
    """Cuts rows into blocks with `reach` more places on both sides, zeros beyond the row's ends."""
    margin = -(-reach // BLOCK)
    padded = jnp.pad(a, ((0, 0), (margin * BLOCK,) * 2, *[(0, 0)] * (a.ndim - 2)))
    blocks = padded.reshape(len(a), -1, BLOCK, *a.shape[2:])
    count = a.shape[1] // BLOCK
    wide = jnp.concatenate([blocks[:, i : i + count] for i in range(2 * margin + 1)], axis=2)
    beyond = margin * BLOCK - reach
    return wide[:, :, beyond : wide.shape[2] - beyond].reshape(-1, BLOCK + 2 * reach, *a.shape[2:])


def _near(
    segments: Int[Array, 'B C'], around: Int[Array, 'B W'], reach: Int[Array, 'B _ _']
) -> Float[Array, 'B C W']:
    """Returns 1 where a word of a block and a word around it are in one segment and near, else 0."""
    size = segments.shape[1]
    place = jnp.arange(around.shape[1]) - (around.shape[1] - size) // 2
    distance = jnp.abs(jnp.arange(size)[:, None] - place[None])[None]
    same = (segments[:, :, None] == around[:, None]) & (segments > 0)[:, :, None]
    return (same & (distance > 0) & (distance <= reach)).astype(jnp.float32)


def _mean_with_gradient_of_sum(
    near: Float[Array, 'B S T'], x: Float[Array, 'B T D']
) -> Float[Array, 'B S D']:
    """Returns the mean of the vectors near each word, with the sum's gradient: each gets the whole error."""
    total = jnp.einsum('BST,BTD->BSD', near, x)
    mean = total / jnp.maximum(jnp.sum(near, -1, keepdims=True), 1.0)
    still = jax.lax.stop_gradient(total)
    return jax.lax.stop_gradient(mean) + (total - still)


def blank(config: Config, rows: int, length: int) -> Batch:
    """Returns the fields of a batch beside its text, without content."""
    numbers = lambda *shape: np.zeros((rows, *shape), np.int32)
    ones = lambda *shape: np.ones((rows, *shape), np.float32)
    fields = {'near': numbers(length), 'share': ones(length, 2)}
    if config.words.output == 'hierarchical':
        # A tree of equal counts; of real counts, some paths are longer.
        code = length, (config.model.vocab_size - 1).bit_length()
        return fields | {'path': numbers(*code), 'yes': ones(*code), 'path_share': ones(*code)}
    pool = config.words.pool
    return fields | {'noise': numbers(pool), 'noise_share': ones(pool)}
