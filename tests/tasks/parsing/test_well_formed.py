"""The grammar of outputs that are trees: against all trees, and in searches of a model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data import trees
from transformer.inference.search import Room, beam_search, constrain, restrict, write
from transformer.tasks.parsing.well_formed import Brackets
from transformer.tokens import EOS, START

PIECES = ['<pad>', '</s>', '<unk>', '▁XX', '▁(A', '▁)A', '▁(B', '▁)B', '▁(C', '▁dog', '(A', '▁(']
SIZE = 14  # rows of the softmax

BRACKETS = Brackets.of(PIECES, SIZE, tags=False)


def text(output: tuple[int, ...]) -> str:
    return ''.join(PIECES[token].replace('▁', ' ') for token in output if token != EOS).strip()


@functools.cache
def forests(words: int, pieces: int) -> frozenset[tuple[int, ...]]:
    """Every sequence of constituents and words with so many words, in at most so many pieces."""
    if not words:
        return frozenset([()]) if pieces >= 0 else frozenset()
    word, *brackets = (PIECES.index(piece) for piece in ('▁XX', '▁(A', '▁)A', '▁(B', '▁)B'))
    found = {(word, *rest) for rest in forests(words - 1, pieces - 1)} if pieces else set()
    for opening, closing in (brackets[:2], brackets[2:]):
        for inside in range(1, words + 1):
            for first in forests(inside, pieces - 2) if pieces >= 2 else ():
                rest = forests(words - inside, pieces - 2 - len(first))
                found |= {(opening, *first, closing, *others) for others in rest}
    return frozenset(found)


@pytest.mark.parametrize(('words', 'limit'), [(0, 3), (1, 7), (2, 8), (3, 4), (3, 8)])
def test_exactly_the_trees_within_the_limit(words, limit):
    advance = jax.jit(BRACKETS.advance)
    one = lambda value: jnp.array([value], jnp.int32)
    written, outputs, ended = BRACKETS.start(one(limit), one(words), limit), [()], set()
    tokens = one(START)
    while outputs:
        written, allowed = advance(written, tokens)
        parents, following = np.nonzero(np.asarray(allowed))
        # A hypothesis can always end within its limit.
        assert set(parents) == set(range(len(outputs)))
        outputs = [(*outputs[i], int(token)) for i, token in zip(parents, following, strict=True)]
        ended |= {output for output in outputs if output[-1] == EOS}
        going = np.array([i for i, output in enumerate(outputs) if output[-1] != EOS], int)
        outputs = [outputs[i] for i in going]
        written = jax.tree.map(lambda x, parents=parents[going]: x[parents], written)
        tokens = jnp.asarray(following[going], jnp.int32)
    assert ended == {(*output, EOS) for output in forests(words, limit - 1)}
    for output in ended:
        assert not any(trees.to_tree(text(output), ['w'] * words)[1])


def test_no_more_words_than_fit():
    one = lambda value: jnp.array([value], jnp.int32)
    written = BRACKETS.start(one(3), one(9), 3)
    assert int(written.words[0]) == 2


def test_tags_stand_for_words():
    tagged = Brackets.of(PIECES, SIZE, tags=True)
    is_word = [piece for piece, kind in zip(PIECES, tagged.kinds, strict=False) if kind == 1]
    assert is_word == ['▁XX', '▁dog']


def drawn_step(constants, state, tokens):
    """Logits that depend on the pieces before, of a state that hashes them."""
    del constants
    state = state * 31 + tokens
    key = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), state)
    return jax.vmap(lambda key: 3 * jax.random.normal(key, (SIZE,)))(key), state


def rooms(limits, words, *sizes):
    written = BRACKETS.start(limits, words, max(sizes))
    return [Room(size, None, (written, jnp.zeros(len(limits), jnp.int32))) for size in sizes]


def test_searches_write_trees():
    words = jnp.arange(1, 21, dtype=jnp.int32)
    limits = 2 * words + 4
    step = constrain(restrict(drawn_step, jnp.arange(SIZE) > 0), BRACKETS.advance)
    greedy = lambda logp, place, keys: jnp.argmax(logp, -1)
    for search in (
        functools.partial(beam_search, beam=4, alpha=0.6, best=4),
        functools.partial(write, choose=greedy),
    ):
        found = jax.jit(lambda search=search: search(step, rooms(limits, words, 10, 44), limits))()
        tokens = np.asarray(found.tokens)
        assert (tokens[:, 0] == EOS).any(-1).all()
        for row, n in zip(tokens, words.tolist(), strict=True):
            for output in row[(row == EOS).any(-1)]:
                written = tuple(output[output != 0].tolist())
                assert not any(trees.to_tree(text(written), ['w'] * n)[1])
    # The scores stay the model's own: no mass is redistributed.
    state, total = jnp.zeros(1, jnp.int32), 0.0
    last = jnp.array([START], jnp.int32)
    best = np.asarray(found.tokens)[4, 0]
    for token in best[best != 0]:
        logits, state = drawn_step(None, state, last)
        total += float(jax.nn.log_softmax(logits)[0, token])
        last = jnp.array([token], jnp.int32)
    assert float(found.scores[4, 0]) == pytest.approx(total, rel=1e-5)
