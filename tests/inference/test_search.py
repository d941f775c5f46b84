"""Searches over hand-drawn lattices and against exhaustive search."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest
import random_models

from transformer.config import config_dict, resolve
from transformer.inference import generate
from transformer.inference.search import (
    Hypotheses,
    Room,
    beam_search,
    filter_logits,
    length_penalty,
    likeliest,
    restrict,
    sampler,
    top_k,
    write,
)
from transformer.nn import models
from transformer.tokens import EOS, PAD, Tokens


def lattice_step(table: dict[tuple[int, ...], dict[int, float]], size: int, depth: int):
    """Makes a step whose distribution depends on all tokens so far; the state is the prefix [R depth]."""
    prefixes = jnp.asarray([list(p) + [0] * (depth - len(p)) for p in table])
    lengths = jnp.asarray([len(p) for p in table])
    logp = np.full((len(table), size), -np.inf, np.float32)
    for row, following in zip(logp, table.values(), strict=True):
        for token, probability in following.items():
            row[token] = np.log(probability)

    def step(constants, state, tokens):
        del constants
        length, prefix = state['length'], state['prefix']
        # The first token is the start, which is no part of the prefix.
        place = jnp.arange(prefix.shape[1])[None, :] == length[:, None] - 1
        prefix = jnp.where(place, tokens[:, None], prefix)
        same = (prefixes[None, :, : prefix.shape[1]] == prefix[:, None]).all(-1) & (
            lengths[None] == length[:, None]
        )
        logits = jnp.where(same.any(-1, keepdims=True), jnp.asarray(logp)[same.argmax(-1)], 0.0)
        return logits, {'length': length + 1, 'prefix': prefix}

    def rooms(rows, *sizes):
        """Makes a room of each size, as `start` returns them."""
        state = lambda room: {
            'length': jnp.zeros(rows, jnp.int32),
            'prefix': jnp.zeros((rows, room), jnp.int32),
        }
        return [Room(room, None, state(room)) for room in sizes or [depth - 1]]

    return step, rooms


def search(lattice, *, size=5, limit=4, sentences=1, sizes=(), **options) -> Hypotheses:
    step, rooms = lattice_step(lattice, size, limit + 1)
    limits = jnp.full(sentences, limit)
    step = restrict(step, jnp.ones(size, bool))
    run = functools.partial(beam_search, step, limits=limits, **options)
    return jax.jit(lambda: run(rooms(sentences, *sizes)))()


def test_pruning():
    # The best sentence, 3 EOS of 0.4 · 0.9, starts behind the better first step 2 of 0.6: greedy
    # search loses it, two hypotheses find it.
    lattice = {(): {2: 0.6, 3: 0.4}, (2,): {EOS: 0.5, 4: 0.5}, (2, 4): {EOS: 1.0}, (3,): {EOS: 0.9, 4: 0.1}}
    narrow, wide = search(lattice, beam=1, alpha=0.0), search(lattice, beam=2, alpha=0.0)
    assert narrow.tokens[0, 0].tolist() == [2, 1, 0, 0]
    assert float(narrow.scores[0, 0]) == pytest.approx(np.log(0.3), rel=1e-5)
    assert wide.tokens[0, 0].tolist() == [3, 1, 0, 0]
    assert float(wide.scores[0, 0]) == pytest.approx(np.log(0.36), rel=1e-5)


def test_a_beam_of_ends_leaves_as_many_living():
    # After two steps the two likeliest, of 0.3 and 0.28, have ended. The third, of 0.24, wins by its length.
    lattice = {(): {2: 0.6, 3: 0.4}, (2,): {EOS: 0.5, 4: 0.4, 3: 0.1}, (3,): {EOS: 0.7, 4: 0.3}}
    found = search(lattice | {(2, 4): {EOS: 1.0}, (3, 4): {EOS: 1.0}}, beam=2, alpha=2.0)
    assert found.tokens[0, 0].tolist() == [2, 4, 1, 0]


def test_length_penalty():
    # Short: 0.30 of 2 pieces; long: 0.28 of 4. Without the penalty short wins, with 0.6 long.
    lattice = {
        (): {2: 0.3, 3: 0.28, 4: 0.42},
        (2,): {EOS: 1.0},
        (3,): {3: 1.0},
        (3, 3): {3: 1.0},
        (3, 3, 3): {EOS: 1.0},
        (4,): {2: 0.5, 3: 0.5},
    }
    plain, normed = search(lattice, beam=4, alpha=0.0), search(lattice, beam=4, alpha=0.6)
    assert plain.tokens[0, 0].tolist() == [2, 1, 0, 0]
    assert normed.tokens[0, 0].tolist() == [3, 3, 3, 1]
    assert float(normed.scores[0, 0]) == pytest.approx(np.log(0.28) / ((5 + 4) / 6) ** 0.6, rel=1e-5)
    assert float(length_penalty(1, 0.6)) == pytest.approx(1.0)


def test_stops_as_soon_as_nothing_can_win():
    # Behind two steps the complete hypothesis of 0.9 is out of reach: the search must not go on.
    lattice = {(): {2: 0.9, 3: 0.1}, (2,): {EOS: 1.0}, (3,): {3: 1.0}}
    steps = []
    step, rooms = lattice_step(lattice, 5, 41)

    def counting(constants, model, tokens):
        jax.debug.callback(lambda: steps.append(1))
        return step(constants, model, tokens)

    counting = restrict(counting, jnp.ones(5, bool))
    found = jax.jit(lambda: beam_search(counting, rooms(1, 10, 40), jnp.array([40]), beam=2, alpha=0.6))()
    jax.effects_barrier()
    assert found.tokens[0, 0, :3].tolist() == [2, 1, 0]
    assert len(steps) == 2


def test_outputs_have_at_most_50_pieces_more_than_their_input():
    """Here of a model that never writes the end; the end of the input counts (§6.1)."""
    changes = {'model.N': 1, 'model.d_model': 8, 'model.d_ff': 8, 'model.h': 2, 'data.pieces': 40}
    config = resolve(config_dict(changes | {'model.softmax_bias': True, 'model.vocab_size': 42}))
    params = programs.initialize(config, jax.random.key(0))
    # The last two rows are of no piece.
    bias = params['softmax_bias'].at[EOS].set(-1e6).at[-2:].set(1e6)
    params = params | {'softmax_bias': bias}
    rows = random_models.rows_of([[[5, 6, EOS]], [[5, 6, 7, 8, EOS]]], 7)
    asked = generate.SearchOptions(config.decode, best=1, extend=False)
    search = jax.jit(functools.partial(generate.search_rows, config, asked, 40))
    found = search(params, jax.random.key(0), (rows, jnp.arange(2)))
    assert (found.tokens[:, 0] != PAD).sum(axis=1).tolist() == [3 + 50, 5 + 50]
    assert found.tokens.max() < 40


def test_a_sentence_without_an_end_gives_what_lives():
    of_one = {(n,) * k: {n: 1.0} for n in (2, 3) for k in (1, 2, 3)}
    found = search({(): {2: 0.6, 3: 0.4}} | of_one, beam=2, alpha=0.6)
    assert found.tokens[0, 0].tolist() == [2, 2, 2, 2]
    assert float(found.scores[0, 0]) == pytest.approx(np.log(0.6) / ((5 + 4) / 6) ** 0.6, rel=1e-5)


def random_lattice(size: int, depth: int, seed: int) -> dict[tuple[int, ...], dict[int, float]]:
    rng = np.random.default_rng(seed)
    prefixes = itertools.chain.from_iterable(
        itertools.product(range(2, size), repeat=n) for n in range(depth)
    )
    return {p: dict(enumerate(rng.dirichlet(np.ones(size - 1)), start=1)) for p in prefixes}


@pytest.mark.parametrize('alpha', [0.0, 0.6, 2.0])
@pytest.mark.parametrize('best', [1, 5])
def test_a_wide_beam_is_exhaustive_search(alpha, best):
    size, limit = 5, 4
    for seed in range(4):
        lattice = random_lattice(size, limit, seed)
        every = []
        for prefix in lattice:
            probability = 1.0
            for i, token in enumerate((*prefix, EOS)):
                probability *= lattice[prefix[:i]][token]
            score = np.log(probability) / ((5 + len(prefix) + 1) / 6) ** alpha
            every.append((score, [*prefix, EOS, *[0] * (limit - len(prefix) - 1)]))
        every.sort(reverse=True)
        found = search(lattice, beam=64, alpha=alpha, best=best)
        assert found.tokens[0].tolist() == [tokens for _, tokens in every[:best]]
        np.testing.assert_allclose(found.scores[0], [s for s, _ in every[:best]], rtol=1e-4)


@pytest.mark.parametrize('sizes', [(1, 4), (2, 3, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize('seed', [1, 2])
def test_a_search_moves_to_rooms_for_longer_outputs(sizes, seed):
    # A state that is searched beyond its room loses tokens, which changes what follows.
    lattice = random_lattice(5, 4, seed)
    options = {'sentences': 2, 'beam': 3, 'alpha': 0.0, 'best': 3}
    whole, moved = search(lattice, **options), search(lattice, sizes=sizes, **options)
    np.testing.assert_array_equal(moved.tokens, whole.tokens)
    np.testing.assert_allclose(moved.scores, whole.scores, rtol=1e-6)
    step, rooms = lattice_step(lattice, 5, 5)
    step = restrict(step, jnp.ones(5, bool))
    draw = lambda *sizes: jax.jit(lambda: write(step, rooms(2, *sizes), jnp.array([4, 3]), likeliest))()
    np.testing.assert_array_equal(draw(*sizes).tokens, draw(4).tokens)


@pytest.mark.parametrize('lengths', [{3: 8, 11: 6}, {i: 7 for i in range(5)}])
def test_few_living_sentences_go_on_without_the_others(lengths):
    """Each sentence knows its own output, of two pieces or more, by its constants, its state and its keys."""
    sentences, sizes, seen = 16, (3, 8), []
    wanted = np.random.default_rng(0).integers(2, 6, size=(sentences, 8))
    ends = np.array([lengths.get(i, 2) for i in range(sentences)])
    wanted[np.arange(sentences), ends - 1] = EOS
    expected = np.where(np.arange(8) < ends[:, None], wanted, 0)

    def step(constants, state, tokens):
        place, output = state['place'], state['output']
        jax.debug.callback(lambda place: seen.append((int(place[0]), len(place))), place)
        row = jnp.arange(len(place))
        likely = output[row, place]
        agree = constants[row // (len(row) // len(constants)), place] == likely
        return 9.0 * jax.nn.one_hot(jnp.where(agree, likely, 0), 6), {'place': place + 1, 'output': output}

    def found(search, *options):
        seen.clear()
        state = {'place': jnp.zeros(sentences, int), 'output': jnp.array(wanted)}
        rooms = [Room(size, jnp.array(wanted), state) for size in sizes]
        limits, written = jnp.where(ends == 7, 7, 8), restrict(step, jnp.arange(6) > 0)
        tokens = jax.jit(lambda: search(written, rooms, limits, *options).tokens)()
        jax.effects_barrier()
        return np.asarray(tokens[:, 0]), {rows for length, rows in seen if length >= sizes[0]}

    few = 4 if len(lengths) <= 4 else 16
    beams = functools.partial(beam_search, beam=2, alpha=0.6)
    by_keys = lambda logp, place, keys: keys[:, place]
    tokens, rows = found(beams)
    np.testing.assert_array_equal(tokens, expected)
    assert rows == {2 * few}
    tokens, rows = found(write, by_keys, jnp.array(wanted))
    np.testing.assert_array_equal(tokens, expected)
    assert rows == {few}


@pytest.mark.parametrize(
    'variant',
    [{}, {'model.positions': 'relative'}, {'model.attention': 'local', 'model.attention_window': 2}],
    ids=str,
)
def test_steps_of_a_model_find_what_whole_rows_find(variant):
    """Each step of the second search computes the whole output anew, so it needs no keys of earlier ones."""
    sentences, width, sizes = 20, 6, (4, 10)
    sizes_of = {f'model.{name}': 16 for name in ('d_model', 'd_ff')} | {'model.N': 1, 'model.h': 2}
    config = resolve(config_dict({**sizes_of, 'model.vocab_size': 600, 'data.pieces': 600, **variant}))
    rng, model = np.random.default_rng(0), models.build(config)
    # Large enough that outputs depend on all that was written.
    variables = {
        'params': jax.tree.map(
            lambda x: 4 * x if x.ndim > 1 else x, programs.initialize(config, jax.random.key(0))
        )
    }
    lengths = rng.integers(1, width + 1, sentences)
    positions = lambda rows, length: jnp.broadcast_to(jnp.arange(length), (rows, length))
    inside = jnp.asarray(np.arange(width) < lengths[:, None], jnp.int32)
    pieces = jnp.asarray(rng.integers(3, 12, (sentences, width)))
    source = Tokens(pieces * inside, inside, positions(sentences, width))

    def whole(constants, state, tokens):
        last, output = state['length'] - 1, state['output']
        rows, room = output.shape
        output = jnp.where(jnp.arange(room)[None] == last[:, None], tokens[:, None], output)
        target = Tokens(output, jnp.ones_like(output), positions(rows, room))
        read = Tokens(*(jnp.repeat(x, rows // sentences, axis=0) for x in source))
        logits = model.apply(variables, {'source': read, 'target': target}, train=False)
        return logits[jnp.arange(rows), last + 1], {'length': last + 2, 'output': output}

    def searched(step, rooms):
        limits, step = jnp.asarray(np.minimum(2 * lengths, 10)), restrict(step, jnp.arange(600) > 0)
        return beam_search(step, rooms, limits, beam=4, alpha=0.6, best=4)

    @jax.jit
    def both():
        memory = model.apply(variables, source, method='encode')
        rooms = [Room(n, *model.apply(variables, memory, n, method='start')) for n in sizes]
        plain = lambda n: {'length': jnp.zeros(sentences, int), 'output': jnp.zeros((sentences, n), int)}
        step = functools.partial(model.apply, variables, method='step')
        return searched(step, rooms), searched(whole, [Room(10, None, plain(10))])

    found, expected = both()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)

    # Of several outputs that score as the worst one kept, rounding decides which are kept, and it decides the
    # order of any that score alike.
    def above_the_worst(hypotheses):
        scores = np.asarray(hypotheses.scores)
        clear = scores > scores[:, -1:] + 1e-4
        return [
            set(map(tuple, of[these])) for of, these in zip(np.asarray(hypotheses.tokens), clear, strict=True)
        ]

    assert above_the_worst(found) == above_the_worst(expected)
    assert sum(map(len, above_the_worst(found))) > 2 * sentences
    used = np.sum(np.asarray(found.tokens[:, 0]) != 0, axis=-1)
    assert used.min() < sizes[0] < used.max()


def test_sentences_of_a_batch_do_not_touch_each_other():
    lattice = random_lattice(5, 4, 7)
    step, rooms = lattice_step(lattice, 5, 5)
    step, options = restrict(step, jnp.ones(5, bool)), {'beam': 3, 'alpha': 0.6, 'best': 3}
    run = jax.jit(lambda limits: beam_search(step, rooms(limits.shape[0], 2, 4), limits, **options))
    together = run(jnp.array([2, 4, 3]))
    for i, limit in enumerate((2, 4, 3)):
        alone = run(jnp.array([limit]))
        np.testing.assert_array_equal(together.tokens[i], alone.tokens[0])
        np.testing.assert_allclose(together.scores[i], alone.scores[0], rtol=1e-6)
        assert (np.asarray(together.tokens[i]) != 0).sum(-1).max() <= limit


def test_what_is_not_allowed_is_never_written():
    lattice = {(): {2: 0.9, 3: 0.1}, (3,): {EOS: 1.0}}
    step, rooms = lattice_step(lattice, 5, 5)
    step = restrict(step, jnp.array([False, True, False, True, True]))
    found = beam_search(step, rooms(1), jnp.array([4]), beam=2, alpha=0.0)
    assert found.tokens[0, 0].tolist() == [3, 1, 0, 0]
    # The score stays the model's own.
    assert float(found.scores[0, 0]) == pytest.approx(np.log(0.1), rel=1e-5)


def test_greedy_takes_the_likeliest():
    lattice = random_lattice(5, 4, 3)
    step, rooms = lattice_step(lattice, 5, 5)
    found = write(restrict(step, jnp.ones(5, bool)), rooms(1), jnp.array([4]), likeliest)
    expected, score = [], 0.0
    while len(expected) < 4 and EOS not in expected:
        token, probability = max(lattice[tuple(expected)].items(), key=lambda pair: pair[1])
        expected.append(token)
        score += np.log(probability)
    assert found.tokens[0, 0].tolist() == expected + [0] * (4 - len(expected))
    assert float(found.scores[0, 0]) == pytest.approx(score, rel=1e-4)


# Short rows; blocks of 128, of 50 and of 61 in each part; no divisor, so padded after the whole row.
@pytest.mark.parametrize('shape', [(1, 5), (4, 512), (4, 640), (2, 5_000), (3, 1_220), (3, 1_009)])
@pytest.mark.parametrize('values', [3, 50, 10**6])
def test_top_k_of_long_rows(shape, values):
    """The first of equal numbers count, as in jax.lax.top_k."""
    rng, width = np.random.default_rng(sum(shape) + values), shape[0] * shape[1]
    x = rng.integers(values, size=(4, width)).astype(np.float32)
    x[0, : width // 2] = -np.inf
    x[1, rng.permutation(width)[3:]] = -np.inf
    k = min(8, width)
    found = top_k(jnp.asarray(x.reshape(4, *shape)), k)
    for ours, expected in zip(found, jax.lax.top_k(x, k), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_filter_by_top_k_and_top_p():
    logits = jnp.log(jnp.array([[0.1, 0.4, 0.3, 0.2]]))
    kept = lambda *options: np.isfinite(np.asarray(filter_logits(logits, *options)))[0].tolist()
    assert kept(1.0, 0, 1.0) == [True, True, True, True]
    assert kept(1.0, 2, 1.0) == [False, True, True, False]
    assert kept(1.0, 0, 0.65) == [False, True, True, False]
    assert kept(1.0, 0, 0.75) == [False, True, True, True]
    assert kept(1.0, 0, 1e-6) == [False, True, False, False]
    # A low temperature sharpens: 0.4^4 is most of the mass.
    assert kept(0.25, 0, 0.65) == [False, True, False, False]


def test_draws_are_filtered_and_differ_by_place():
    logp = jnp.log(jnp.array([[0.1, 0.4, 0.3, 0.2]] * 64))
    keys, place = jax.random.split(jax.random.key(0), 64), jnp.int32(0)
    for options in ((0.01, 0, 1.0), (1.0, 1, 1.0), (1.0, 0, 0.3)):
        assert set(sampler(*options)(logp, place, keys).tolist()) == {1}
    first, second = (sampler(1.0, 0, 1.0)(logp, place + n, keys).tolist() for n in (0, 1))
    assert first != second


def test_samples_follow_the_distribution_and_their_own_keys():
    lattice = {(): {2: 0.7, 3: 0.3}, (2,): {EOS: 1.0}, (3,): {EOS: 1.0}}
    step, rooms = lattice_step(lattice, 5, 5)

    @functools.partial(jax.jit, static_argnums=1)
    def draw(keys, rows):
        choose = sampler(1.0, 0, 1.0)
        limits = jnp.full(rows, 4)
        return write(restrict(step, jnp.ones(5, bool)), rooms(rows), limits, choose, keys).tokens[:, 0]

    keys = jax.random.split(jax.random.key(0), 4000)
    tokens = draw(keys, 4000)
    assert float((tokens[:, 0] == 2).mean()) == pytest.approx(0.7, abs=0.03)
    np.testing.assert_array_equal(draw(keys[5:8], 3), tokens[5:8])
