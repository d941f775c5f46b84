"""Greedy search, sampling and the paper's beam search (§6.1), for any model with `start` and `step`.

Lengths and limits are in output pieces and count the end of the sentence. A sentence's results do not depend
on other sentences, except for rounding if the number of rows differs.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.nn import cache
from transformer.tokens import EOS, START

# If there are at least `_MANY` sentences, and at most one in `_FEWER` is unfinished, only the unfinished
# sentences move to the larger room.
_MANY, _FEWER = 16, 4
# `top_k` compares the maxima of blocks first: of 64 numbers or fewer, or of a register of a TPU.
_BLOCK, _LANES = 64, 128
Choice = Callable[[Float[Array, 'B V'], Int[Array, ''], Array | None], Int[Array, 'B']]
# `(constants, state, tokens) -> (scores of the next piece, state)`: logits from a model, log p in a search.
Step = Callable[[object, object, Int[Array, 'R']], tuple[Float[Array, 'R V'], object]]
# `(state, tokens) -> (state, pieces that may follow)`, of each hypothesis.
Advance = Callable[[object, Int[Array, 'R']], tuple[object, Bool[Array, 'R V']]]


class Hypotheses(NamedTuple):
    """The outputs of each sentence, best first.

    Attributes:
      tokens: up to EOS or the limit, then padding.
      scores: log p / ((5 + n)/6)^alpha in beam search, log p in the other searches.
    """

    tokens: Int[Array, 'B W L']
    scores: Float[Array, 'B W']


class Room(NamedTuple):
    """The constants and the first state from a model's `start`, for outputs of at most `length` pieces.

    The state of a larger room differs only in longer axes, which are zero at first.
    """

    length: int
    constants: object
    state: object


def length_penalty(length: Int[Array, '*B'] | int, alpha: float) -> Float[Array, '*B']:
    """Computes ((5 + n)/6)^alpha (Wu et al. 2016, eq. 14)."""
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def restrict(step: Step, allowed: Bool[Array, 'V']) -> Step:
    """Makes a model's step compute log p, with -inf for pieces that are not allowed.

    Their mass is not redistributed.
    """

    def restricted_step(constants, state, tokens):
        logits, state = step(constants, state, tokens)
        return jnp.where(allowed[None], jax.nn.log_softmax(logits, axis=-1), -jnp.inf), state

    return restricted_step


def constrain(step: Step, advance: Advance) -> Step:
    """Makes a step give -inf to pieces that may not follow what a hypothesis has written.

    The new step's state is a pair: `advance`'s state, whose arrays have first axis R, and the model's.
    """

    def constrained_step(constants, states, tokens):
        written, state = states
        logp, state = step(constants, state, tokens)
        written, allowed = advance(written, tokens)
        return jnp.where(allowed, logp, -jnp.inf), (written, state)

    return constrained_step


class _Beam(NamedTuple):
    """A beam search after `length` steps. `model` is the model's state for the living hypotheses."""

    length: Int[Array, '']
    alive: Int[Array, 'B W L']
    alive_logp: Float[Array, 'B W']
    complete: Int[Array, 'B W L']
    complete_score: Float[Array, 'B W']
    done: Bool[Array, 'B']
    model: object


class _Written(NamedTuple):
    """One output per sentence after `length` steps. `last` is its last piece, `model` the model's state."""

    length: Int[Array, '']
    tokens: Int[Array, 'B L']
    logp: Float[Array, 'B']
    last: Int[Array, 'B']
    done: Bool[Array, 'B']
    model: object


_Search = _Beam | _Written


def beam_search(
    step: Step, rooms: Sequence[Room], limits: Int[Array, 'B'], *, beam: int, alpha: float, best: int = 1
) -> Hypotheses:
    """Runs the paper's beam search.

    Each step takes the 2·beam likeliest extensions of the living hypotheses, so that `beam` of them
    continue even if `beam` end. A sentence stops at its limit, or once no living hypothesis can beat its
    `best` highest-scoring complete ones. (The released code's batch stops once none can beat any of the
    `beam` complete ones of any sentence.) If fewer than `best` are complete, living hypotheses follow.

    Args:
      step: computes log p.
      rooms: shortest first, for one hypothesis per sentence. A search that fills a room moves to the next.
      limits: each sentence's longest output, at most the last room's length.
      best: the number of hypotheses to return, at most `beam`.
    """
    sentences, width = limits.shape[0], beam
    blank = jnp.zeros((sentences, width, rooms[-1].length), jnp.int32)
    no_score = jnp.full((sentences, width), -jnp.inf)
    initial = _Beam(
        length=jnp.int32(0),
        alive=blank,
        # All hypotheses are equal at first, so only one lives.
        alive_logp=no_score.at[:, 0].set(0.0),
        complete=blank,
        complete_score=no_score,
        done=jnp.zeros(sentences, bool),
        model=cache.spread(rooms[0].state, width),
    )

    def grow(constants: object, limits: Int[Array, 'B'], search: _Beam) -> _Beam:
        length, sentences = search.length + 1, len(limits)
        last = search.alive[:, :, jnp.maximum(search.length - 1, 0)]
        tokens = jnp.where(search.length == 0, START, last)
        logp, model = step(constants, search.model, tokens.reshape(-1))
        size = logp.shape[-1]
        total = search.alive_logp[:, :, None] + logp.reshape(sentences, width, size)
        extended_logp, chosen = top_k(total, min(2 * width, width * size))
        parent, token = chosen // size, chosen % size
        extended = _pick(search.alive, parent).at[:, :, search.length].set(token)

        ended = token == EOS
        score = jnp.where(ended, extended_logp / length_penalty(length, alpha), -jnp.inf)
        all_scores = jnp.concatenate([search.complete_score, score], axis=1)
        all_complete = jnp.concatenate([search.complete, extended], axis=1)
        complete_score, winners = jax.lax.top_k(all_scores, width)

        alive_logp, survivors = jax.lax.top_k(jnp.where(ended, -jnp.inf, extended_logp), width)
        rows = jnp.arange(sentences)[:, None] * width + _pick(parent, survivors)
        grown = _Beam(
            length=length,
            alive=_pick(extended, survivors),
            alive_logp=alive_logp,
            complete=_pick(all_complete, winners),
            complete_score=complete_score,
            done=search.done,
            model=cache.follow(model, rows.reshape(-1)),
        )
        return _freeze(search, grown, limits, alpha, best)

    return _rank(_run(grow, rooms, limits, initial, width), limits, alpha, best)


def _run(grow: Callable, rooms: Sequence[Room], extras: object, search: _Search, width: int) -> _Search:
    """Runs a search until all sentences are done or the last room is full, then drops its `model`.

    Args:
      grow: `(constants, extras, search) -> search`, one step.
      extras: more arrays of the sentences, with first axis B. A search's fields have this axis too, except
        `length`, and `model`, the state of B·width hypotheses.
      search: a search whose `model` fits the first room.
    """
    room, *larger = rooms
    continues = lambda search: ~jnp.all(search.done) & (search.length < room.length)
    search = jax.lax.while_loop(continues, functools.partial(grow, room.constants, extras), search)
    if not larger:
        return search._replace(model=None)

    sentences = search.done.shape[0]
    few = sentences // _FEWER

    def enter(rooms, extras, search):
        search = search._replace(model=cache.enlarge(search.model, rooms[0].state, width))
        return _run(grow, rooms, extras, search, width)

    def move_unfinished(search):
        unfinished = jnp.argsort(search.done, stable=True)[:few]
        pick = lambda tree: jax.tree.map(lambda x: x[unfinished], tree)
        whole = search._replace(length=None, model=None)
        model = cache.of_sentences(search.model, unfinished, width)
        part = pick(whole)._replace(length=search.length, model=model)
        rooms = [Room(room.length, *pick((room.constants, room.state))) for room in larger]
        part = enter(rooms, pick(extras), part)
        whole = jax.tree.map(lambda x, new: x.at[unfinished].set(new), whole, part._replace(length=None))
        return whole._replace(length=part.length)

    move_all = functools.partial(enter, larger, extras)
    if sentences < _MANY:
        return move_all(search)
    return jax.lax.cond(jnp.sum(~search.done) <= few, move_unfinished, move_all, search)


def top_k(x: Float[Array, 'B W V'], k: int) -> tuple[Float[Array, 'B k'], Int[Array, 'B k']]:
    """Computes `jax.lax.top_k` of each row's W·V numbers, but several times as fast if rows are long.

    The k greatest numbers are in the k blocks with the greatest maxima. Ties go to the lower index, both of
    blocks and of numbers.
    """
    rows, width, length = x.shape
    if width * length <= 4 * k * _BLOCK:
        return tuple(jax.lax.top_k(x.reshape(rows, -1), k))
    # A block is within one of the W parts, because a TPU would copy the whole row to join them.
    size = next((n for n in (_LANES, *range(_BLOCK, _BLOCK // 2, -1)) if length % n == 0), None)
    if size is None:
        # The last block is padded after all numbers of the row, so that ties go to the row's numbers.
        size, width, length = _BLOCK, 1, width * length
        x = jnp.pad(x.reshape(rows, 1, -1), ((0, 0), (0, 0), (0, -length % size)), constant_values=-jnp.inf)
    blocks = x.reshape(rows, width, -1, size)
    count = blocks.shape[2]
    chosen = jnp.sort(jax.lax.top_k(jnp.max(blocks, axis=-1).reshape(rows, -1), k)[1], axis=-1)
    numbers = jax.vmap(lambda parts, i: parts[i // count, i % count])(blocks, chosen)
    values, places = jax.lax.top_k(numbers.reshape(rows, -1), k)
    return values, jnp.take_along_axis(chosen, places // size, axis=-1) * size + places % size


def _pick(x: Array, index: Int[Array, 'B K']) -> Array:
    """Takes the places `index` of the second axis of x [B W ...]."""
    return jax.vmap(lambda rows, i: rows[i])(x, index)


def _freeze(before: _Beam, grown: _Beam, limits: Int[Array, 'B'], alpha: float, best: int) -> _Beam:
    """Undoes the step in sentences that were already done, and marks those that are done now."""
    keep = functools.partial(cache.choose_rows, before.done)
    names = ('alive', 'alive_logp', 'complete', 'complete_score')
    grown = grown._replace(**{n: keep(getattr(before, n), getattr(grown, n)) for n in names})
    # log p only falls, and the penalty is greatest at the limit, so no living hypothesis exceeds this.
    bound = grown.alive_logp[:, 0] / length_penalty(limits, alpha)
    beaten = grown.complete_score[:, best - 1] >= bound
    return grown._replace(done=before.done | beaten | (grown.length >= limits))


def _rank(search: _Beam, limits: Int[Array, 'B'], alpha: float, best: int) -> Hypotheses:
    """Ranks complete hypotheses first, then living ones."""
    finished = search.complete_score > -jnp.inf
    living = search.alive_logp / length_penalty(limits, alpha)[:, None]
    tokens = jnp.concatenate([search.complete, search.alive], axis=1)
    scores = jnp.concatenate([search.complete_score, living], axis=1)
    # 0 complete, 1 living, 2 an empty place for a complete hypothesis.
    rank = jnp.concatenate([jnp.where(finished, 0, 2), jnp.ones_like(finished, int)], axis=1)
    order = jnp.argsort(rank, axis=1, stable=True)[:, :best]
    return Hypotheses(_pick(tokens, order), _pick(scores, order))


def filter_logits(
    logits: Float[Array, 'B V'], temperature: float, top_k: int, top_p: float
) -> Float[Array, 'B V']:
    """Divides logits by the temperature, but returns -inf outside the `top_k` likeliest and the nucleus.

    The nucleus is the smallest set of likeliest pieces, among those that `top_k` leaves, whose probabilities
    sum to at least `top_p` (Holtzman et al. 2020). `top_k=0` and `top_p=1.0` leave all pieces. Pieces that
    tie with the last one stay, too.
    """
    logits = logits / temperature
    if top_k:
        # Without the barrier, XLA for CPUs sorts all logits.
        highest, _ = jax.lax.optimization_barrier(jax.lax.top_k(logits, top_k))
        logits = jnp.where(logits < highest[:, -1:], -jnp.inf, logits)
    if top_p < 1.0:
        descending = _descending(logits)
        mass = jnp.cumsum(jax.nn.softmax(descending, axis=-1), axis=-1)
        # The first piece that reaches the mass still belongs to the nucleus.
        size = jnp.sum(mass < top_p, axis=-1, keepdims=True)
        lowest = jnp.take_along_axis(descending, size, axis=-1)
        logits = jnp.where(logits < lowest, -jnp.inf, logits)
    return logits


def _descending(x: Float[Array, 'B V']) -> Float[Array, 'B V']:
    """Sorts each row as integers, which XLA for CPUs compares several times as fast as floats."""
    # The bits of negative floats have the opposite order.
    ordered = lambda bits: jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    bits = jnp.sort(ordered(jax.lax.bitcast_convert_type(x, jnp.int32)), axis=-1, descending=True)
    return jax.lax.bitcast_convert_type(ordered(bits), jnp.float32)


def write(
    step: Step, rooms: Sequence[Room], limits: Int[Array, 'B'], choose: Choice, keys: Array | None = None
) -> Hypotheses:
    """Writes one output per sentence, piece by piece.

    Args:
      step, rooms, limits: as for `beam_search`.
      choose: `(log p [B V], place in the output, keys) -> pieces [B]`.
      keys: a random key per sentence, for `choose`.
    """
    sentences = limits.shape[0]

    def grow(constants: object, extras: tuple, written: _Written) -> _Written:
        limits, keys = extras
        candidates, model = step(constants, written.model, written.last)
        token = choose(candidates, written.length, keys).astype(jnp.int32)
        token = jnp.where(written.done, START, token)
        gain = jnp.take_along_axis(candidates, token[:, None], axis=-1)[:, 0]
        length = written.length + 1
        return _Written(
            length=length,
            tokens=written.tokens.at[:, written.length].set(token),
            logp=jnp.where(written.done, written.logp, written.logp + gain),
            last=token,
            done=written.done | (token == EOS) | (length >= limits),
            model=model,
        )

    initial = _Written(
        length=jnp.int32(0),
        tokens=jnp.zeros((sentences, rooms[-1].length), jnp.int32),
        logp=jnp.zeros(sentences),
        last=jnp.full(sentences, START, jnp.int32),
        done=jnp.zeros(sentences, bool),
        model=rooms[0].state,
    )
    written = _run(grow, rooms, (limits, keys), initial, width=1)
    return Hypotheses(written.tokens[:, None], written.logp[:, None])


def likeliest(logp: Float[Array, 'B V'], place: Int[Array, ''], keys: None) -> Int[Array, 'B']:
    """Chooses the likeliest piece, as greedy search does."""
    del place, keys
    # As argmax, which takes XLA for CPUs four times as long as these two reductions.
    is_highest = logp == jnp.max(logp, axis=-1, keepdims=True)
    pieces = jax.lax.broadcasted_iota(jnp.int32, logp.shape, 1)
    return jnp.min(jnp.where(is_highest, pieces, logp.shape[1] - 1), axis=-1)


def sampler(temperature: float, top_k: int, top_p: float) -> Choice:
    """Returns sampling's choice. Each sentence has its own key, so draws do not depend on other sentences."""

    def choose(logp, place, keys):
        filtered = filter_logits(logp, temperature, top_k, top_p)
        here = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
        # As jax.random.categorical, but without its argmax.
        noise = jax.vmap(lambda key: jax.random.gumbel(key, filtered.shape[1:]))(here)
        return likeliest(filtered + noise, place, None)

    return choose
