"""Forced scores against numpy, ensembles against the mean of probabilities, contrasts by hand."""

import functools
import io
import json
import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
from odd_lines import ODD, READ

from transformer import config as configs
from transformer import parallel
from transformer.cli import score_pairs, streams
from transformer.config import ConfigError
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.inference import likelihood
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tasks import sums_of, verb_of
from transformer.tokens import EOS, Tokens

WIDTH = 12
SMALL = {
    'model.N': 1, 'model.d_model': 16, 'model.d_ff': 16, 'model.h': 2, 'model.vocab_size': 260,
    'data.source': 'text', 'data.tokenizer': 'bytes', 'data.pieces': 259, 'decode.max_source_len': 16,
    'decode.extra_len': 8,
}  # fmt: skip
LANGUAGE = SMALL | {
    'model.kind': 'decoder', 'train.task': 'language', 'data.row_len': 8, 'data.max_len': 8, 'data.stride': 3,
}  # fmt: skip


def fresh(changes: dict[str, object], *seeds: int) -> Trained:
    """Makes an untrained model, or an ensemble of them if there are several seeds."""
    config = configs.resolve(configs.config_dict(changes))
    initialize = jax.jit(lambda key: models.initialize(config, key))
    # Larger than initialised: a model that is sure of something.
    made = [jax.tree.map(lambda x: 4 * x, initialize(jax.random.key(seed))) for seed in seeds]
    params = tuple(made) if len(made) > 1 else made[0]
    return Trained(
        config, parallel.replicate(params), dict.fromkeys(('source', 'target', 'text'), ByteTokenizer())
    )


@pytest.fixture(scope='module')
def first() -> Trained:
    return fresh(SMALL, 1)


@pytest.fixture(scope='module')
def both() -> Trained:
    return fresh(SMALL, 1, 2)


def members(trained: Trained) -> list[Trained]:
    several = trained.params if isinstance(trained.params, tuple) else (trained.params,)
    return [trained._replace(params=params) for params in several]


def one_row(tokens: list[int]) -> Tokens:
    row, place = np.zeros((1, WIDTH), np.int32), np.arange(WIDTH, dtype=np.int32)[None]
    row[0, : len(tokens)] = tokens
    return Tokens(row, (place < len(tokens)).astype(np.int32), place)


@functools.cache
def compiled(config: configs.Config) -> Callable:
    return jax.jit(lambda params, batch: models.build(config).apply({'params': params}, batch, train=False))


def probabilities(trained: Trained, rows: dict[str, list[int]]) -> np.ndarray:
    """Computes the mean of the members' probabilities of every token, in numpy."""
    batch, found = {name: one_row(row) for name, row in rows.items()}, []
    for member in members(trained):
        logits = np.asarray(compiled(member.config)(member.params, batch), np.float64)[0]
        exponential = np.exp(logits - logits.max(-1, keepdims=True))
        found.append(exponential / exponential.sum(-1, keepdims=True))
    return np.mean(found, axis=0)


def expected(trained: Trained, *sides: str) -> np.ndarray:
    """Computes log p of the last text's bytes and end."""
    rows = [[byte + 3 for byte in side.encode()] + [EOS] for side in sides]
    names = ('source', 'target') if len(sides) == 2 else ('text',)
    mean = probabilities(trained, dict(zip(names, rows, strict=True)))
    return np.log(mean[np.arange(len(rows[-1])), rows[-1]])


def written(trained: Trained, lines: list[str], **options) -> tuple[list[str], score_pairs.Tally | None]:
    output = io.BytesIO()
    verb = verb_of(trained.config, 'likelihoods')
    tally = score_pairs.write(
        verb, trained, [lines] if lines else [], output, streams.LineProgress(quiet=True), **options
    )
    return output.getvalue().decode().split('\n')[:-1], tally


@pytest.mark.parametrize('which', ['first', 'both'])
def test_log_p_of_pairs_and_their_pieces(request, which):
    trained = request.getfixturevalue(which)
    given = [('ab', 'xyz'), ('c', ''), ('', 'long one'), ('ab', 'xyz'), ('ä b', 'é')]
    scored = verb_of(trained.config, 'likelihoods')(trained, given)
    for pair, found in zip(given, scored, strict=True):
        np.testing.assert_allclose(found.logp, expected(trained, *pair), rtol=1e-5, atol=1e-4)
        assert len(found.pieces) == len(pair[1].encode()) + 1 and found.pieces[-1] == '</s>'
        assert found.total == pytest.approx(expected(trained, *pair).sum(), rel=1e-5)
    # It is what the loss adds up, with all pairs in one batch as well as one by one.
    total, loss = 0.0, jax.jit(sums_of(trained.config))
    for source, target in given:
        rows = [[byte + 3 for byte in side.encode()] + [EOS] for side in (source, target)]
        batch = dict(zip(('source', 'target'), map(one_row, rows), strict=True))
        # As one microbatch.
        batch = jax.tree.map(lambda x: x[None], batch)
        total += float(loss(trained.params, batch, None)['loss'])
    assert sum(found.total for found in scored) == pytest.approx(-total, rel=1e-5)
    lines, _ = written(trained, ['\t'.join(pair) for pair in given], pieces=True)
    for line, found in zip(lines, scored, strict=True):
        score, pieces = line.split('\t')
        assert float(score) == pytest.approx(found.total, abs=1e-5)
        assert pieces.split(' ')[::2] == found.pieces
        assert sum(map(float, pieces.split(' ')[1::2])) == pytest.approx(found.total, rel=1e-5)
    objects, _ = written(trained, ['ab\txyz'], pieces=True, as_json=True)
    (told,) = map(json.loads, objects)
    assert told['line'] == 0 and told['logp'] == pytest.approx(scored[0].total, abs=1e-5)
    assert [piece for piece, _ in told['pieces']] == ['x', 'y', 'z', '</s>']


def test_an_ensemble_writes_what_the_mean_probability_finds_likeliest(both):
    hypotheses = verb_of(both.config, 'hypotheses')
    ((found,),) = hypotheses(both, ['ab'], method='greedy', extra_len=5)
    tokens, total = [], 0.0
    for _ in range(8):
        mean = probabilities(both, {'source': [100, 101, EOS], 'target': [*tokens, EOS]})[len(tokens)]
        # Padding, the unknown piece and rows of the embedding without a piece are never written.
        mean[[0, 2, 259]] = 0.0
        tokens.append(int(mean.argmax()))
        total += math.log(mean.max())
        if tokens[-1] == EOS:
            break
    assert found.text == both.codecs['target'].decode(tokens, one_line=True)
    assert found.score == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize('method', ['beam', 'greedy', 'sample'])
def test_an_ensemble_of_a_model_with_itself_is_the_model(first, method):
    twice = first._replace(params=(first.params, first.params))
    given = ['abc', '', 'some more']
    one, two = (verb_of(t.config, 'hypotheses')(t, given, method=method) for t in (first, twice))
    for found, again in zip(one, two, strict=True):
        assert [text for text, _ in found] == [text for text, _ in again]
        np.testing.assert_allclose([s for _, s in found], [s for _, s in again], atol=1e-3)


def test_a_language_model_reads_long_texts_in_windows():
    trained = fresh(LANGUAGE, 3)
    given = ['', 'short', 'abcdefg', 'abcdefgh', 'abcdefghijklmnopqr']
    scored = verb_of(trained.config, 'likelihoods')(trained, [(text,) for text in given])
    for text, found in zip(given, scored, strict=True):
        content, logp = text.encode() + b'\n', []
        for begin in range(0, max(len(content) - 8, 0) + 3, 3):
            # The end is written as another byte; its own log p is not compared then.
            whole = expected(trained, content[begin : begin + 8].decode())[:-1]
            logp += whole[5 if begin else 0 :].tolist()
        np.testing.assert_allclose(found.logp[:-1], logp[:-1], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(scored[1].logp, expected(trained, 'short'), rtol=1e-5, atol=1e-4)
    # A line is a text, whatever it holds.
    lines, _ = written(trained, ['a\tb', ''])
    assert float(lines[0]) == pytest.approx(expected(trained, 'a\tb').sum(), rel=1e-5)
    lines, tally = written(trained, ['kind\ttext\tcontrast', 'k\tab\tcd\tef'], contrast=True)
    assert [float(score) for score in lines[0].split('\t')] == pytest.approx(
        [expected(trained, text).sum() for text in ('ab', 'cd', 'ef')], rel=1e-5
    )
    assert set(tally.shares()['kinds']) == {'k'}


def test_texts_of_a_language_model_need_no_tuples():
    trained = fresh(LANGUAGE, 3)
    verb = verb_of(trained.config, 'likelihoods')
    np.testing.assert_array_equal(verb(trained, ['ab'])[0].logp, verb(trained, [('ab',)])[0].logp)
    for wrong in ('ab', [('a', 'b')], [1]):
        with pytest.raises(ConfigError, match='texts'):
            verb(trained, wrong)


def test_contrasts_count_the_lines_whose_first_text_is_likeliest(first, caplog):
    lines = ['a\tbc\tde', 'a\tde\tbc', 'a\tbc\tde\tfg', 'a\tbc\tbc']
    logp = {text: float(expected(first, 'a', text).sum()) for text in ('bc', 'de', 'fg')}
    found, tally = written(first, lines, contrast=True)
    assert [len(line.split('\t')) for line in found] == [2, 2, 3, 2]
    assert float(found[2].split('\t')[1]) == pytest.approx(logp['de'], rel=1e-5)
    right = [logp['bc'] > logp['de'], logp['de'] > logp['bc'], logp['bc'] > max(logp['de'], logp['fg'])]
    # The last line is scored, but it would be wrong whatever the model.
    assert tally.shares() == {'share': sum(right) / 3, 'count': 3, 'unscored': 0, 'equal': 1, 'kinds': {}}
    assert 'line 4' in caplog.text and len(tally.describe()) == 2
    # No text is the likeliest of equally likely ones.
    assert score_pairs.Tally().add(score_pairs.Item(0, None, ('a',), ('bc', 'de')), [-1.0, -1.0]) is False
    kinds = ['x', 'y', 'x', 'x']
    given = [f'{kind}\t{line}' for kind, line in zip(kinds, lines, strict=True)]
    again, by_kind = written(first, ['kind\tsource\ttarget\tcontrast', *given], contrast=True)
    assert again == found
    shares = {'x': (right[0] + right[2]) / 2, 'y': float(right[1])}
    assert {kind: share['share'] for kind, share in by_kind.shares()['kinds'].items()} == shares
    assert any('x: ' in line and f'{100 * shares["x"]:.1f} % of 2' in line for line in by_kind.describe())
    # A first line that names the columns, in any order, is no pair.
    named = ['target\tcontrast\tkind\tsource', 'bc\tde\tx\ta', 'bc\tde\tx\ta\tfg']
    header, tally = written(first, named, contrast=True)
    assert header == [found[0], found[2]] and tally.shares()['kinds']['x']['count'] == 2
    assert written(first, ['target\tsource', 'bc\ta'])[0] == written(first, ['a\tbc'])[0]
    objects, _ = written(first, lines[:1], contrast=True, as_json=True)
    told = json.loads(objects[0])
    assert told['right'] == right[0] and told['kind'] is None and len(told['logp']) == 2


@pytest.mark.parametrize(
    ('lines', 'options', 'expected'),
    [
        (['a\tb', 'ab'], {}, ('source', 'target')),
        (['a\tb\tc'], {}, ('source', 'target')),
        (['a\tb\tc', 'a\tb'], {'contrast': True}, ('source', 'target', 'contrast')),
        (['kind\tsource\ttarget\tcontrast', 'a\tb\tc'], {'contrast': True}, ('kind', 'contrast')),
    ],
)
def test_lines_with_other_columns(first, lines, options, expected):
    output, verb = io.BytesIO(), verb_of(first.config, 'likelihoods')
    with pytest.raises(ConfigError) as raised:
        score_pairs.write(verb, first, [lines], output, streams.LineProgress(quiet=True), **options)
    assert all(part in str(raised.value) for part in (f'line {len(lines)}', *expected))
    # The lines before the wrong one are answered, and no other.
    assert output.getvalue().count(b'\n') == len(lines) - 1 - lines[0].startswith('kind')


def test_a_header_counts_as_done(first, monkeypatch):
    done, paused = [], streams.LineProgress.paused
    count = lambda progress, lines: done.append(lines) or paused(progress, lines)
    monkeypatch.setattr(streams.LineProgress, 'paused', count)
    chunks = [['source\ttarget', 'a\tb'], ['b\ta']]
    verb = verb_of(first.config, 'likelihoods')
    score_pairs.write(verb, first, chunks, io.BytesIO(), streams.LineProgress(quiet=True))
    assert done == [2, 3]


def test_a_text_that_is_too_long_is_named_and_not_scored(first, caplog):
    lines = ['a\tb', 'a' * 40 + '\tb', 'a\t' + 'b' * 24, 'a\t' + 'b' * 23]
    found, _ = written(first, lines)
    assert [line == 'nan' for line in found] == [False, False, True, False]
    assert 'line 2:' in caplog.text and 'line 3:' in caplog.text and 'line 4' not in caplog.text
    assert float(found[1]) == pytest.approx(float(written(first, ['a' * 15 + '\tb'])[0][0]), rel=1e-5)
    found, tally = written(first, ['a\tb\t' + 'b' * 24, 'a\tb\tc'], contrast=True, as_json=True)
    assert json.loads(found[0])['logp'][1] is None and json.loads(found[0])['right'] is None
    assert tally.shares()['count'] == tally.shares()['unscored'] == 1


def test_every_line_has_a_score_whatever_it_holds(first):
    given = [line.rstrip(b'\r\n') + b'\tx\r\n' for line in ODD]
    chunks = list(streams.Lines(io.BytesIO(b''.join(given))))
    assert len(chunks[0]) == len(READ)
    found, _ = written(first, chunks[0])
    assert len(found) == len(READ) and 'nan' not in found


def after_prompt(trained: Trained, prompt: str, text: str) -> np.ndarray:
    """Computes log p of a text's bytes and end from the whole row, prompt included."""
    row = [byte + 3 for byte in (prompt + text).encode()] + [EOS]
    first = len(prompt.encode())
    mean = probabilities(trained, {'text': row})[first:]
    return np.log(mean[np.arange(len(row) - first), row[first:]])


@pytest.mark.parametrize(
    ('changes', 'seeds'),
    [
        ({}, (1, 2)),
        ({'model.positions': 'learned', 'model.max_len': 40}, (1,)),
        ({'model.positions': 'rotary'}, (1,)),
        ({'model.kind': 'recurrent'}, (1, 2)),
        ({'model.kind': 'convolutional'}, (1,)),
    ],
)
def test_texts_after_a_prompt(changes, seeds):
    dropped = {'model.h', 'model.d_ff'} if changes.get('model.kind', 'transformer') != 'transformer' else ()
    common = {key: value for key, value in LANGUAGE.items() if key not in dropped}
    trained = fresh(common | {'model.kind': 'transformer', 'data.row_len': WIDTH} | changes, *seeds)
    # With four times the initial numbers, a convolutional model is sure to the last bit.
    trained = trained._replace(params=jax.tree.map(lambda x: x / 2, trained.params))
    texts = ['xyz', '', 'ä', 'xyz', 'more', 'cb'] * 8
    scores = verb_of(trained.config, 'likelihoods_after')(trained, 'ab cd')
    for found, text in zip(scores([(text,) for text in texts]), texts, strict=True):
        np.testing.assert_allclose(found.logp, after_prompt(trained, 'ab cd', text), rtol=1e-5, atol=1e-4)
        assert found.pieces[-1] == '</s>' and len(found.pieces) == len(found.logp)


def test_prompts_of_similar_lengths_share_their_programs():
    trained = fresh(LANGUAGE | {'data.row_len': WIDTH}, 1)
    prompts = [likelihood.read_prompt(trained, [5] * count) for count in (9, 10, 12)]
    assert {prompt.text.tokens.shape for prompt in prompts} == {(1, 12)}


def test_the_prompt_is_read_once(monkeypatch):
    trained, prompts = fresh(LANGUAGE | {'data.row_len': WIDTH}, 1), []
    read = likelihood.read_prompt
    monkeypatch.setattr(likelihood, 'read_prompt', lambda *how: prompts.append(how[1]) or read(*how))
    scores = verb_of(trained.config, 'likelihoods_after')(trained, 'a\nb\n')
    for _ in range(2):
        scores([('c',)])
    # A newline is a blank for a model of lines.
    assert prompts == [[byte + 3 for byte in b'a b']]
    # The program of the texts has no loop over a prompt of three pieces.
    config, [prompt] = trained.config, [likelihood.read_prompt(trained, prompts[0])]
    rows = one_row([5, 6, EOS])
    program = jax.jit(functools.partial(likelihood._score_after, config))
    text = program.lower((trained.params, prompt), None, rows).compile().as_text()
    assert text.count('while(') == 1


def test_a_model_of_files_reads_the_newlines_of_a_prompt():
    files = {'data.documents': 'files', 'data.batching': 'running', 'data.row_len': WIDTH}
    trained = fresh({key: value for key, value in LANGUAGE.items() if key != 'data.max_len'} | files, 1)
    (found,) = verb_of(trained.config, 'likelihoods_after')(trained, 'a\nb\n')([('xyz',)])
    np.testing.assert_allclose(found.logp, after_prompt(trained, 'a\nb\n', 'xyz'), rtol=1e-5, atol=1e-4)


def test_long_texts_after_a_prompt_are_not_scored(caplog):
    trained, done = fresh(LANGUAGE | {'data.row_len': WIDTH}, 1), []
    scores = verb_of(trained.config, 'likelihoods_after')(trained, 'ab cd')
    fits, long = scores([('123456',), ('1234567',)], [4, 7], done.append)
    # Progress counts all texts, scored or not.
    assert sum(done) == 2
    assert np.isfinite(fits.logp).all() and len(fits.logp) == WIDTH - 5
    assert np.isnan(long.logp).all() and len(long.logp) == WIDTH - 4
    assert 'line 8: not scored' in caplog.text and 'line 5' not in caplog.text


@pytest.mark.parametrize(
    ('prompt', 'named'), [('', 'is empty'), ('\n', 'is empty'), ('x' * WIDTH, f'to {WIDTH - 1}')]
)
def test_prompts_without_pieces_or_room(prompt, named):
    trained = fresh(LANGUAGE | {'data.row_len': WIDTH}, 1)
    with pytest.raises(ConfigError, match=f'--prompt: .*{named}'):
        verb_of(trained.config, 'likelihoods_after')(trained, prompt)


def test_only_models_that_continue_have_prompts(first):
    with pytest.raises(ConfigError, match='score-pairs --prompt'):
        verb_of(first.config, 'likelihoods_after', 'score-pairs --prompt')
