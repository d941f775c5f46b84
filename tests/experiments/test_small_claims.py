"""Claims about small models and single layers: their measurements by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

from experiments.claims import (
    additive,
    averaging,
    batch_norm,
    claim,
    composition,
    content,
    convolution,
    dropout,
    ensemble,
    exploding,
    extrapolation,
    few_shot,
    horizon,
    lookup,
    negatives,
    noise_scale,
    pieces,
    power_law,
    rank,
    recall,
    rotary,
    similarity,
    small_language,
    smoother,
    tied,
    toys,
    values,
    wavelengths,
)
from experiments.claims import distance as distance_claim
from experiments.claims import distance_bias as bias_claim
from experiments.claims.claim import config_of
from transformer import config as configs
from transformer.config import declare
from transformer.data.generated.scenes import captions, reader, world
from transformer.data.rows import padded
from transformer.data.trees import Constituent
from transformer.nn.layers import Norm


def test_gradients_of_a_linear_recurrence(monkeypatch):
    """Against powers of W, and the sum of outer products over the steps."""
    for name, size in (('WIDTH', 4), ('ROWS', 2), ('NEAR', 2), ('FAR', 5)):
        monkeypatch.setattr(exploding, name, size)
    found = exploding.growth(1.5, 3)
    rng = np.random.default_rng(3)
    w = rng.normal(size=(4, 4))
    w *= 1.5 / np.abs(np.linalg.eigvals(w)).max()
    inputs, v = rng.normal(size=(6, 2, 4)), rng.normal(size=(2, 4))
    back = [v @ np.linalg.matrix_power(w, distance) for distance in range(6)]
    rate = np.log(np.linalg.norm(back[5]) / np.linalg.norm(back[2])) / 3
    states = [np.zeros((2, 4))]
    for x in inputs:
        states.append(states[-1] @ w.T + x)
    of_w = sum(back[5 - t].T @ states[t] for t in range(6))
    np.testing.assert_allclose(found['rate'], rate)
    np.testing.assert_allclose(found['norm'], np.linalg.norm(of_w))
    np.testing.assert_allclose(found['clipped'], 1.0)


def test_full_attention_is_linear_in_its_values_alone(monkeypatch):
    monkeypatch.setattr(values, 'LENGTH', 5)
    values._attend.cache_clear()
    found = values.differences('full', 1)
    values._attend.cache_clear()
    assert found['value'] < 1e-6 and min(found['query'], found['key']) > 0.1


@pytest.mark.parametrize('change', composition.CHANGES)
def test_true_and_false_sentences(monkeypatch, change):
    """One sentence holds and one does not; the false one names what the training has."""
    monkeypatch.setattr(composition, 'PICTURES', 250)
    split, kind = composition.CHANGES[change]
    facts = {
        picture.tobytes(): captions.facts(split, i)
        for i, picture in enumerate(captions.scenes(split, 0, 250))
    }
    pairs = composition._pairs(split, kind)
    assert 60 < len(pairs) <= 250
    for picture, true, false in pairs:
        assert captions.holds(true, facts[picture.tobytes()], 'en')
        assert captions.holds(false, facts[picture.tobytes()], 'en') is False
        looks = [reader.read(text, 'en').mentions[0].look for text in (true, false)]
        assert (looks[0] in world.HELD_OUT) == (split == 'unseen') and looks[1] not in world.HELD_OUT
        assert (looks[0] == looks[1]) == (kind == 'relation')


@pytest.mark.parametrize('similarity', lookup.SIMILARITIES)
def test_what_a_dictionary_returns(similarity):
    found = lookup.errors(similarity, 4, np.random.default_rng(2))
    rng = np.random.default_rng(2)
    keys, stored = rng.normal(size=(64, 16)), rng.normal(size=(64, 8))
    if similarity == 'cosine':
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    products = keys @ keys.T
    weights = np.exp(4 * (products - products.max(axis=1, keepdims=True)))
    read = weights / weights.sum(axis=1, keepdims=True) @ stored
    errors = np.linalg.norm(read - stored, axis=1) / np.linalg.norm(stored, axis=1)
    np.testing.assert_allclose(found['error'], errors, rtol=1e-3, atol=1e-5)
    assert found['nearest'] == (products.argmax(axis=1) == np.arange(64)).tolist()


def test_statistics_of_a_batch():
    """Each feature has mean 0 and variance 1 over a group's rows and positions, before scale and bias."""
    x = np.random.default_rng(0).normal(2.0, 3.0, (4, 3, 5)).astype(np.float32)
    scale, bias = np.arange(1.0, 6.0), np.arange(5.0)
    params = {'layer': {'scale': jnp.asarray(scale), 'bias': jnp.asarray(bias)}}
    norm = Norm(config_of(batch_norm.MODEL).model)
    with batch_norm.nn.intercept_methods(batch_norm.by_batch(2)):
        found = norm.apply({'params': params}, jnp.asarray(x))
    for group in (slice(0, 2), slice(2, 4)):
        mean, deviation = x[group].mean(axis=(0, 1)), x[group].std(axis=(0, 1))
        np.testing.assert_allclose(found[group], (x[group] - mean) / deviation * scale + bias, atol=1e-4)


def test_what_other_rows_change(monkeypatch):
    """By logits that add a tenth of the batch's mean token, or none."""
    for share in (0.0, 0.1):
        logits = lambda params, batch, share=share: (
            batch['text'].tokens[..., None] + share * batch['text'].tokens[1:].mean()
        )
        monkeypatch.setattr(batch_norm, '_programs', lambda rows, logits=logits: (logits, None))
        rng = np.random.default_rng([1, 1])
        one, two = (extrapolation.texts(rng, 64, 32)['text'].tokens for _ in range(2))
        expected = share * abs(one[1:].mean() - two[1:].mean()) * 32**0.5
        expected /= np.linalg.norm(one[0] + share * one[1:].mean())
        np.testing.assert_allclose(batch_norm.change(2, None, 1), expected)


def test_checkpoints_of_a_training():
    config = config_of(toys.LANGUAGE_MODEL | {'model.d_model': 8, 'model.d_ff': 8, 'model.h': 2})
    batches = [extrapolation.texts(np.random.default_rng(i), 8, 8) for i in range(2)]
    found = [jax.device_get(params) for params in claim.checkpoints(config, batches, 1)]
    for count, params in enumerate(found, 1):
        jax.tree.map(np.testing.assert_array_equal, params, claim.train(config, batches[:count], 1))
    assert len(found) == 2


def test_checkpoints_that_are_averaged(monkeypatch):
    """The fifth-last to the last, ten updates apart; parameters are the number of the update."""
    steps = lambda config, batches, seed: ({'w': np.float32(step)} for step in range(1, 151))
    monkeypatch.setattr(claim, 'checkpoints', steps)
    monkeypatch.setattr(averaging, 'prepared', lambda config: None)
    monkeypatch.setattr(small_language, 'loss', lambda config, params: float(params['w']))
    none = lambda *_: type('Order', (), {'batch': None})
    monkeypatch.setattr(
        averaging, 'task_of', lambda config: type('Task', (), {'batches': staticmethod(none)})
    )
    assert averaging.measure(1) == {'last': 150, 'mean': (110 + 120 + 130 + 140 + 150) / 5}


def test_the_seeds_of_an_ensemble(monkeypatch):
    monkeypatch.setattr(small_language, 'train', lambda config, seed: np.full(config.model.d_model, seed))
    sums = lambda config, params: float(np.sum([np.max(one) for one in params]))
    monkeypatch.setattr(small_language, 'loss', lambda config, params: sums(config, np.atleast_2d(params)))
    found = ensemble.measure(2)
    assert found['loss'] == {'one': 4, 'ensemble': 4 + 5 + 6, 'wide': 2}
    assert found['parameters'] == {'one': 64, 'ensemble': 192, 'wide': 124}


def test_models_of_an_ensemble_have_the_parameters_of_the_wide_one():
    sizes = []
    for changes in ({}, ensemble.LARGE):
        config = small_language.config(changes)
        shapes = jax.eval_shape(lambda config=config: programs.initialize(config, jax.random.key(0)))
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(shapes)))
    assert sizes[1] == pytest.approx(3 * sizes[0], rel=0.01)


@pytest.mark.parametrize('module, expected', [
    (tied, {'all': 'all', 'none': 'none'}),
    (pieces, {'bpe': ('bpe', 600), 'characters': ('characters', 315), 'bytes': ('bytes', 259)}),
    (dropout, {'300': {'0.0': (300, 0.0), '0.1': (300, 0.1), '0.3': (300, 0.3)},
               '12000': {'0.0': (12000, 0.0), '0.1': (12000, 0.1), '0.3': (12000, 0.3)}}),
])  # fmt: skip
def test_options_that_are_compared(monkeypatch, module, expected):
    """A model's loss is the options that the claim is about."""
    options = {
        tied: lambda config: config.model.tie_embeddings,
        pieces: lambda config: (config.data.tokenizer, config.data.pieces),
        dropout: lambda config: (config.data.train_examples, config.model.P_drop),
    }
    monkeypatch.setattr(small_language, 'train', lambda config, seed: {'w': np.zeros(3)})
    for name in ('loss', 'bits_per_character'):
        monkeypatch.setattr(small_language, name, lambda config, params: options[module](config))
    found = module.measure(1)
    assert (found if module is not tied else {k: m['loss'] for k, m in found.items()}) == expected


def test_bits_per_character(monkeypatch):
    """All losses of a split over its characters, each text with an end."""
    data = type('Data', (), {'texts': staticmethod(lambda split: {'text': ['abc', 'ä']})})
    monkeypatch.setattr(small_language, 'prepared', lambda config: data)
    task = type('Task', (), {'batches': staticmethod(lambda *_: None)})
    monkeypatch.setattr(small_language, 'task_of', lambda config: task)
    monkeypatch.setattr(small_language.split_sums, 'total', lambda *_: {'loss': 6 * np.log(2), 'weight': 2.0})
    assert small_language.bits_per_character(small_language.config({}), None) == pytest.approx(1.0)


def test_texts_with_all_lags():
    batch = horizon.texts(np.random.default_rng(0), 12)
    tokens = batch['text'].tokens
    assert tokens.shape == (12, 163)
    assert (tokens[:, 161] == recall.QUESTION).all() and (batch['weight'].argmax(axis=1) == 162).all()
    for row, lag in zip(tokens, horizon.LAGS * 2, strict=True):
        # `lag` distractors stand between the symbol and the question.
        assert np.flatnonzero(row[:162] == row[162]).tolist() == [160 - lag]
    np.testing.assert_array_equal(batch['weight'].sum(axis=1), 1)


def test_shares_that_are_recalled(monkeypatch):
    """By models that recall the first three lags; each kind of layer is trained on the texts above."""
    trained = []

    def train(config, generate, updates, seed):
        trained.append(
            (config.model.kind, generate(np.random.default_rng(seed))['text'].tokens.shape, updates)
        )

    def answers(config, params, batch):
        tokens = batch['text'].tokens.copy()
        tokens[np.arange(len(tokens)) % 6 > 2, -1] = 0
        return tokens

    monkeypatch.setattr(toys, 'train', train)
    monkeypatch.setattr(toys, 'answers', answers)
    found = horizon.measure(1)
    assert list(found) == list(recall.LAYERS)
    assert all(list(shares.values()) == [1, 1, 1, 0, 0, 0] for shares in found.values())
    assert trained == [('recurrent', (30, 163), 300)] * 3 + [('transformer', (30, 163), 300)]


def test_texts_of_keys_with_their_values():
    drawn = few_shot.texts(np.random.default_rng(1), 40)
    tokens = drawn.batch['text'].tokens.reshape(40, few_shot.PAIRS, 2) - toys.FIRST
    keys, values = tokens[..., 0], tokens[..., 1] - few_shot.SYMBOLS
    assert {*np.unique([keys, values])} == {*range(few_shot.SYMBOLS)}
    tables = {tuple(table) for table in few_shot.RECURRING}
    assert len(tables) == few_shot.TABLES
    for row in range(40):
        # A key has one value in a text, and no other key has it.
        assert len({*zip(keys[row], values[row], strict=True)}) == len({*keys[row]}) == len({*values[row]})
        for pair in range(few_shot.PAIRS):
            before = [p for p in range(pair) if keys[row, p] == keys[row, pair]]
            assert np.flatnonzero(drawn.same[row, pair]).tolist() == before
            weight = drawn.batch['weight'].reshape(tokens.shape)[row, pair]
            assert weight.tolist() == [0, bool(before) or row % 2 == 1]
        of_table = any(
            all(table[k] == v for k, v in zip(keys[row], values[row], strict=True)) for table in tables
        )
        assert of_table == drawn.recurring[row] == (row % 2 == 1)


def test_attention_of_heads_that_copy(monkeypatch):
    """The best head gives 0.7 to the piece that the value to copy is read at, the others 0.6 to its key."""
    drawn = few_shot.texts(np.random.default_rng(0), 6)
    size = 2 * few_shot.PAIRS
    weights = np.full((6, 4, size, size), 0.3 / size)
    for row, pair in zip(*np.nonzero(drawn.same.any(axis=-1)), strict=True):
        earlier = drawn.same[row, pair].argmax()
        weights[row, :3, 2 * pair + 1, 2 * earlier + 1] += 0.6
        weights[row, 3, 2 * pair + 1, 2 * earlier + 2] += 0.7
    even = np.full_like(weights, 1 / size)
    layers = np.stack([even, weights])
    weights_of = lambda *_: {'decoder/self_attention': layers}
    monkeypatch.setattr(few_shot, 'weights_of_rows', weights_of)
    config = config_of(toys.LANGUAGE_MODEL | few_shot.MODEL | {'model.N': 2})
    same = drawn.same[::2].sum(axis=-1)
    expected = 0.7 + 0.3 / size * same[same > 0].mean()
    assert few_shot.copying(config, None, drawn) == pytest.approx(expected)


def test_answers_by_examples(monkeypatch):
    for name, value in {'UPDATES': 4, 'STEPS': (2, 4), 'TESTED': 400, 'ROWS': 8}.items():
        monkeypatch.setattr(few_shot, name, value)

    def answers(config, params, batch):
        """Returns the right values, but zeros in the first eight pairs with one layer."""
        first_half = np.arange(batch['text'].tokens.shape[1]) < few_shot.PAIRS
        wrong = first_half & (config.model.N == 1)
        return np.where(wrong, 0, batch['text'].tokens)

    monkeypatch.setattr(toys, 'answers', answers)
    found = few_shot.measure(1)
    assert found['2 layers']['recalled'] == [1, 1] and found['2 layers']['applied'] == [1] * few_shot.PAIRS
    assert found['1 layer']['applied'] == [0] * 8 + [1] * 8
    assert 0.5 < found['1 layer']['recalled'][0] < 1
    assert all(0 < share < 0.5 for share in found['1 layer']['copying'] + found['2 layers']['copying'])


def law(x, noise, seeds=3, rng=None):
    exact = 1.5 + 2 * (np.float64(x) / x[0]) ** -0.4
    return exact + noise * (rng or np.random.default_rng(0)).normal(size=(seeds, len(x)))


def test_a_power_law_is_found_and_predicts():
    x = [4000, 9000, 20_000, 48_000, 110_000, 260_000, 620_000]
    found = power_law.fit(x, law(x, 1e-6))
    assert found.alpha == pytest.approx(0.4, abs=1e-4)
    assert found.predicted == pytest.approx(law(x, 0)[0, -1], abs=1e-4)
    rng, inside = np.random.default_rng(1), {'alpha': 0, 'mean': 0}
    for _ in range(300):
        bits = law(x, 0.01, rng=rng)
        found = power_law.fit(x, bits)
        inside['alpha'] += found.alpha_interval[0] < 0.4 < found.alpha_interval[1]
        inside['mean'] += found.interval[0] < bits[:, -1].mean() < found.interval[1]
    # Of intervals of 90 %, 270 of 300 with a deviation of 5.
    assert all(250 < count < 290 for count in inside.values()), inside


def test_sizes_and_amounts_of_one_schedule(monkeypatch):
    """An epoch of n sentences has n / 3 batches here."""
    monkeypatch.setattr(small_language, 'train', lambda config, seed, updates: (updates, seed))
    of = lambda config, params: [
        *params,
        config.data.train_examples,
        config.data.batch_tokens,
        config.model.d_model,
    ]
    monkeypatch.setattr(small_language, 'bits_per_character', of)
    monkeypatch.setattr(power_law, 'prepared', lambda config: None)
    rows = lambda config, *_: type('Rows', (), {'steps_per_epoch': config.data.train_examples // 3})
    monkeypatch.setattr(
        power_law, 'task_of', lambda config: type('Task', (), {'batches': staticmethod(rows)})
    )
    found = power_law.measure(5)
    assert found['size']['bits'] == [[600, 5, None, 1024, width] for width in power_law.WIDTHS]
    assert found['data']['bits'] == [[4 * (n // 3), 5, n, 512, 68] for n in power_law.SENTENCES]
    assert found['data']['x'] == [*power_law.SENTENCES]
    # 12 d² and 13 d parameters of each of two layers, and the last LayerNorm.
    assert found['size']['x'] == [2 * (12 * d * d + 13 * d) + 2 * d for d in power_law.WIDTHS]


def test_biases_that_are_compared(monkeypatch):
    trained = []

    def train(config, generate, updates, seed):
        trained.append((generate(np.random.default_rng(seed))['text'].tokens.shape, updates))
        return config.model.positions

    monkeypatch.setattr(toys, 'train', train)
    monkeypatch.setattr(extrapolation, 'accuracy', lambda config, params, seed: [params, seed])
    assert bias_claim.measure(2) == {'alibi': ['alibi', 2], 'buckets': ['buckets', 2]}
    assert trained == [((64, 32), 500)] * 2


def test_horizons():
    at = lambda *shares: dict(zip(map(str, horizon.LAGS), shares, strict=True))
    assert horizon.horizon(at(1, 1, 1, 1, 1, 1)) == 160
    assert horizon.horizon(at(0.4, 1, 1, 1, 1, 1)) == 0
    assert horizon.horizon(at(1, 0.6, 0.5, 0.9, 0.1, 0.1)) == 10


def test_forget_gates_begin_open():
    config = config_of(toys.LANGUAGE_MODEL | recall.LAYERS[horizon.LSTM] | {'model.d_model': 4})
    bias = programs.initialize(config, jax.random.key(0))['decoder']['layer_0']['bias']
    np.testing.assert_array_equal(bias.reshape(4, 4)[1], 1.0)


@pytest.fixture
def english(monkeypatch):
    """Attention of a model of three layers to two positions before, in the last layer to one."""
    tokenizer = Letters()
    monkeypatch.setattr(content, 'prepared', lambda config: type('Data', (), {'codecs': {'text': tokenizer}}))
    text = padded([[*map(ord, 'Theboysawadog'), 1]], (1, 40))
    weights = np.zeros((3, 2, 1, 40, 40))
    for layer, back in enumerate((2, 2, 1)):
        for query in range(40):
            weights[layer, :, 0, query, max(0, query - back)] = 1.0
    monkeypatch.setattr(distance_claim, 'attention', lambda seed: (weights, text))
    return text


class Letters:
    """A tokenizer of letters, without blanks."""

    def pieces(self, ids):
        return list(map(chr, ids))


def test_distances_of_attention(english):
    length = int(english.segments.sum())
    found = distance_claim.measure(1)
    # The first positions have nothing so far back.
    np.testing.assert_allclose(found['layers'], [2 - 3 / length, 2 - 3 / length, 1 - 1 / length])
    np.testing.assert_allclose(found['even'], np.mean(np.arange(length) / 2))


def test_words_of_pieces():
    leaf = lambda tag, word: Constituent(tag, word)
    tree = Constituent('S', (leaf('DT', 'The'), Constituent('NP', (leaf('NN', 'dog'), leaf('RB', "n't")))))
    assert content.tags(['▁The', '▁d', 'og', "n't", ''], tree) == [
        (0, 'DT', 'The'), (1, 'NN', 'dog'), (1, 'NN', 'dog'), (2, 'RB', "n't"), (-1, '', ''),
    ]  # fmt: skip


def test_what_nouns_attend_to(monkeypatch, english):
    """In 'The boy saw a dog', letter by letter, with weights of the key's position."""
    leaf = lambda tag, word: Constituent(tag, word)
    words = [('DT', 'The'), ('NN', 'boy'), ('VB', 'saw'), ('DT', 'a'), ('NN', 'dog')]
    tree = Constituent('S', tuple(leaf(*word) for word in words))
    weights = np.broadcast_to(np.arange(40.0), (1, 1, 1, 40, 40))
    monkeypatch.setattr(content, 'sentence_trees', lambda split: iter([tree]))
    monkeypatch.setattr(distance_claim, 'attention', lambda seed: (weights, english))
    # Keys are one position after their letters: 'The' 1 to 3, 'boy' 4 to 6, 'saw' 7 to 9, 'a' 10.
    # 'boy' reads 'The' three times, 'dog' reads all.
    articles = [1, 2, 3] * 6 + [10] * 3
    others = [4, 5, 6, 7, 8, 9] * 3
    assert content.measure(1) == {'content word': np.mean(others), 'article': np.mean(articles)}


def test_products_of_positions(monkeypatch):
    """Against the sum of the cosines of the angles between two positions."""
    for name, value in (('D_MODEL', 8), ('LENGTH', 40), ('DISTANCES', (1, 5)), ('NEAR', 3)):
        monkeypatch.setattr(similarity, name, value)
    found = similarity.measure(1)
    angles = np.outer((1, 5), 10000.0 ** (-np.arange(4) / 4))
    np.testing.assert_allclose(found['mean'], np.cos(angles).mean(axis=1), rtol=1e-5)
    assert max(found['range']) < 1e-6 and found['plain'] < -0.9 and abs(found['projected']) < 0.9


def test_products_of_rotated_vectors(monkeypatch):
    """Against the mean of cosines, weighted by the squares of each rotated pair."""
    for name, value in (('LENGTH', 12), ('DISTANCES', (1, 5)), ('VECTORS', 2)):
        monkeypatch.setattr(rotary, name, value)
    found = rotary.measure(1)
    vectors = np.random.default_rng(1).normal(size=(2, 1, 64)).astype(np.float32)[:, 0]
    squares = (vectors**2).reshape(2, 2, 32).sum(axis=1)
    angles = np.outer((1, 5), 10000.0 ** (-np.arange(32) / 32))
    expected = (np.cos(angles) @ squares.T / squares.sum(axis=1)).mean(axis=1)
    np.testing.assert_allclose(found['rotated']['mean'], expected, rtol=1e-5)
    assert max(found['rotated']['range']) < 1e-5 and max(found['added']['range']) > 0.01


def test_weights_of_a_smoother():
    rng = np.random.default_rng(1)
    queries, keys = rng.normal(size=(2, 64, 16))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    norm = lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    squares = ((queries[:, None] - keys / 4) ** 2).sum(axis=-1)
    expected = np.abs(norm(4 * queries @ keys.T / 4) - norm(-2 * squares)).sum(axis=1) / 2
    found = smoother.differences(smoother.ANY, 4, np.random.default_rng(1))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert smoother.differences(smoother.ONE, 4, np.random.default_rng(1)).max() < 1e-5


def test_differences_between_positions(monkeypatch):
    x = np.asarray([[[3.0, 0.0], [-3.0, 4.0]]])
    # The mean is (0, 2), and both are (3, 2) from it.
    np.testing.assert_allclose(rank.difference(x), (2 * 13 / (9 + 25)) ** 0.5)
    monkeypatch.setattr(rank, 'LAYERS', 2)
    monkeypatch.setattr(rank, '_programs', lambda: (lambda key, x: None, lambda params, x: 0 * x + 1))
    found = rank.measure(1)
    assert found[rank.ALONE][1:] == [0, 0] and min(found[rank.ADDED]) > 0.1


def test_noise_of_gradients():
    """With noise of variance 1 / tokens in each number, the scale is their number over |G|²."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=50)
    drawn = [(mean + rng.normal(size=50) / 100**0.5, 100.0) for _ in range(2000)]
    assert noise_scale.noise_scale(iter(drawn)) == pytest.approx(50 / np.sum(mean**2), rel=0.02)
    # Two gradients of 10 tokens: |G|² is their product, the variance of a token 10 |g - h|² / 2.
    g, h = np.asarray([3.0, 0.0]), np.asarray([1.0, 2.0])
    assert noise_scale.noise_scale(iter([(g, 10.0), (h, 10.0)])) == pytest.approx(40 / 3)


def test_wavelengths_of_a_sinusoid(monkeypatch):
    monkeypatch.setattr(wavelengths, 'D_MODEL', 8)
    exponents = {'paper': np.arange(4) / 4, 't2t': np.arange(4) / 3}
    for kind, exponent in exponents.items():
        found = wavelengths.wavelengths(kind, np.asarray([3, 70, 4000]))
        np.testing.assert_allclose(found, 2 * np.pi * 10000.0**exponent, rtol=1e-9)


def test_convolutions_of_width_one(monkeypatch):
    monkeypatch.setattr(convolution, 'ACTIVATIONS', ('relu',))
    found = convolution.measure(1)['relu']
    assert found['difference'] < 1e-6 and found['others'] == 0 < found['own']


def test_scores_whose_cost_is_compared():
    """Both are gradients of the same attention, with the scores of nn/alignment.py."""
    for score in additive.SCORES:
        program, mib = additive._program(score, 4)
        query, keys, held, weights = additive._inputs(score, 4, 1)
        if score == additive.ADDITIVE:
            inner = np.tanh((query @ weights.query)[:, :, None] + keys[:, None])
            logits = inner @ weights.vector
        else:
            logits = np.einsum('bqd,bkd->bqk', query, keys)
        w = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        loss, gradients = program(query, keys, held, weights)
        np.testing.assert_allclose(loss, np.square(w @ held).sum(), rtol=1e-4)
        np.testing.assert_allclose(gradients[2], 2 * np.swapaxes(w, 1, 2) @ (w @ held), rtol=1e-3, atol=1e-4)
        assert mib > 0


@pytest.mark.parametrize(
    'changes',
    [negatives.MODEL, *(composition.MODEL | options for options in composition.MODELS.values())],
    ids=['negatives', *composition.MODELS],
)
def test_models_without_label_smoothing_have_configs(changes):
    config = config_of(changes)
    assert config.train.task == changes['train.task']
    smoothed = declare.has_meaning(configs.OPTIONS, configs.flatten(config), 'train.eps_ls')
    assert smoothed == (config.train.eps_ls == 0.0)
