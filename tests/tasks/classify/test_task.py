"""Classes and numbers of texts: the loss and the scores in numpy, the command, own files, warm starts."""

import io
import json
import math
import pathlib
import shutil

import jax
import numpy as np
import pytest
import toys

import transformer
from transformer.actions.evaluate import evaluate_own
from transformer.cli import main as run
from transformer.config import ConfigError
from transformer.data import text_input
from transformer.data.arrays import Dense
from transformer.data.codec import Labels
from transformer.data.dataset import Split
from transformer.nn import models
from transformer.runs import restore, warm_start
from transformer.runs.hashes import named_leaves
from transformer.runs.workdir import Run
from transformer.tasks import sums_of, task_of
from transformer.tasks.classify import task
from transformer.tasks.classify.task import classify

WORDS = {'animal': ['dog', 'cat', 'cow'], 'colour': ['red', 'blue', 'green'], 'number': ['one', 'two', 'six']}
KINDS = {
    'transformer': {},
    'recurrent': {'model__kind': 'recurrent', 'model__bidirectional': True},
    'convolutional': {'model__kind': 'convolutional'},
}


def write(folder: pathlib.Path) -> pathlib.Path:
    """Sentences whose class is that of their last word, and a number: how many words they have."""
    rng = np.random.default_rng(0)
    for split, count in (('train', 120), ('dev', 20), ('test', 21)):
        lines = ['kind\tsentence\tother\tsize']
        for _ in range(count):
            kind = str(rng.choice([*WORDS]))
            words = ['the', *rng.choice(['old', 'new', 'big'], rng.integers(1, 5)), rng.choice(WORDS[kind])]
            lines.append(f'{kind}\t{" ".join(words)}\tand\t{len(words) / 2}')
        (folder / f'{split}.tsv').write_text('\n'.join(lines) + '\n')
    return folder


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
    return write(tmp_path_factory.mktemp('texts'))


def config_of(texts, **changes):
    common = {
        'train__task': 'classify', 'data__source': 'table', 'data__train': 'train.tsv',
        'data__dev': 'dev.tsv', 'data__test': 'test.tsv', 'data__columns': 'text=sentence,label=kind',
    }  # fmt: skip
    return toys.config_of(texts, **(common | changes))


NUMBER = {'classify__output': 'number', 'data__columns': 'text=sentence+other,label=size'}


@pytest.fixture(scope='module', params=[*KINDS, 'number'])
def trained(request, texts, tmp_path_factory):
    changes = NUMBER if request.param == 'number' else KINDS[request.param]
    return toys.trained(config_of(texts, **changes), tmp_path_factory.mktemp('runs') / request.param)


def test_the_config_that_data_complete_is_that_of_the_same_training(texts, tmp_path):
    """The number of classes and the schedule's end are in the work directory, not in the user's config."""
    config = config_of(texts, train__steps=100_000, train__epochs=2.0, train__schedule='linear')
    assert config.classify.classes is None
    first = toys.trained(config, tmp_path / 'run', evaluate=False)
    assert (first.config.classify.classes, first.config.train.decay_steps) == (3, first.result()['steps'])
    again = toys.trained(config, tmp_path / 'run', evaluate=False)
    assert again.result()['params_sha256'] == first.result()['params_sha256']


def lines_of(texts, split='test'):
    return [line.split('\t') for line in (texts / f'{split}.tsv').read_text().splitlines()[1:]]


def test_scores_are_those_of_the_answers(trained, texts):
    """The answers to the test set give the recorded scores, recomputed here."""
    number = trained.config.classify.output == 'number'
    columns = lines_of(texts)
    given = [f'{c[1]}\t{c[2]}' if number else c[1] for c in columns]
    scores = trained.result()['scores']['test']
    lines = (trained.folder / 'translations' / 'test.latest.txt').read_text().splitlines()
    answers = transformer.load(trained.folder).classify(given)
    assert [one.text for one, *_ in answers] == lines
    assert 'perplexity' not in scores
    if number:
        gold, found = np.array([float(c[3]) for c in columns]), np.array(lines, float)
        assert scores['loss'] == pytest.approx(np.mean((gold - found) ** 2), rel=1e-3)
        assert scores['pearson']['score'] == pytest.approx(np.corrcoef(gold, found)[0, 1], abs=1e-3)
        return
    right = [line == c[0] for line, c in zip(lines, columns, strict=True)]
    assert scores['accuracy']['score'] == pytest.approx(np.mean(right))
    every = transformer.load(trained.folder).classify(given, best=3)
    assert all(math.isclose(sum(one.score for one in found), 1.0, rel_tol=1e-5) for found in every)
    by_name = [{one.text: one.score for one in found} for found in every]
    nll = [-math.log(p[c[0]]) for p, c in zip(by_name, columns, strict=True)]
    assert scores['loss'] == pytest.approx(np.mean(nll), rel=1e-4)
    names = trained.codecs['label'].names
    pairs = [(c[0], line) for line, c in zip(lines, columns, strict=True)]
    assert scores['confusion'] == [[pairs.count((gold, found)) for found in names] for gold in names]


@pytest.mark.parametrize('trained', ['transformer'], indirect=True)
def test_f1_of_two_classes_is_of_the_second(trained, monkeypatch):
    model, gold = restore.load(trained)[0], np.array([0, 0, 1, 1, 1])
    model = model._replace(codecs=model.codecs | {'label': Labels(('no', 'yes'))})
    logits = np.eye(2, dtype=np.float32)[[0, 0, 0, 0, 1]]
    for name, value in {'_predict': logits, 'means_of': {}, 'cut_entry': {}}.items():
        monkeypatch.setattr(task, name, lambda *_, value=value: value)
    split = Split({'label': Dense(gold)})
    given = text_input.Given(trained.folder, model.codecs, {'test': split}, {}, {'text': ['a'] * 5}, False)
    scored = task.evaluate(model, given, 'test')
    # Of three texts of the second class one is found, and no other text is taken for it.
    assert scored.scores['f1']['score'] == pytest.approx(2 / 4)
    assert scored.scores['confusion'] == [[2, 0], [2, 1]] and scored.lines == ['no'] * 4 + ['yes']
    assert [line.split() for line in task.show(model, given).lines[2:]] == [
        ['no', '2', '0'],
        ['yes', '2', '1'],
    ]


def test_lines_with_other_texts_than_the_training_has_are_named(trained, caplog):
    texts = 2 if trained.config.classify.output == 'number' else 1
    line = lambda count: '\t'.join(['dog'] * count)
    model = transformer.load(trained.folder)
    with caplog.at_level('WARNING', logger='absl'):
        model.classify([line(texts), '', line(texts)])
        assert not caplog.records
        model.classify([line(texts), line(texts + 1), line(3 - texts)], first=10)
    (record,) = caplog.records
    assert record.args == (12, texts + 1, texts, 2)


def test_an_answer_does_not_depend_on_its_row_or_batch(trained, texts):
    config = trained.config
    model, _ = restore.load(trained)
    given = [c[1] for c in lines_of(texts)][:7]
    together = [found[0].score for found in classify(model, given)]
    alone = [classify(model, [text])[0][0].score for text in given]
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert config.data.batching == 'packed'


@pytest.mark.parametrize('trained', ['transformer', 'number'], indirect=True)
def test_the_command_reads_lines_and_a_file_of_ones_own(trained, texts, tmp_path, monkeypatch, capfd):
    given = '\n'.join(c[1] for c in lines_of(texts)[:3]) + '\n'
    monkeypatch.setattr('sys.stdin', io.TextIOWrapper(io.BytesIO(given.encode())))
    assert run.main(['run.py', 'classify', f'--workdir={trained.folder}', '--scores']) == 0
    printed = capfd.readouterr().out.splitlines()
    model = transformer.load(trained.folder)
    assert [line.split('\t')[0] for line in printed] == [
        one.text for [one] in model.classify(given.splitlines())
    ]
    capfd.readouterr()
    assert run.main(['run.py', 'classify', f'--workdir={trained.folder}', 'a.png']) == 2
    assert capfd.readouterr().err.count('\n') == 1
    # The test set again, under another name in another folder.
    (tmp_path / 'own.tsv').write_bytes((texts / 'test.tsv').read_bytes())
    monkeypatch.chdir(tmp_path)
    call = ['run.py', 'evaluate', f'--workdir={trained.folder}', '--config.data.test=own.tsv']
    assert run.main(call) == 0
    result = Run.open(trained.folder).result()
    [(name, entry)] = result['evaluations'].items()
    assert name.startswith('own-') and entry['files']['own.tsv']['name'] == 'own.tsv'
    assert entry['loss'] == pytest.approx(result['scores']['test']['loss'], rel=1e-5)
    for flag in ('--text=own.tsv', '--config.data.test=missing.tsv'):
        capfd.readouterr()
        assert run.main([*call[:3], flag]) == 2
        assert capfd.readouterr().err.count('\n') == 1


@pytest.mark.parametrize('trained', ['transformer'], indirect=True)
def test_other_columns_of_a_file_are_another_evaluation(trained, texts, tmp_path):
    shutil.copytree(trained.folder, tmp_path / 'run')
    of_run = Run.open(tmp_path / 'run')
    columns = 'text=sentence,label=kind', 'text=other,label=kind'
    found = [
        evaluate_own(of_run, 'latest', {'data.test': 'dev.tsv', 'data.dir': str(texts), 'data.columns': one})
        for one in columns
    ]
    names = [one.name for [one] in found]
    assert list(of_run.result()['evaluations'])[-2:] == names and names[0] != names[1]
    twice = {'data.test': 'dev.tsv,dev.tsv', 'data.dir': str(texts), 'data.columns': columns[0]}
    with pytest.raises(ConfigError, match='data.test: dev.tsv is named twice'):
        evaluate_own(of_run, 'latest', twice)


@pytest.mark.parametrize('trained', ['recurrent'], indirect=True)
def test_the_loss_of_a_very_long_text_is_of_the_pieces_that_an_answer_reads(trained, tmp_path, caplog):
    shutil.copytree(trained.folder, tmp_path / 'run')
    text = 'the cow ' * 600 + 'the blue ' * 600
    (tmp_path / 'long.tsv').write_text(f'kind\tsentence\tother\tsize\ncolour\t{text}\tand\t1\n')
    of_run, changes = Run.open(tmp_path / 'run'), {'data.test': 'long.tsv', 'data.dir': str(tmp_path)}
    [evaluation] = evaluate_own(of_run, 'latest', changes)
    entry = of_run.result()['evaluations'][evaluation.name]
    [cut] = [record.args for record in caplog.records if record.levelname == 'WARNING']
    assert entry['cut'] == 1 and cut == (text_input.SPLIT, 1024, 1)
    [found] = transformer.load(trained.folder).classify([text], best=3)
    [score] = [one.score for one in found if one.text == 'colour']
    assert entry['loss'] == pytest.approx(-math.log(score), rel=1e-5)


@pytest.mark.parametrize('trained', ['transformer'], indirect=True)
def test_an_ensemble_pools_in_one_way(trained, tmp_path):
    shutil.copytree(trained.folder, tmp_path / 'last')
    config = json.loads((tmp_path / 'last' / 'config.json').read_text())
    config['classify']['pool'] = 'last'
    (tmp_path / 'last' / 'config.json').write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"classify.pool is 'last' there and 'mean'"):
        restore.load(trained, f'latest,{tmp_path / "last"}:latest')


def test_classes_come_from_the_data(texts, tmp_path):
    config = config_of(texts)
    assert config.classify.classes is None
    with pytest.raises(ConfigError):
        toys.trained(config_of(texts, classify__classes=7), tmp_path / 'seven')
    assert not (tmp_path / 'seven').exists()
    shutil.copytree(texts, tmp_path / 'texts')
    lines = (texts / 'train.tsv').read_text().splitlines()
    animals = [line for line in lines if line.startswith(('kind', 'animal'))]
    (tmp_path / 'texts' / 'train.tsv').write_text('\n'.join(animals) + '\n')
    with pytest.raises(ConfigError, match="'animal'"):
        toys.trained(
            config_of(tmp_path / 'texts', data__dev='train.tsv', data__test='train.tsv'), tmp_path / 'one'
        )
    assert not (tmp_path / 'one').exists()


BERT = {'model__token_types': 2, 'model__norm_embedding': True}


@pytest.fixture(scope='module')
def masked(texts, tmp_path_factory):
    for split in ('train', 'dev', 'test'):
        sentences = '\n'.join(c[1] for c in lines_of(texts, split))
        (texts / f'{split}.en').write_text(sentences + '\n')
    masking = {'train__task': 'masked', 'data__source': 'text', 'data__language': 'en', 'data__dev': 'dev'}
    folder = tmp_path_factory.mktemp('masked') / 'run'
    return toys.trained(toys.config_of(texts, **masking, **BERT), folder, evaluate=False)


def test_a_warm_start_from_a_masked_model_takes_every_array_of_the_encoder(
    texts, masked, tmp_path, monkeypatch
):
    compared = []
    monkeypatch.setattr(warm_start, 'warn_of_classes', lambda _, codecs: compared.append(set(codecs)))
    config = config_of(texts, train__frozen='encoder', **BERT)
    run_of_classes = toys.trained(config, tmp_path / 'w', [str(masked.folder)], evaluate=False)
    assert compared == [{'text', 'label'}]
    record = run_of_classes.start()
    names = named_leaves(models.parameter_shapes(masked.config))
    shared = 'encoder/', 'embedding/', 'positions/'
    assert set(record['taken']) == {name for name in names if name.startswith(shared)}
    assert 'encoder/layer_0/self_attention/query/kernel' in record['taken']
    assert {'positions/token_types', 'positions/norm/layer/scale'} <= set(record['taken'])
    assert all(name.startswith('head/') for name, why in record['left'].items() if 'new model' in why)
    tokenizers = [one.codecs['text'].sha256 for one in (run_of_classes, masked)]
    assert tokenizers[0] == tokenizers[1]
    # What is frozen keeps the other run's values, and nothing else does.
    before, after = (named_leaves(restore.load(one)[0].params) for one in (masked, run_of_classes))
    same = {name: np.array_equal(before[name], after[name]) for name in record['taken']}
    assert all(same[n] for n in same if n.startswith('encoder/')) and not same['embedding/table']


def test_a_language_model_becomes_a_causal_encoder(texts, masked, tmp_path):
    """Its decoder's arrays start the encoder, whose first vector then depends on the first piece alone."""
    reading = {'data__source': 'text', 'data__language': 'en', 'data__dev': 'dev'}
    folder = tmp_path / 'language'
    text = toys.trained(
        toys.config_of(masked.config.data.dir, train__task='language', **reading), folder, evaluate=False
    )
    causal = {'classify__causal': True, 'classify__pool': 'first', 'train__frozen': 'encoder'}
    run_of_classes = toys.trained(config_of(texts, **causal), tmp_path / 'w', [f'{folder}:4'], evaluate=False)
    record, decoder = run_of_classes.start(), restore.load(text, '4')[0].params
    names = named_leaves(decoder)
    assert record['taken'] == sorted(name.replace('decoder/', 'encoder/') for name in names)
    model = restore.load(run_of_classes)[0]
    jax.tree.map(np.testing.assert_array_equal, model.params['encoder'], decoder['decoder'])
    answers = classify(model, ['the old dog', 'the new big cat', 'old the dog'])
    scores = [dict(answer) for answer in answers]
    assert scores[0] == pytest.approx(scores[1]) and scores[0] != pytest.approx(scores[2])


def test_slips_of_warm_starts(texts, masked, tmp_path):
    config = config_of(texts)
    here = str(masked.folder)
    for starts in ([here, here], [f'picture={here}'], ['nowhere'], ['encoder=nowhere']):
        with pytest.raises(ConfigError):
            toys.trained(config, tmp_path / 'w', starts)
    with pytest.raises(ConfigError):
        toys.trained(config_of(texts, train__frozen='encodr'), tmp_path / 'w')
    assert not (tmp_path / 'w').exists()


# Resuming depends on the batches, which are those of all kinds of models.
@pytest.mark.parametrize('trained', ['transformer'], indirect=True)
def test_a_training_that_is_stopped_and_resumed_ends_with_the_same_parameters(trained, tmp_path):
    result = toys.resumed(trained.folder, tmp_path / 'run', 2, evaluate=False)
    assert result['params_sha256'] == trained.result()['params_sha256'] and result['steps'] == 4


@pytest.mark.parametrize('trained', ['transformer', 'number'], indirect=True)
def test_the_sums_are_weighted_by_examples(trained):
    config = trained.config
    batch = task_of(config).batches(config, trained.copied_data(), 'test').batch(0)
    rows = {name: jax.tree.map(lambda x: x[None], value) for name, value in batch.items()}
    sums = jax.jit(sums_of(config), static_argnums=2)(restore.load(trained)[0].params, rows, None)
    assert float(sums['weight']) == batch['weight'].sum()
