"""Spans of paragraphs: windows, the loss in numpy, answers by hand, the command."""

import contextlib
import dataclasses
import io
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys

import transformer
from transformer import config as configs
from transformer import tasks
from transformer.cli import main as run
from transformer.config import ConfigError
from transformer.data.arrays import Dense
from transformer.data.dataset import Split
from transformer.data.sources import squad
from transformer.nn import ensemble
from transformer.runs import restore
from transformer.tasks import sums_of, task_of
from transformer.tasks.answers import task as answers
from transformer.tokens import EOS

PLACES = ['Berlin', 'Paris', 'Rome', 'Oslo']


def write(folder, optional=False):
    rng = np.random.default_rng(0)
    for split, count in (('train', 60), ('dev', 8), ('test', 9)):
        paragraphs = []
        for number in range(count):
            place = PLACES[rng.integers(4)]
            context = ' '.join(
                ['the old dog sleeps .'] * int(rng.integers(1, 6)) + [f'It lives in {place} now .']
            )
            found = [{'answer_start': context.index(place), 'text': place}]
            missing = optional and number % 3 == 0
            question = {
                'question': 'Where is it?',
                'answers': [] if missing else found,
                'is_impossible': missing,
            }
            paragraphs.append({'context': context, 'qas': [question]})
        (folder / f'{split}.json').write_text(json.dumps({'data': [{'paragraphs': paragraphs}]}))
    return folder


@pytest.fixture(scope='module', params=[False, True], ids=['answered', 'optional'])
def trained(request, tmp_path_factory):
    texts = write(tmp_path_factory.mktemp('texts'), request.param)
    config = toys.config_of(
        texts, train__task='answers', data__source='squad', data__train='train.json', data__dev='dev.json',
        data__test='test.json', answers__stride=8, answers__no_answer=request.param, data__row_len=48,
    )  # fmt: skip
    return toys.trained(config, tmp_path_factory.mktemp('runs') / 'run')


def test_windows_cover_a_paragraph_and_keep_the_question(trained):
    config = trained.config
    question, context = [5, 6, EOS], [*range(100, 220), EOS]
    windows = answers.windows_of(config, question, context)
    longest = config.data.max_len
    covered = set()
    for number, window in enumerate(windows):
        assert window.pieces[: window.before] == question and window.pieces[-1] == EOS
        assert len(window.pieces) <= longest and window.start == number * config.answers.stride
        part = window.pieces[window.before : -1]
        assert part == context[window.start : window.start + len(part)]
        covered |= set(part)
    assert covered == set(context[:-1])
    # No window after the first that reaches the end.
    assert all(w.pieces[-2] != context[-2] for w in windows[:-1])
    [short] = answers.windows_of(config, question, [100, 101, EOS])
    assert short.pieces == [*question, 100, 101, EOS]
    long = answers.windows_of(config, [*range(5, 90), EOS], context)
    assert all(len(window.pieces) <= longest and window.before <= longest // 2 for window in long)
    # The room for a paragraph is less than the stride, and no window is without a part of it.
    wide = configs.replace(config, {'answers.stride': longest - 2})
    long = answers.windows_of(wide, [*range(5, 90), EOS], context)
    assert all(window.before < len(window.pieces) - 1 for window in long)
    assert {piece for window in long for piece in window.pieces[window.before : -1]} == set(context[:-1])


def test_the_loss_is_that_of_both_ends_among_the_pieces_of_a_window(trained):
    config, dataset = trained.config, trained.copied_data()
    params = restore.load(trained)[0].params
    batch = task_of(config).batches(config, dataset, 'test').batch(0)
    rows = {name: jax.tree.map(lambda x: x[None], value) for name, value in batch.items()}
    found = jax.jit(sums_of(config), static_argnums=2)(params, rows, None)
    logits = np.asarray(jax.jit(lambda p, b: ensemble.logits(config, p, b, None))(params, batch), np.float64)
    total, weight = 0.0, 0
    for r, e in zip(*np.nonzero(batch['weight']), strict=True):
        own = logits[r][batch['text'].segments[r] == e + 1]
        logp = own - np.log(np.exp(own).sum(axis=0))
        begin, end = batch['span'][r, e]
        total -= (logp[begin, 0] + logp[end, 1]) / 2
        weight += 1
    assert float(found['loss']) == pytest.approx(total, rel=1e-5) and float(found['weight']) == weight


def test_an_ensemble_of_a_model_with_itself_is_the_model(trained):
    config, params = trained.config, restore.load(trained)[0].params
    batch = task_of(config).batches(config, trained.copied_data(), 'test').batch(0)
    rows = {name: jax.tree.map(lambda x: x[None], value) for name, value in batch.items()}
    one, two = (jax.jit(sums_of(config), static_argnums=2)(p, rows, None) for p in (params, (params,) * 2))
    assert float(one['loss']) == pytest.approx(float(two['loss']), rel=1e-6)
    text = jax.tree.map(jnp.asarray, batch['text'])
    one, two = (answers._logits(config, p, None, text) for p in (params, (params,) * 2))
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_spans_of_a_batch_are_the_answers(trained):
    """Every window has one, unless questions can have none."""
    config, dataset = trained.config, trained.copied_data()
    made = task_of(config).batches(config, dataset, 'test')
    tokenizer, seen, without = trained.codecs['context'], 0, 0
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        for r, e in zip(*np.nonzero(batch['weight']), strict=True):
            own = batch['text'].tokens[r][batch['text'].segments[r] == e + 1]
            begin, end = batch['span'][r, e]
            if begin:
                seen += 1
                assert tokenizer.decode(own[begin : end + 1]).strip() in PLACES
            without += not begin
    assert seen >= 6 and (without > 0) == config.answers.no_answer


def test_a_file_in_another_code_is_told_as_such(tmp_path):
    (tmp_path / 'x.json').write_text('{"data": []}', encoding='utf-16')
    with pytest.raises(ConfigError, match='x.json: is UTF-16'):
        list(squad._questions(tmp_path / 'x.json'))


def test_a_wrong_answer_is_named_by_the_number_of_its_question(tmp_path):
    write(tmp_path)
    content = json.loads((tmp_path / 'dev.json').read_text())
    second = [qa for part in content['data'] for p in part['paragraphs'] for qa in p['qas']][1]
    second['answers'][0]['answer_start'] += 1
    (tmp_path / 'dev.json').write_text(json.dumps(content))
    config = toys.config_of(
        tmp_path, train__task='answers', data__source='squad', data__train='train.json',
        data__dev='dev.json', data__test='test.json', answers__stride=8, data__row_len=48,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r'dev\.json: question 2: the answer'):
        tasks.prepare(config, tmp_path / 'cache')


def test_questions_need_an_answer_unless_they_can_have_none(trained):
    config, dataset = trained.config, trained.copied_data()
    fields = dataset.splits['test'].fields
    none = Dense(np.full_like(fields['answer'].values, -1))
    without = dataclasses.replace(dataset, splits={'test': Split(fields | {'answer': none})})
    if config.answers.no_answer:
        spans = task_of(config).batches(config, without, 'test').corpus.fields['span'].values
        assert len(spans) and not spans.any()
    else:
        with pytest.raises(ConfigError, match='^data.test: .* answers.no_answer=True'):
            task_of(config).batches(config, without, 'test')


def test_answers_are_parts_of_their_paragraph_with_the_best_ends(trained, monkeypatch):
    """With given logits: the best pair of ends, the first not after the last, and at most `longest` apart."""
    config = trained.config
    window = answers.Window([5, EOS, *range(100, 110), EOS], 2, 40)
    logits = np.full((13, 2), -5.0)
    logits[2 + 3, 0], logits[2 + 6, 1], logits[2 + 1, 1] = 4.0, 3.0, 9.0
    logits[0] = 50.0  # the question is never an answer
    (score, begin, end), *_ = answers._spans(config, window, logits)
    # The largest last piece is before the first: -5 + 9 with the pieces 0 or 1, or 4 + 3.
    assert (score, begin, end) == (7.0, 43, 46)
    for longest, expected in ((4, (7.0, 43, 46)), (3, (4.0, 40, 41))):
        shorter = configs.replace(config, {'answers.longest': longest})
        assert next(answers._spans(shorter, window, logits)) == expected


def test_a_text_that_occurs_in_several_windows_has_its_best_score(trained, monkeypatch):
    """Windows of 3, 3 and 3 pieces whose likeliest spans are a blank, a word twice and another between."""
    config = configs.replace(trained.config, {'answers.no_answer': False})
    spans = iter([[(6.0, 0, 0), (5.0, 1, 1)], [(3.0, 1, 1)], [(4.0, 2, 2)]])
    monkeypatch.setattr(answers, '_spans', lambda *_: iter(next(spans)))
    monkeypatch.setattr(answers, 'windows_of', lambda *_: [answers.Window([5, EOS, 100, EOS], 2, 0)] * 3)
    of_run = restore.load(trained)[0]._replace(config=config)
    offsets = of_run.codecs['context'].offsets('Oslo Rome')
    first, second = ('Oslo Rome'[begin:end].strip() for begin, end in offsets[1:3])
    [found] = answers._answers(of_run, [('Where?', 'Oslo Rome')], 3, lambda count: None)
    assert [tuple(one) for one in found] == [(first, 5.0), (second, 4.0)]
    # The score of no answer is the least of the windows'.
    logits = [np.full((4, 2), half, np.float32) for half in (2.4, 1.5, 2.2)]
    monkeypatch.setattr(answers.batch_shapes, 'run_pieces', lambda *_: logits)
    spans = iter([[(5.0, 1, 1)], [], []])
    of_run = of_run._replace(config=configs.replace(config, {'answers.no_answer': True}))
    [found] = answers._answers(of_run, [('Where?', 'Oslo Rome')], 3, lambda count: None)
    assert [tuple(one) for one in found] == [(first, 5.0), ('', 3.0)]


def test_the_best_answers_are_different_texts_in_order(trained):
    of_run, _ = restore.load(trained)
    of_run = of_run._replace(config=configs.replace(of_run.config, {'answers.longest': 3}))
    text = 'Where?\tOslo is in  Norway, é'
    [every] = answers.answer(of_run, [text], best=500)
    assert len({one.text for one in every}) == len(every) > 12
    assert [one.score for one in every] == sorted((one.score for one in every), reverse=True)
    # Fewer are the first of these.
    for best in (1, 2, 6, 12):
        [found] = answers.answer(of_run, [text], best=best)
        assert [one.text for one in found] == [one.text for one in every[:best]]
    assert [one.text for one in answers.answer(of_run, ['Where?\t'], best=3)[0]] == ['']


def test_what_has_no_room_is_counted(trained, caplog):
    config, dataset = trained.config, trained.copied_data()
    texts = dataset.splits['test'].fields
    context = [texts['context'][i].tolist() for i in range(len(dataset.splits['test']))]
    # Every answer ends with its paragraph's last piece and begins with its first one.
    spans = np.array([(0, len(pieces) - 2) for pieces in context], '<i4')
    of_all = dataclasses.replace(dataset, splits={'test': Split(texts | {'answer': Dense(spans)})})
    narrow = configs.replace(config, {'data.max_len': 10, 'answers.stride': 2})
    wide = sum(
        len(answers.windows_of(narrow, texts['question'][i].tolist(), c)) > 1 for i, c in enumerate(context)
    )
    refused = pytest.raises(ConfigError, match='needs a larger data.max_len')
    with contextlib.nullcontext() if config.answers.no_answer else refused:
        answers.batches(narrow, of_all, 'test')
    assert wide and f'answer to {wide} of {len(context)} questions' in caplog.text
    caplog.clear()
    of_run, _ = restore.load(trained)
    pieces = len(of_run.codecs['question'].encode('who ' * 99))
    answers.answer(of_run, ['a\tb', f'{"who " * 99}\tOslo'], first=4)
    assert f'line 6: only {config.data.max_len // 2} of the {pieces} pieces' in caplog.text
    assert 'line 5' not in caplog.text


def test_words_are_refused_as_pieces(trained):
    with pytest.raises(ConfigError, match=r'^data\.tokenizer=words: '):
        answers.reading(configs.replace(trained.config, {'data.tokenizer': 'words'}))


def test_the_command_and_the_scores(trained, monkeypatch, capfd):
    scores, data = trained.result()['scores']['test'], pathlib.Path(trained.config.data.dir)
    [article] = json.loads((data / 'test.json').read_text())['data']
    lines = (trained.folder / 'translations' / 'test.latest.txt').read_text().split('\n')[:-1]
    exact, f1 = [], []
    for line, paragraph in zip(lines, article['paragraphs'], strict=True):
        # Of one word, or none.
        gold = [one['text'].lower() for one in paragraph['qas'][0]['answers']]
        words = [word for word in line.lower().replace('.', '').split() if word != 'the']
        exact.append(words == gold)
        f1.append(2 * (gold[0] in words) / (1 + len(words)) if gold else not words)
    assert scores['exact']['score'] == pytest.approx(100 * np.mean(exact))
    assert scores['f1']['score'] == pytest.approx(100 * np.mean(f1))
    assert 'perplexity' not in scores
    context = 'the old dog sleeps . It lives in Oslo now .'
    given = f'Where is it?\t{context}\nno tab\n'
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(given.encode())))
    assert run.main(['run.py', 'answer', f'--workdir={trained.folder}']) == 0
    first, second = capfd.readouterr().out.split('\n')[:2]
    assert first in context and second == ''
    [best] = transformer.load(trained.folder).answer([f'Where is it?\t{context}'], best=3)
    assert len({one.text for one in best if one.score}) == len([one for one in best if one.score])
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
