"""Language modelling from the command line: training, scores recomputed by hand, and generation."""

import dataclasses
import io
import json
import math
import os
import pathlib
import sys

import jax
import numpy as np
import programs
import pytest
import toys
from etils import epath

import run
from transformer import config as configs
from transformer.actions import data as run_data
from transformer.actions.compare import Side, incomparable
from transformer.actions.load import load
from transformer.config import ConfigError
from transformer.data import vocabulary
from transformer.data.tokenizers import kinds
from transformer.inference.search import Hypotheses
from transformer.nn import models
from transformer.runs import restore
from transformer.runs.workdir import Run
from transformer.tasks import contract, sums_of
from transformer.tasks.language import generator, task
from transformer.tokens import Tokens

ROOT = pathlib.Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures('in_the_root')
TEXT = '\n'.join(f'{n} bottles of béer on the wall, {n} bottles.\n' for n in range(400, 0, -1))
RUNNING = {
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 32,
    'model.h': 2,
    'data.row_len': 16,
    'data.stride': 4,
    'data.batch_tokens': 256,
    'data.train': 'song.txt[:80%]',
    'data.dev': 'song.txt[80%:90%]',
    'data.test': 'song.txt[90%:]',
    'train.steps': 4,
    'train.eval_every': 2,
    'train.checkpoint_every': 2,
    'train.microbatches': 8,
    'train.average_last': 0,
    'decode.extra_len': 24,
}


@pytest.fixture(scope='session')
def song(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp('song')
    (folder / 'song.txt').write_text(TEXT)
    return folder


def arguments(song: pathlib.Path, workdir: pathlib.Path, **changes) -> list[str]:
    options = {**RUNNING, 'data.dir': song, **changes}
    call = ['run.py', '--config=configs/gpt_shakespeare.py', f'--workdir={workdir}']
    return [*call, *(f'--config.{key}={value}' for key, value in options.items())]


@pytest.fixture(scope='session')
def trained(song, tmp_path_factory) -> pathlib.Path:
    os.chdir(ROOT)
    workdir = tmp_path_factory.mktemp('runs') / 'song'
    assert run.main(arguments(song, workdir)) == 0
    return workdir


def generate(monkeypatch, capfdbinary, workdir, *argv: str, lines: bytes = b'') -> bytes:
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(lines)))
    capfdbinary.readouterr()
    assert run.main(['run.py', 'generate', f'--workdir={workdir}', *argv]) == 0
    return capfdbinary.readouterr().out


def test_scores_in_every_unit(trained, song):
    """Each byte's probability is computed alone, from the bytes that its window shows."""
    scores = json.loads((trained / 'result.json').read_text())['scores']['test']
    trained_model, _ = restore.load(Run.open(trained))
    text = TEXT[len(TEXT) * 90 // 100 :].encode()
    tokens = [byte + 3 for byte in text] + [1]
    nats = 0.0
    starts = [0, *range(4, len(tokens) - 16 + 4, 4)]
    score = jax.jit(lambda batch: models.build(trained_model.config).apply(
        {'params': trained_model.params}, batch, train=False
    ))  # fmt: skip
    rows = np.zeros((len(starts), 16), np.int32)
    for row, start in zip(rows, starts, strict=True):
        row[: len(tokens[start : start + 16])] = tokens[start : start + 16]
    segments = (rows > 0).astype(np.int32)
    positions = np.broadcast_to(np.arange(16, dtype=np.int32), rows.shape)
    logits = np.asarray(score({'text': Tokens(rows, segments, positions)}), np.float64)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scored = 0
    for row, start in enumerate(starts):
        for place in range(16):
            if scored <= start + place < len(tokens):
                nats -= logp[row, place, tokens[start + place]]
        scored = start + 16
    assert scores['pieces'] == len(tokens)
    assert scores['loss'] == pytest.approx(nats / len(tokens), rel=1e-5)
    assert scores['perplexity'] == pytest.approx(math.exp(nats / len(tokens)), rel=1e-5)
    words = len(text.decode().split())
    assert scores['word'] == {'perplexity': pytest.approx(math.exp(nats / words), rel=1e-4), 'count': words}
    assert scores['bytes'] == len(text)
    assert scores['bits_per_byte'] == pytest.approx(nats / math.log(2) / len(text), rel=1e-5)
    seen = [start + 16 - 4 + k - start for start in starts[1:] for k in range(4)]
    assert scores['context']['window'] == 16 and scores['context']['stride'] == 4
    assert scores['context']['least'] == min(seen) == 12


def test_the_last_word_of_a_file_and_the_first_of_the_next_are_two(song, tmp_path):
    (tmp_path / 'song.txt').write_text(TEXT)
    (tmp_path / 'more.txt').write_text('one two three')
    changes = {'data.dir': tmp_path, 'data.dev': 'more.txt,song.txt[99%:]', 'train.steps': 1}
    assert run.main(arguments(song, tmp_path / 'w', **changes)) == 0
    scores = json.loads((tmp_path / 'w' / 'result.json').read_text())['scores']['dev']
    end = TEXT[len(TEXT) * 99 // 100 :]
    assert scores['word']['count'] == 3 + len(end.split())
    assert scores['bytes'] == 13 + len(end.encode()) and scores['pieces'] == scores['bytes'] + 2


def test_the_share_of_samples_that_the_source_accepts(trained, monkeypatch):
    asked, right = [], lambda text: text == 'right'
    monkeypatch.setattr(task.generated, 'sentence_judge', lambda *_: right)
    samples = ['right', 'right', 'right', 'wrong']
    monkeypatch.setattr(task, '_samples', lambda model, count, *_: asked.append(count) or samples)
    model = restore.load(Run.open(trained))[0]
    scored = task.evaluate(model, run_data.of_run(Run.open(trained)), 'test')
    assert scored.scores['grammatical'] == 0.75 and asked == [task.JUDGED] and scored.lines == samples


def test_a_stride_gives_more_context_and_changes_nothing_else(trained):
    result = json.loads((trained / 'result.json').read_text())
    assert result['config']['data']['stride'] == 4
    assert run.main(['run.py', 'evaluate', f'--workdir={trained}', '--config.data.stride=16']) == 0
    evaluations = json.loads((trained / 'result.json').read_text())['evaluations']
    (scores,) = [found for found in evaluations.values() if found['context']['stride'] == 16]
    assert scores['context']['least'] == 0
    assert scores['loss'] != result['scores']['test']['loss']
    (trained / 'result.json').write_text(json.dumps(result))


def test_dev_loss_is_of_windows_side_by_side(trained):
    lines = [json.loads(line) for line in (trained / 'metrics.jsonl').read_text().splitlines()]
    assert [line['step'] for line in lines if 'dev_loss' in line] == [2, 4]
    assert {'dev_loss', 'dev_perplexity', 'dev_accuracy'} <= set(lines[-1])


def test_training_resumes_to_the_same_parameters(trained, tmp_path):
    result = toys.resumed(trained, tmp_path / 'w', 2, evaluate=False)
    assert result['params_sha256'] == json.loads((trained / 'result.json').read_text())['params_sha256']


def test_one_document_a_row_and_packed(song, tmp_path):
    """Lines as documents, in a learned vocabulary, with and without packing."""
    for name in ('train', 'dev', 'test'):
        (tmp_path / f'{name}.en').write_text(TEXT[:4000] if name == 'train' else TEXT[-500:])
    found = {}
    for batching in ('bucketed', 'packed'):
        changes = {
            'data.batching': batching,
            'data.documents': 'lines',
            'data.language': 'en',
            'data.train': 'train',
            'data.dev': 'dev',
            'data.test': 'test',
            'data.tokenizer': 'bpe',
            'data.pieces': 300,
            'model.vocab_size': 300,
            'data.row_len': 48,
            'data.max_len': 48,
            'data.stride': 48,
            'data.batch_tokens': 384,
            'train.steps': 1,
        }
        workdir = tmp_path / batching
        assert run.main(arguments(tmp_path, workdir, **changes)) == 0
        result = json.loads((workdir / 'result.json').read_text())
        found[batching] = result['scores']['dev']
        lines = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
        # Every document fits into a row: windows and rows of training see the same.
        dev = next(line['dev_loss'] for line in lines if 'dev_loss' in line)
        assert dev == pytest.approx(found[batching]['loss'], rel=1e-5)
    assert found['bucketed']['pieces'] == found['packed']['pieces']


def test_samples_depend_on_the_seed_and_the_prompt_alone(monkeypatch, capfdbinary, trained):
    ask = lambda *argv, **more: generate(monkeypatch, capfdbinary, trained, '--json', *argv, **more)
    three = [json.loads(line) for line in ask('--prompt=12 b', '--samples=3', '--seed=7').splitlines()]
    assert [answer['line'] for answer in three] == [0, 0, 0]
    assert len({answer['text'] for answer in three}) > 1
    again = [json.loads(line) for line in ask('--prompt=12 b', '--samples=3', '--seed=7').splitlines()]
    other = [json.loads(line) for line in ask('--prompt=12 b', '--samples=3', '--seed=8').splitlines()]
    assert again == three and other != three
    both = [json.loads(line) for line in ask('--samples=3', '--seed=7', lines=b'12 b\n\n').splitlines()]
    assert both[:3] == three and [answer['line'] for answer in both] == [0] * 3 + [1] * 3


def test_a_sample_is_drawn_from_the_model(trained, monkeypatch):
    """The likelihood that is reported is that of the text, read by the full pass; longer than a row."""
    model, _ = restore.load(Run.open(trained))
    config = configs.replace(model.config, {'decode.extra_len': 8})
    # Few samples are valid UTF-8, of which the bytes could be read back.
    read = lambda self, tokens, **_: ''.join(map(chr, tokens))
    monkeypatch.setattr(type(model.codecs['text']), 'decode', read)
    prompt = '99 bo'
    found = task.hypotheses(model._replace(config=config), [prompt], samples=4, seed=3)
    for text, score in found[0]:
        tokens = [*map(ord, text)]
        assert tokens[: len(prompt)] == [byte + 3 for byte in prompt.encode()]
        # As wide as the longest, so that one program is enough.
        row = np.pad(np.array([tokens], np.int32), [(0, 0), (0, 16 - len(tokens))])
        batch = {'text': Tokens(row, (row > 0).astype(np.int32), np.arange(16, dtype=np.int32)[None])}
        logits = np.float64(programs.apply(config, model.params, batch))[0]
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected = sum(logp[i, tokens[i]] for i in range(len(prompt), len(tokens)))
        # A text that ended has its end in the score too.
        assert score <= expected + 1e-3
        if len(tokens) - len(prompt) == 8:
            assert score == pytest.approx(expected, abs=1e-3)


def test_texts_longer_than_a_row_go_on(trained, monkeypatch):
    model, _ = restore.load(Run.open(trained))
    search, keys = generator.generation.search, []
    seen = lambda *asked: keys.append(jax.random.key_data(asked[4]).tolist()) or search(*asked)
    monkeypatch.setattr(generator.generation, 'search', seen)
    for method in ('sample', 'greedy'):
        keys.clear()
        texts = task.generate(model, ['1', '', 'a' * 40], method=method, extra_len=50)
        assert len(texts) == 3
        # Each part is drawn by a key of its own.
        assert len(keys) > 1 and len({*map(tuple, keys)}) == len(keys)
        assert max(len(text.encode()) for text in texts) > 16
    with pytest.raises(ConfigError, match='extra_len'):
        task.generate(model, ['1'], method='beam', extra_len=50)


def test_a_continuation_does_not_depend_on_the_other_prompts(trained):
    """Not even where another one is too long for a row together with what follows."""
    model = load(trained)
    for method in ('sample', 'greedy'):
        alone = model.hypotheses(['12 b'], method=method, extra_len=12)
        both = model.hypotheses(['12 b', 'x' * 10], method=method, extra_len=12)
        assert both[:1] == alone


def test_of_a_long_prompt_as_much_is_read_as_fits_into_a_row_with_what_follows(trained):
    model = load(trained)
    prompt = '0123456789abcdefghijklmnopqrstuvwxyz'
    for extra, read in ((3, 13), (8, 8), (12, 8)):
        long, end = (model.hypotheses([p], method='greedy', extra_len=extra)[0][0] for p in
                     (prompt, prompt[-read:]))  # fmt: skip
        first = 3 if extra == 3 else 8
        assert long.text[len(prompt) :][:first] == end.text[read:][:first]


@pytest.mark.parametrize(
    ('positions', 'norm'),
    [('rotary', 'pre'), ('relative', 'post'), ('none', 'pre'), ('none', 'post'), ('sinusoidal', 'post')],
)
def test_the_first_gradient_is_of_a_size(positions, norm):
    """A first input of zeros would make it 1000 times larger with every norm."""
    config = configs.resolve(configs.config_dict({
        'model.kind': 'decoder', 'train.task': 'language', 'data.source': 'text', 'model.N': 4,
        'model.d_model': 16, 'model.h': 2, 'model.d_ff': 16, 'model.vocab_size': 260, 'data.pieces': 260,
        'model.positions': positions, 'model.norm': norm,
    }))  # fmt: skip
    batch = jax.tree.map(lambda x: jax.numpy.asarray(x)[None], models.blank(config, 4, 6))
    params = jax.jit(lambda key: models.initialize(config, key))(jax.random.key(0))
    mean = lambda params: (lambda found: found['loss'] / found['weight'])(
        sums_of(config)(params, batch, None)
    )
    gradient = jax.jit(jax.grad(mean))(params)
    norm_of_gradient = math.sqrt(sum(float((g**2).sum()) for g in jax.tree.leaves(gradient)))
    assert 0.01 < norm_of_gradient < 100


def test_beams_and_samples_that_do_not_go_together(trained, caplog):
    model = load(trained)
    best = model.hypotheses(['4'], method='beam', best=3, extra_len=6)[0]
    assert len(best) == 3
    assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)
    # Room for nothing: the prompt as it is, however it is searched.
    for method in ('beam', 'greedy', 'sample'):
        done = []
        texts = model.generate(['4 4', ''], method=method, extra_len=0, on_done=done.append)
        assert (texts, sum(done)) == (['4 4', ''], 2)
    # A prompt without room for what follows leaves the other lines their answers.
    caplog.clear()
    short, long = model.hypotheses(['4', '4 4 4 4 4 4'], method='beam', extra_len=12, best=2, first=5)
    assert short == model.hypotheses(['4'], method='beam', extra_len=12, best=2)[0]
    assert long == [('4 4 4 4 4 4', 0.0)] * 2
    assert [record.args[0] for record in caplog.records] == [7]
    with pytest.raises(ConfigError, match='samples=2'):
        model.hypotheses(['4'], method='greedy', samples=2)
    with pytest.raises(ConfigError, match='nbest=2'):
        model.hypotheses(['4'], method='sample', best=2)


def test_a_long_prompt_keeps_its_end(trained, caplog):
    model = load(trained)
    long, end = 'x' * 500 + ' 7 bottles', ' 7 bottles'
    longest = model.trained.config.decode.max_source_len
    found = model.generate([long], method='greedy', extra_len=4, max_source_len=10)
    assert [record.args for record in caplog.records] == [(1, 510)] and longest > 10
    assert found == model.generate([end], method='greedy', extra_len=4)


def test_a_prompt_of_several_lines_and_texts_that_have_some(monkeypatch, capfdbinary, trained):
    out = generate(monkeypatch, capfdbinary, trained, '--prompt=9 b\no', '--samples=3').decode()
    texts = out.split('\n---\n')
    assert len(texts) == 3 and all(text.startswith('9 b\no') for text in texts)
    out = generate(monkeypatch, capfdbinary, trained, lines=b'1\n2\n').decode()
    first, second = out.split('\n---\n')
    assert first[0] == '1' and second[0] == '2'


def test_a_newline_does_not_begin_a_line_of_answers(trained, monkeypatch):
    model, _ = restore.load(Run.open(epath.Path(trained)))
    codec = model.codecs['text']
    tokens = np.array([codec.encode('a\nb')])
    written = Hypotheses(tokens, np.zeros(1))
    monkeypatch.setattr(
        generator.generation, 'search', lambda trained, asked, rows, *_: [written] * len(rows)
    )
    for documents, expected in (('lines', 'x a b'), ('files', 'x a\nb')):
        data = dataclasses.replace(model.config.data, documents=documents)
        changed = model._replace(config=dataclasses.replace(model.config, data=data))
        assert generator.generate(changed, ['x '], method='greedy') == [expected]


def test_a_prompt_of_several_texts_is_part_of_the_answer(trained, monkeypatch):
    """The pieces of GPT-2 have one for the end, and a prompt of examples holds several."""
    model, _ = restore.load(Run.open(epath.Path(trained)))
    tokenizer = kinds.read(vocabulary.train(['aab ab', 'ab aab'], 260, 'byte_bpe'))
    model = model._replace(codecs={'text': tokenizer})
    written = Hypotheses(np.array([tokenizer.encode('b')]), np.zeros(1))
    monkeypatch.setattr(
        generator.generation, 'search', lambda trained, asked, rows, *_: [written] * len(rows)
    )
    prompt = 'ab<|endoftext|>\xe4<|endoftext|>a'
    assert generator.generate(model, [prompt], method='greedy') == [prompt + 'b']


def test_a_diagnosis_reads_the_learning_curve(capfd, trained):
    assert run.main(['run.py', 'diagnose', f'--workdir={trained}']) == 0
    assert 'findings on test: ' in capfd.readouterr().out


@pytest.mark.parametrize(
    ('argv', 'parts'),
    [
        (['translate'], ['train.task=language', 'generate']),
        (['generate', '--prompt=a', '--nbest=3'], ['nbest=3']),
        (['figure', '--sentence=one two', '--word=three'], ['three', 'one two']),
        (['figure', '--sentence=one two', '--target_word=three'], ['--target_word=three']),
        (['generate', '--prompt=a', f'--seed={2**40}'], ['seed', str(2**40)]),
        (['generate', '--prompt=a', '--samples=100000000'], ['samples', '100000000']),
        (['evaluate', '--split=train'], ['--split=train', 'dev, test']),
        (['evaluate', '--config.data.stride=17'], ['data.stride=17', 'data.row_len=16']),
    ],
)
def test_what_a_language_model_cannot_do(capfd, monkeypatch, trained, argv, parts):
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'one\n')))
    capfd.readouterr()
    assert run.main(['run.py', *argv, f'--workdir={trained}']) == 2
    # A line that names the checkpoint may stand before it.
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith('error: ')
    assert all(part in error for part in parts), error


def test_a_figure_of_its_heads(trained, capsys, caplog):
    call = ['run.py', 'figure', f'--workdir={trained}', '--sentence=12 bottles', '--word=bottles']
    drawn = []
    for _ in range(2):
        capsys.readouterr()
        assert run.main(call) == 0
        drawn.append(pathlib.Path(capsys.readouterr().out.strip()))
    # The same call draws the same file.
    assert drawn[0] == drawn[1] and drawn[0].parent == trained / 'figures'
    assert drawn[0].stat().st_size > 1000
    model = load(trained)
    with pytest.raises(ConfigError, match='sentence'):
        model.attention(5)
    [seen] = model.attention('12 bottles').kinds
    assert seen.weights.shape == (1, 2, 11, 11) and seen.word == 'bottles'
    np.testing.assert_allclose(seen.weights.sum(-1), 1.0, rtol=1e-5)
    [last] = model.attention('Ja, 12 bottles!').kinds
    assert last.word == 'bottles'
    # A text without a word that is longer than a row.
    [everything] = model.attention('?! ' * 30).kinds
    assert everything.word is None and everything.queries == everything.keys
    assert len(everything.keys) == 16 and 'only the first 16 of 91 pieces are drawn' in caplog.text


def test_every_task_gives_loss_and_weight():
    config = configs.resolve(configs.config_dict({
        'model.kind': 'decoder', 'train.task': 'language', 'data.source': 'text', 'model.N': 1,
        'model.d_model': 16, 'model.h': 2, 'model.d_ff': 16, 'model.vocab_size': 260, 'data.pieces': 260,
    }))  # fmt: skip
    batch = jax.tree.map(lambda x: jax.numpy.asarray(x)[None], models.blank(config, 2, 4))
    params = jax.jit(lambda key: models.initialize(config, key))(jax.random.key(0))
    whole = jax.jit(sums_of(config))(params, batch, None)
    assert float(whole['weight']) == 8.0
    half = jax.jit(sums_of(config))(params, batch | {'weight': jax.numpy.full((1, 2, 4), 0.5)}, None)
    assert float(half['weight']) == 4.0
    assert float(half['loss']) == pytest.approx(float(whole['loss']) / 2, rel=1e-5)


def test_evaluates_and_compares_on_a_file(capfd, monkeypatch, trained, tmp_path):
    """The test split in a file has the scores of the test split."""
    before = (trained / 'result.json').read_text()
    scores = json.loads(before)['scores']['test']
    (tmp_path / 'mine.txt').write_text(TEXT[len(TEXT) * 90 // 100 :])
    monkeypatch.chdir(tmp_path)
    assert run.main(['run.py', 'evaluate', f'--workdir={trained}', '--text=mine.txt']) == 0
    (found,) = json.loads((trained / 'result.json').read_text())['evaluations'].values()
    assert {key: found[key] for key in scores} == scores
    capfd.readouterr()
    call = ['run.py', 'compare', f'{trained}:4', f'{trained}:2', '--text=mine.txt', '--json']
    assert run.main(call) == 0
    report = json.loads(capfd.readouterr().out)['scores']
    found = report['bits_per_byte']
    assert found['a'] != found['b'] and scores['bits_per_byte'] in (found['a'], found['b'])
    # Both are known now; windows of another stride are noted.
    again = json.loads((trained / 'result.json').read_text())
    assert [name.rpartition('.')[2] for name in again['evaluations']] == ['latest', '4', '2']
    with monkeypatch.context() as patched:
        patched.setattr('transformer.actions.compare.evaluate_files', None)
        assert run.main(call) == 0
    assert json.loads(capfd.readouterr().out)['notes'] == []
    _, *sides = [contract.Evaluation(name, entry, []) for name, entry in again['evaluations'].items()]
    sides[1].entry['context']['stride'] += 1
    opened = Run.open(trained)
    [note] = incomparable((Side(opened, '4'), Side(opened, '2')), sides)
    stride = opened.config.data.stride
    assert f'stride {stride} and {stride + 1}' in note
    del sides[1].entry['context']['stride']  # as an earlier version
    assert not [*incomparable((Side(opened, '4'), Side(opened, '2')), sides)]
    other = Run.open(trained)
    other.__dict__['codecs'] = {'text': kinds.read(vocabulary.train(['aab ab', 'ab aab'], 260, 'byte_bpe'))}
    [note] = incomparable((Side(opened, '4'), Side(other, '4')), sides)
    assert 'different tokenizers' in note
    (trained / 'result.json').write_text(before)


def test_a_prompt_that_ends_in_a_blank(trained, caplog):
    model, _ = restore.load(Run.open(epath.Path(trained)))
    for tokenizer, count in (('bytes', 0), ('bpe', 1)):
        caplog.clear()
        data = dataclasses.replace(model.config.data, tokenizer=tokenizer)
        asked = model._replace(config=dataclasses.replace(model.config, data=data))
        generator._encode(asked, ['a', 'a ', 'b '], model.config.decode, 3)
        warnings = [record.getMessage() for record in caplog.records]
        assert len(warnings) == count
    assert warnings[0].startswith('prompt 5 ') and '1 more' in warnings[0]


def test_byte_level_pieces_and_a_prompt_for_all_lines(song, tmp_path, monkeypatch, capfdbinary):
    workdir, prompt = tmp_path / 'w', tmp_path / 'examples.txt'
    changes = {'data.tokenizer': 'byte_bpe', 'data.pieces': 280, 'train.steps': 2, 'train.microbatches': 8}
    assert run.main([*arguments(song, workdir, **changes), '--no-evaluation']) == 0
    prompt.write_text('5 bottles\n')
    lines = [('6 bottles', '6 béers'), ('on', 'wall'), ('x', 'x')]
    monkeypatch.setattr(
        sys, 'stdin', io.TextIOWrapper(io.BytesIO(b''.join(f'{a}\t{b}\n'.encode() for a, b in lines)))
    )
    capfdbinary.readouterr()
    call = ['run.py', 'score-pairs', f'--workdir={workdir}', '--contrast', '--json', f'--prompt={prompt}']
    assert run.main(call) == 0
    *written, shares = map(json.loads, capfdbinary.readouterr().out.splitlines())
    model = load(workdir)
    assert model.trained.codecs['text'].size == 280
    scores = model.likelihoods_after('5 bottles\n')
    texts = [(text,) for pair in lines for text in pair]
    totals = np.reshape([one.total for one in scores(texts)], (3, 2))
    np.testing.assert_allclose([line['logp'] for line in written], totals, rtol=1e-6)
    assert [line['right'] for line in written] == [*(totals[:2, 0] > totals[:2, 1]).tolist(), None]
    assert shares['equal'] == 1 and shares['count'] == 2
    plain = [one.total for one in model.likelihoods(iter(texts))]
    assert not np.allclose(plain, totals.reshape(-1), rtol=1e-3)
    assert run.main([*call[:-1], f'--prompt={tmp_path / "none"}']) == 2
    assert b'none' in capfdbinary.readouterr().err
