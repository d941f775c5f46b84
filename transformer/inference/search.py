"""Greedy search, sampling and the paper's beam search over the model contract (§6.1).

Nothing here knows a model: a search takes `step` and what `start` returned. Lengths and limits are in
output pieces and count the end of the sentence. The results of a sentence do not depend on other sentences,
but for rounding, where the number of rows differs.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.nn import cache
from transformer.tokens import EOS, START

# With at least `_MANY` sentences, and at most one in `_FEWER` not done, those that are not done move to the
# larger room without the others.
_MANY, _FEWER = 16, 4
_BLOCK = 64  # most numbers of a block, whose maxima `top_k` compares first
Choice = Callable[[Float[Array, 'B V'], Int[Array, ''], Array | None], Int[Array, 'B']]
Step = Callable[[object, object, Int[Array, 'R']], tuple[Float[Array, 'R V'], object]]


class Hypotheses(NamedTuple):
    """The outputs of each sentence, best first.

    tokens: up to EOS, then padding. scores: what is maximised, log p / ((5 + n)/6)^alpha in beam search
    and log p otherwise. finished: whether EOS was reached within the limit.
    """

    tokens: Int[Array, 'B W L']
    scores: Float[Array, 'B W']
    finished: Bool[Array, 'B W']


class Room(NamedTuple):
    """What a model's `start` gave: constants, and a state with room for `length` pieces.

    States with more room differ from it in longer axes alone, which begin as zeros.
    """

    length: int
    constants: object
    state: object


def length_penalty(length: Int[Array, '*B'] | int, alpha: float) -> Float[Array, '*B']:
    """((5 + n)/6)^alpha (Wu et al. 2016, eq. 14)."""
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def log_probabilities(logits: Float[Array, '*B V'], allowed: Bool[Array, 'V']) -> Float[Array, '*B V']:
    """log softmax; -inf for pieces that may never be written, whose mass no other piece gets."""
    logp = jax.nn.log_softmax(logits, axis=-1)
    return jnp.where(jnp.expand_dims(allowed, range(logp.ndim - 1)), logp, -jnp.inf)


class _Beam(NamedTuple):
    """A beam search after `length` steps; `model` is the state of its hypotheses, in some room."""

    length: Int[Array, '']
    alive: Int[Array, 'B W L']
    alive_logp: Float[Array, 'B W']
    complete: Int[Array, 'B W L']
    complete_score: Float[Array, 'B W']
    done: Bool[Array, 'B']
    model: object


class _Written(NamedTuple):
    """One output of each sentence after `length` steps; `last` is its last piece, `model` as in `_Beam`."""

    length: Int[Array, '']
    tokens: Int[Array, 'B L']
    logp: Float[Array, 'B']
    last: Int[Array, 'B']
    done: Bool[Array, 'B']
    model: object


_Search = _Beam | _Written


def beam_search(
    step: Step,
    rooms: Sequence[Room],
    limits: Int[Array, 'B'],
    allowed: Bool[Array, 'V'],
    *,
    beam: int,
    alpha: float,
    best: int = 1,
) -> Hypotheses:
    """The paper's beam search, as the released code does it.

    Each step takes the 2·beam likeliest extensions of the living hypotheses, so that `beam` of them go
    on even where `beam` end. A sentence stops at its limit, or once no living hypothesis can still
    beat its `best` best complete ones. If fewer than `best` are complete, living ones follow them.

    Args:
      rooms: of one hypothesis a sentence, first axis B; the search moves from one to the next, longer one.
      limits: the longest output of each sentence, at most that of the last room.
      best: how many hypotheses are wanted, at most `beam`.
    """
    sentences, width = limits.shape[0], beam
    blank = jnp.zeros((sentences, width, rooms[-1].length), jnp.int32)
    nothing = jnp.full((sentences, width), -jnp.inf)
    initial = _Beam(
        length=jnp.int32(0),
        alive=blank,
        # All hypotheses are equal at first: only one lives.
        alive_logp=nothing.at[:, 0].set(0.0),
        complete=blank,
        complete_score=nothing,
        done=jnp.zeros(sentences, bool),
        model=cache.spread(rooms[0].state, width),
    )

    def grow(constants: object, limits: Int[Array, 'B'], search: _Beam) -> _Beam:
        length, sentences = search.length + 1, len(limits)
        last = search.alive[:, :, jnp.maximum(search.length - 1, 0)]
        tokens = jnp.where(search.length == 0, START, last)
        logits, model = step(constants, search.model, tokens.reshape(-1))
        logp = log_probabilities(logits.reshape(sentences, width, -1), allowed)
        size = logp.shape[-1]
        total = (search.alive_logp[:, :, None] + logp).reshape(sentences, width * size)
        extended_logp, chosen = top_k(total, min(2 * width, width * size))
        parent, token = chosen // size, chosen % size
        extended = _pick(search.alive, parent).at[:, :, search.length].set(token)

        ended = token == EOS
        score = jnp.where(ended, extended_logp / length_penalty(length, alpha), -jnp.inf)
        all_scores = jnp.concatenate([search.complete_score, score], axis=1)
        all_complete = jnp.concatenate([search.complete, extended], axis=1)
        complete_score, kept = jax.lax.top_k(all_scores, width)

        alive_logp, going_on = jax.lax.top_k(jnp.where(ended, -jnp.inf, extended_logp), width)
        rows = jnp.arange(sentences)[:, None] * width + _pick(parent, going_on)
        grown = _Beam(
            length=length,
            alive=_pick(extended, going_on),
            alive_logp=alive_logp,
            complete=_pick(all_complete, kept),
            complete_score=complete_score,
            done=search.done,
            model=cache.continued(model, rows.reshape(-1)),
        )
        return _freeze(search, grown, limits, alpha, best)

    return _ranked(_searched(grow, rooms, limits, initial, width), limits, alpha, best)


def _searched(grow: Callable, rooms: Sequence[Room], own: object, search: _Search, width: int) -> _Search:
    """The search once all sentences are done, or the last room is full; without its `model`.

    Args:
      grow: `(constants, own, search) -> search`, one step.
      own: what else each sentence has, arrays with first axis B. The fields of a search have it too, except
        `length`, and `model`, the state of B·width hypotheses.
      search: in the first of the rooms.
    """
    room, *larger = rooms
    going_on = lambda search: ~jnp.all(search.done) & (search.length < room.length)
    search = jax.lax.while_loop(going_on, functools.partial(grow, room.constants, own), search)
    if not larger:
        return search._replace(model=None)

    sentences = search.done.shape[0]
    few = sentences // _FEWER

    def go_on(rooms, own, search):
        search = search._replace(model=cache.moved(search.model, rooms[0].state, width))
        return _searched(grow, rooms, own, search, width)

    def alone(search):
        living = jnp.argsort(search.done, stable=True)[:few]
        pick = lambda tree: jax.tree.map(lambda x: x[living], tree)
        every = search._replace(length=None, model=None)
        model = cache.of_sentences(search.model, living, width)
        part = pick(every)._replace(length=search.length, model=model)
        rooms = [Room(room.length, *pick((room.constants, room.state))) for room in larger]
        part = go_on(rooms, pick(own), part)
        found = jax.tree.map(lambda x, new: x.at[living].set(new), every, part._replace(length=None))
        return found._replace(length=part.length)

    together = functools.partial(go_on, larger, own)
    if sentences < _MANY:
        return together(search)
    return jax.lax.cond(jnp.sum(~search.done) <= few, alone, together, search)


def top_k(x: Float[Array, 'B N'], k: int) -> tuple[Float[Array, 'B k'], Int[Array, 'B k']]:
    """`jax.lax.top_k`, which on CPUs is several times as slow where rows are long.

    The k greatest numbers stand in the k blocks with the greatest maxima. Ties go to the lower index, of
    blocks as of numbers.
    """
    rows, width = x.shape
    if width <= 4 * k * _BLOCK:
        return tuple(jax.lax.top_k(x, k))
    # Where blocks fill the row, nothing is copied. What fills up the last one otherwise stands behind all
    # numbers of the row, so that it is not among the k where numbers are equal.
    size = next((n for n in range(_BLOCK, _BLOCK // 2, -1) if width % n == 0), _BLOCK)
    filled = jnp.pad(x, ((0, 0), (0, -width % size)), constant_values=-jnp.inf)
    blocks = filled.reshape(rows, -1, size)
    chosen = jnp.sort(jax.lax.top_k(jnp.max(blocks, axis=-1), k)[1], axis=-1)
    values, places = jax.lax.top_k(_pick(blocks, chosen).reshape(rows, -1), k)
    return values, jnp.take_along_axis(chosen, places // size, axis=-1) * size + places % size


def _pick(x: Array, index: Int[Array, 'B K']) -> Array:
    """x [B W ...] at `index` of its second axis."""
    return jax.vmap(lambda rows, i: rows[i])(x, index)


def _freeze(before: _Beam, grown: _Beam, limits: Int[Array, 'B'], alpha: float, best: int) -> _Beam:
    """Undoes the step in sentences that were done before it, and marks those that are done now."""
    keep = lambda old, new: jnp.where(jnp.expand_dims(before.done, range(1, new.ndim)), old, new)
    names = ('alive', 'alive_logp', 'complete', 'complete_score')
    grown = grown._replace(**{n: keep(getattr(before, n), getattr(grown, n)) for n in names})
    # log p only falls, and the penalty is greatest at the limit, so no living hypothesis exceeds this.
    bound = grown.alive_logp[:, 0] / length_penalty(limits, alpha)
    beaten = grown.complete_score[:, best - 1] >= bound
    return grown._replace(done=before.done | beaten | (grown.length >= limits))


def _ranked(search: _Beam, limits: Int[Array, 'B'], alpha: float, best: int) -> Hypotheses:
    """Complete hypotheses first, then living ones."""
    finished = search.complete_score > -jnp.inf
    living = search.alive_logp / length_penalty(limits, alpha)[:, None]
    tokens = jnp.concatenate([search.complete, search.alive], axis=1)
    scores = jnp.concatenate([search.complete_score, living], axis=1)
    # 0 complete, 1 alive, 2 a place for a complete one that stayed empty.
    rank = jnp.concatenate([jnp.where(finished, 0, 2), jnp.ones_like(finished, int)], axis=1)
    order = jnp.argsort(rank, axis=1, stable=True)[:, :best]
    return Hypotheses(_pick(tokens, order), _pick(scores, order), _pick(rank, order) == 0)


def filter_logits(
    logits: Float[Array, 'B V'], temperature: float, top_k: int, top_p: float
) -> Float[Array, 'B V']:
    """Logits divided by the temperature; -inf outside the `top_k` likeliest and outside the nucleus.

    The nucleus is the smallest set of likeliest pieces, among those that `top_k` leaves, with at least
    the mass `top_p` (Holtzman et al. 2020). `top_k=0` and `top_p=1.0` leave all pieces. Pieces that tie
    with the last one kept are kept too.
    """
    logits = logits / temperature
    if top_k:
        lowest = jax.lax.top_k(logits, top_k)[0][:, -1:]
        logits = jnp.where(logits < lowest, -jnp.inf, logits)
    if top_p < 1.0:
        descending = jnp.sort(logits, axis=-1, descending=True)
        mass = jnp.cumsum(jax.nn.softmax(descending, axis=-1), axis=-1)
        # The first piece that reaches the mass still belongs to the nucleus.
        size = jnp.sum(mass < top_p, axis=-1, keepdims=True)
        lowest = jnp.take_along_axis(descending, size, axis=-1)
        logits = jnp.where(logits < lowest, -jnp.inf, logits)
    return logits


def sample(
    step: Step,
    rooms: Sequence[Room],
    limits: Int[Array, 'B'],
    allowed: Bool[Array, 'V'],
    choose: Choice,
    keys: Array | None = None,
) -> Hypotheses:
    """Writes one piece after the other.

    Args:
      rooms, limits: as for `beam_search`.
      choose: takes log probabilities [B V], the place in the output, and the keys; gives the pieces.
      keys: of the sentences.
    """
    sentences = limits.shape[0]

    def grow(constants: object, own: tuple, written: _Written) -> _Written:
        limits, keys = own
        logits, model = step(constants, written.model, written.last)
        candidates = log_probabilities(logits, allowed)
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
    found = _searched(grow, rooms, (limits, keys), initial, width=1)
    finished = jnp.any(found.tokens == EOS, axis=1)
    return Hypotheses(found.tokens[:, None], found.logp[:, None], finished[:, None])


def likeliest(logp: Float[Array, 'B V'], place: Int[Array, ''], keys: None) -> Int[Array, 'B']:
    """The choice of greedy search: the likeliest piece."""
    del place, keys
    return jnp.argmax(logp, axis=-1)


def drawn(temperature: float, top_k: int, top_p: float) -> Choice:
    """The choice of sampling. Each sentence has its own key, so that others do not change its draws."""

    def choose(logp, place, keys):
        filtered = filter_logits(logp, temperature, top_k, top_p)
        here = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
        return jax.vmap(jax.random.categorical)(here, filtered)

    return choose
