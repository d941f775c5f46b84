"""Transliteration: several right spellings, and scores recomputed by their definitions."""

import pytest
from etils import epath

import transformer
from transformer.actions import data as run_data
from transformer.actions import train as action
from transformer.cli import main as run
from transformer.config import config_dict, resolve
from transformer.data import text_input
from transformer.data.spellings import spellings
from transformer.runs import restore
from transformer.runs.workdir import Run
from transformer.tasks.contract import Hypothesis
from transformer.tasks.transliteration import task

OPTIONS = {
    'train.task': 'transliteration',
    'model.N': 1,
    'model.d_model': 16,
    'model.d_ff': 24,
    'model.h': 2,
    'data.source': 'text',
    'data.source_language': 'ar',
    'data.target_language': 'latin',
    'data.train': 'train',
    'data.dev': 'dev',
    'data.test': 'test',
    'data.tokenizer': 'characters',
    'data.pieces': 272,
    'data.batch_tokens': 512,
    'data.max_len': 32,
    'train.steps': 4,
    'train.warmup_steps': 4,
    'train.checkpoint_every': 4,
    'train.eval_every': 4,
    'train.watch_every': 4,
    'decode.extra_len': 6,
}


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Trains a model, and returns its work directory and its training's scores."""
    folder = tmp_path_factory.mktemp('names')
    names = {
        'train': [('علي', 'ali'), ('سالم', 'salim'), ('سلمى', 'salma')] * 20,
        'dev': [('علي', 'ali'), ('سالم', 'salem')],
        'test': [('سلمى', 'selma')],
    }
    for split, pairs in names.items():
        for language, texts in zip(('ar', 'latin'), zip(*pairs, strict=True), strict=True):
            (folder / f'{split}.{language}').write_text(''.join(f'{text}\n' for text in texts))
    (folder / 'dev.references.tsv').write_text('علي\tali\taly\nسالم\tsalem\tsalim\tsaleem\n')
    config = resolve(config_dict(OPTIONS | {'data.dir': str(folder)}))
    return folder, action.run_training(config, epath.Path(folder / 'run'), '')


def test_spellings_follow_the_source():
    assert spellings('ali') == ['ali']
    assert spellings('علي\tali\taly') == ['ali', 'aly']
    assert spellings('علي\t\u200e\tali') == ['ali']  # a mark of direction alone


def test_every_spelling_is_read_and_the_first_is_learned(trained):
    folder, _ = trained
    run_ = Run.open(str(folder / 'run'))
    dataset = run_data.of_run(run_)
    assert dataset.texts('dev')['target'][1] == 'سالم\tsalem\tsalim\tsaleem'
    assert dataset.texts('test')['target'] == ['selma']
    first = dataset.splits['dev'].fields['target'][1]
    assert run_.codecs['target'].decode(first) == 'salem'


def distance(first, second):
    """Computes the edit distance by the recursive definition."""
    if not first or not second:
        return len(first) + len(second)
    replaced = distance(first[1:], second[1:]) + (first[0] != second[0])
    return min(replaced, distance(first[1:], second) + 1, distance(first, second[1:]) + 1)


def test_errors_are_counted_against_the_nearest_spelling():
    lines, right = ['salim', 'ale', ''], [['salem', 'saleem'], ['ali', 'alee'], ['x']]
    # One edit of five characters, one of four or of three, one of one.
    assert task.character_error_rate(lines, right) == pytest.approx((1 / 5 + 1 / 4 + 1) / 3)
    assert task.character_error_rate(['a'], [['']]) == 1


def test_scores_of_a_training(trained):
    folder, finished = trained
    entry = finished.result['scores']['dev']
    model = transformer.load(str(folder / 'run'))
    found = model.hypotheses(['علي', 'سالم'], best=3)
    right = [{'ali', 'aly'}, {'salem', 'salim', 'saleem'}]
    texts = [[hypothesis.text for hypothesis in of_name] for of_name in found]
    assert entry['exact'] == sum(a[0] in b for a, b in zip(texts, right, strict=True)) / 2
    assert entry['exact_of_three'] == sum(bool({*a} & b) for a, b in zip(texts, right, strict=True)) / 2
    nearest = [min((distance(a[0], x), len(x)) for x in b) for a, b in zip(texts, right, strict=True)]
    edits, characters = map(sum, zip(*nearest, strict=True))
    assert entry['character_errors'] == pytest.approx(edits / characters)


def test_progress_counts_empty_texts(trained):
    folder, _ = trained
    done = []
    transformer.load(str(folder / 'run')).hypotheses(['علي', '', ' '], best=3, on_done=done.append)
    assert sum(done) == 3


def test_watching_names_no_line_that_is_cut(trained, caplog):
    run_ = Run.open(str(trained[0] / 'run'))
    model, _ = restore.load(run_, changes={'decode.max_source_len': 2})
    with caplog.at_level('WARNING', logger='absl'):
        assert set(task.watch(model, run_data.of_run(run_))) == {'exact'}
    assert not caplog.records


def test_texts_that_look_the_same_are_equal(trained, monkeypatch, tmp_path):
    folder, _ = trained
    run_ = Run.open(str(folder / 'run'))
    model, _ = restore.load(run_)
    (tmp_path / 'x.ar').write_text('علي\nسلمى\n')
    (tmp_path / 'x.tsv').write_text('علي\tJose\u0301\u200e\nسلمى\tsalma \t\n')
    paths = {'source': tmp_path / 'x.ar', 'target': tmp_path / 'x.tsv'}
    reading = task.reading(run_.config)
    dataset = text_input.read(paths, run_.config.data, reading, run_.codecs)
    written = ['Jos\u00e9 ', 'salma']
    of_three = [[Hypothesis(text, 0.0)] * 3 for text in written]
    monkeypatch.setattr(task, 'hypotheses', lambda *args, **options: of_three)
    scored = task.evaluate(model, dataset, text_input.SPLIT)
    assert [scored.scores[name] for name in ('exact', 'exact_of_three', 'character_errors')] == [1, 1, 0]
    assert scored.lines == written
    (errors,) = (measure for measure in task.TASK.measures if measure.name == 'character_errors')
    assert errors.of_lines(dataset.texts(text_input.SPLIT), written) == [0, 0]
    monkeypatch.setattr(task, 'translate', lambda *args, **options: written)
    assert task.watch(model, dataset) == {'exact': 1}


def test_changed_files_of_a_work_directory_get_a_line(trained, caplog):
    folder, _ = trained
    run_, file = Run.open(str(folder / 'run')), folder / 'dev.ar'
    before = file.read_text()
    run_data.of_run(run_)
    assert not caplog.messages
    file.write_text(before.replace('علي', 'عل'))
    try:
        dataset = run_data.of_run(run_)
    finally:
        file.write_text(before)
    assert dataset.texts('dev')['source'][0] == 'علي'
    (message,) = caplog.messages
    assert 'data.dev' in message and str(folder) in message


def test_files_of_a_user_have_several_spellings_too(trained, tmp_path, capsys):
    folder, _ = trained
    (tmp_path / 'x.ar').write_text('علي\nسلمى\n')
    (tmp_path / 'x.tsv').write_text('علي\tali\taly\nسلمى\tsalma\n')
    call = ['run.py', 'evaluate', f'--workdir={folder}/run', f'--source={tmp_path}/x.ar']
    assert run.main([*call, f'--reference={tmp_path}/x.tsv']) == 0
    output = capsys.readouterr().out
    assert 'character error rate' in output and 'one of three right' in output
