"""Text to text: prefixes, mixtures, scores recomputed, commands, slips, and the same on any devices."""

import json

import numpy as np
import pytest
import sacrebleu
import toys
from rouge_score import rouge_scorer

import transformer
from transformer import config as configs
from transformer import tasks
from transformer.actions import data as run_data
from transformer.cli import main as run
from transformer.config import ConfigError
from transformer.data import text_pairs
from transformer.runs import restore
from transformer.runs.workdir import Run
from transformer.tasks.contract import Hypothesis
from transformer.tasks.text_to_text import scores, task, writer
from transformer.tasks.translation import task as translation

SIZES = {'papers': 24, 'questions': 48, 'pairs': 12, 'kinds': 6}
PREFIXES = 'papers=summarise,questions=answer,pairs=translate English to German,kinds=kind'
WORDS = ['old', 'new', 'big', 'dog', 'cat', 'cow', 'sees', 'has']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Writes a table of four data sets for each split: the first words of a text are its target."""
    path, rng = tmp_path_factory.mktemp('tables'), np.random.default_rng(0)
    for split in ('train', 'dev', 'test'):
        rows = []
        for name, size in SIZES.items():
            for _ in range(size if split == 'train' else 4):
                words = rng.choice(WORDS, 6).tolist()
                target = [' '.join(words[:2]), ' '.join(words[1:4])]
                rows.append(
                    {'name': name, 'text': [' '.join(words[:3]), ' '.join(words[3:])], 'short': target}
                )
        content = ''.join(json.dumps(row) + '\n' for row in rows)
        (path / f'{split}.jsonl').write_text(content)
    return path


def config_of(folder, **changes):
    common = {
        'train__task': 'text_to_text', 'data__source': 'table', 'data__train': 'train.jsonl',
        'data__dev': 'dev.jsonl', 'data__test': 'test.jsonl', 'text_to_text__prefix': PREFIXES,
        'data__columns': 'set=name,source=text,target=short', 'data__batching': 'bucketed',
        'decode__method': 'greedy', 'decode__extra_len': 2, 'train__watch_every': 4,
    }  # fmt: skip
    return toys.config_of(folder, **(common | changes))


@pytest.fixture(scope='module')
def trained(folder, tmp_path_factory):
    return toys.trained(config_of(folder, text_to_text__cap=12), tmp_path_factory.mktemp('runs') / 'mixture')


@pytest.fixture(scope='module')
def dataset(trained, tmp_path_factory):
    return tasks.prepare(trained.config, tmp_path_factory.mktemp('cache'))


def rows_of(folder, split='test'):
    return [json.loads(line) for line in (folder / f'{split}.jsonl').read_text().splitlines()]


def test_prefixes_and_first_references_are_stored(trained, folder):
    dataset, codecs = run_data.of_run(trained), trained.codecs
    fields, rows = dataset.splits['test'].fields, rows_of(folder)
    prefix = dict(part.split('=') for part in PREFIXES.split(','))
    for i, row in enumerate(rows):
        expected = f'{prefix[row["name"]]}: {" ".join(row["text"])}'
        assert codecs['source'].decode(fields['source'][i].tolist()) == expected
        assert codecs['target'].decode(fields['target'][i].tolist()) == row['short'][0]
        assert codecs['set'].names[fields['set'][i]] == row['name']
    assert dataset.texts('test')['target'][0] == '\t'.join(rows[0]['short'])


def test_an_epoch_is_a_mixture(trained, dataset):
    """With a cap of 12 two sets have as many examples as the third, and the smallest half as many."""
    config = trained.config
    made, again = (task.batches(config, dataset, 'train') for _ in range(2))
    steps = range(made.steps_per_epoch, 2 * made.steps_per_epoch)
    prefixes = [prefix.partition('=')[2] for prefix in PREFIXES.split(',')]
    counts = dict.fromkeys(prefixes, 0)
    for step in steps:
        batch = made.batch(step)
        assert batch.keys() == {'source', 'target'}
        np.testing.assert_array_equal(batch['source'].tokens, again.batch(step)['source'].tokens)
        for row in batch['source'].tokens[batch['source'].segments[:, 0] > 0]:
            text = trained.codecs['source'].decode(row[row > 0].tolist())
            counts[text.partition(':')[0]] += 1
    assert list(counts.values()) == [48, 48, 48, 24]
    # With a large temperature all have equal shares.
    even = configs.replace(config, {'text_to_text.temperature': 1e6})
    assert len(task.batches(even, dataset, 'train').corpus) == 4 * 48


def test_scores_of_a_training(trained, folder):
    entry = trained.result()['scores']['test']
    path = next((trained.folder / 'translations').glob('test.*.txt'))
    lines, rows = path.read_text().splitlines(), rows_of(folder)
    of_set = {
        name: [(line, row['short']) for line, row in zip(lines, rows, strict=True) if row['name'] == name]
        for name in SIZES
    }
    scorer = rouge_scorer.RougeScorer(['rouge1', 'rouge2', 'rougeL'], use_stemmer=True)
    for name in ('rouge1', 'rouge2', 'rougeL'):
        best = [max(scorer.score(r, line)[name].fmeasure for r in right) for line, right in of_set['papers']]
        assert entry[name]['score'] == pytest.approx(100 * np.mean(best))
        assert entry['sets']['papers'][name] == entry[name]
    right = {name: np.mean([line in golds for line, golds in pairs]) for name, pairs in of_set.items()}
    both = (right['questions'] + right['kinds']) / 2
    assert entry['right']['score'] == pytest.approx(both)
    assert entry['sets']['kinds'].keys() == {'right'}
    assert entry['sets']['questions'].keys() == {'right', 'exact', 'f1'}
    written, golds = zip(*of_set['pairs'], strict=True)
    expected = sacrebleu.corpus_bleu(list(written), [list(column) for column in zip(*golds, strict=True)])
    assert entry['bleu']['score'] == pytest.approx(expected.score)
    assert entry['solved'] == sum(right[name] >= 0.95 for name in ('questions', 'kinds'))


def asked(prefix, references, data_set=''):
    return scores.Asked('', prefix, references, data_set)


def test_scores_by_hand():
    # Of "a dog barks" two words are in "the dog barks loudly": F = 2 * 2/3 * 2/4 / (2/3 + 2/4) = 4/7.
    rows = [asked('summarise', ['cats', 'the dog barks loudly'])]
    found = scores.score(rows, ['a dog barks'])
    assert found.keys() == set(scores.ROUGE)
    assert found['rouge1']['score'] == pytest.approx(400 / 7)
    # One of two and of three pairs of words; the longest common subsequence has two words.
    assert found['rouge2']['score'] == pytest.approx(100 * 2 / 5)
    assert found['rougeL']['score'] == pytest.approx(400 / 7)
    # Stems are compared, in any case of letters.
    assert scores.score([asked('summarize', ['Dogs barked'])], ['dog bark'])['rouge2']['score'] == 100
    rows = [asked('answer', ['The garden'], 'a'), asked('answer', ['n,w'], 'a'), asked('kind', [' x'], 'b')]
    found = scores.score(rows, ['garden', 'n,w', ' x '])
    assert found['right']['score'] == pytest.approx(2 / 3) and found['exact']['score'] == 100
    assert found['sets']['a']['right']['score'] == 0.5 and found['solved'] == 1
    references = [['the old dog sees a cat', 'an old dog sees the cat'], ['a cow has a big house']]
    lines = ['the old dog sees the cat', 'a cow has a house']
    found = scores.score([asked('translate English to German', right) for right in references], lines)
    columns = [[references[0][0], references[1][0]], [references[0][1], None]]
    assert found['bleu'] == {'score': sacrebleu.corpus_bleu(lines, columns).score}


def test_texts_and_references_of_a_cell():
    """Blank texts between tabs count for nothing, in a prompt as well as among the references."""
    assert text_pairs.references('a b\t \tc\t') == ['a b', 'c']
    assert text_pairs.references(' \t') == text_pairs.references('') == ['']
    assert text_pairs.prefixed('answer', 'Who?\t\ta dog') == 'answer: Who? a dog'
    assert text_pairs.prefixed('', 'Who?\ta dog') == 'Who? a dog'
    assert not text_pairs.prefixed('answer', ' \t').strip() and not text_pairs.prefixed('answer', '')


def test_watched_scores_are_those_of_greedy_outputs(trained):
    model, _ = restore.load(trained)
    found = task.watch(model, run_data.of_run(trained))
    entry = trained.result()['scores']['dev']
    assert found['rougeL'] == pytest.approx(entry['rougeL']['score'])
    assert found['solved'] == entry['solved'] and found['bleu'] == pytest.approx(entry['bleu']['score'])


def test_watching_names_no_line_that_is_cut(trained, caplog):
    model, _ = restore.load(trained, changes={'decode.max_source_len': 2})
    with caplog.at_level('WARNING', logger='absl'):
        assert {'rougeL', 'solved', 'bleu'} <= task.watch(model, run_data.of_run(trained)).keys()
    assert not caplog.records


def test_commands_put_their_prefix_first(trained, tmp_path, capfd):
    model, text = transformer.load(trained.folder), 'old dog sees'
    written = lambda prompt: [one.text for one in model.hypotheses([prompt])[0]]
    assert [one.text for one in model.summarise([text])[0]] == written(f'summarise: {text}')
    assert [one.text for one in model.answer(['Who?\told dog'])[0]] == written('answer: Who? old dog')
    prompt = f'translate English to German: {text}'
    assert model.translate([text, prompt, '']) == [*written(prompt), *written(prompt), '']
    (tmp_path / 'lines').write_text(f'{text}\n')
    call = [f'--workdir={trained.folder}', f'--input={tmp_path / "lines"}']
    assert run.main(['run.py', 'translate', *call]) == 0
    assert capfd.readouterr().out == f'{model.translate([text])[0]}\n'
    # It would search without the prefix.
    assert run.main(['run.py', 'translate', *call, '--engine=ctranslate2']) == 2
    assert '--engine=ctranslate2' in capfd.readouterr().err


def test_the_first_prefix_for_a_command_is_used(trained, monkeypatch):
    prefixes = 'papers=translate to German,questions=summarise,pairs=translate to French'
    model, _ = restore.load(trained)
    model = model._replace(config=configs.replace(model.config, {'text_to_text.prefix': prefixes}))
    echo = lambda trained, prompts: [[Hypothesis(prompt, 0.0)] for prompt in prompts]
    monkeypatch.setattr(writer, 'hypotheses', echo)
    texts = ['old dog', 'translate to French: old dog', 'translate to Dutch: old dog']
    expected = ['translate to German: old dog', texts[1], f'translate to German: {texts[2]}']
    assert writer.translate(model, texts) == expected


def test_lines_with_a_prefix_of_their_own_need_none_of_the_command(trained, monkeypatch):
    model, _ = restore.load(trained)
    model = model._replace(config=configs.replace(model.config, {'text_to_text.prefix': 'reverse'}))
    echo = lambda trained, prompts: [[Hypothesis(prompt, 0.0)] for prompt in prompts]
    monkeypatch.setattr(writer, 'hypotheses', echo)
    assert writer.translate(model, ['reverse: old dog', 'reverse: cat']) == [
        'reverse: old dog',
        'reverse: cat',
    ]
    # Parts are joined, as in training; a blank line needs no prefix.
    assert writer.translate(model, ['reverse: old\tdog', ' ']) == ['reverse: old dog', ' ']
    with pytest.raises(ConfigError, match="text_to_text.prefix has 'reverse'"):
        writer.translate(model, ['reverse: old dog', 'cat'])


def test_a_run_of_one_data_set(folder, tmp_path, capfd):
    """It needs no column of names, reads a user's two files, and refuses commands without their prefix."""
    own = toys.trained(config_of(folder, **ONE), tmp_path / 'run', evaluate=False)
    (tmp_path / 'x').write_text('old dog\n'), (tmp_path / 'y').write_text('dog\tcat\n')
    files = [f'--source={tmp_path / "x"}', f'--reference={tmp_path / "y"}']
    assert run.main(['run.py', 'evaluate', f'--workdir={own.folder}', *files]) == 0
    (entry,) = Run.open(own.folder).result()['evaluations'].values()
    assert {'rouge1', 'loss'} <= entry.keys() and not {'sets', 'right'} & entry.keys()
    capfd.readouterr()
    assert run.main(['run.py', 'answer', f'--workdir={own.folder}', f'--input={tmp_path / "x"}']) == 2
    _, line = capfd.readouterr().err.splitlines()  # the first names the checkpoint
    assert line.startswith('error: answer: ') and 'text_to_text.prefix' in line and 'summarise' in line


ONE = {'text_to_text__prefix': 'summarise', 'data__columns': 'source=text,target=short'}
SLIPS = {
    'unknown set': ({'text_to_text__prefix': f'{PREFIXES},x=answer'}, "text_to_text.prefix: .*'x'"),
    'part without a set': (
        {'text_to_text__prefix': 'papers=x,answer'},
        'text_to_text.prefix=papers=x,answer',
    ),
    'set named twice': ({'text_to_text__prefix': 'papers=x,papers=y'}, 'text_to_text.prefix=papers=x'),
    'set without prefix': ({'text_to_text__prefix': 'papers=x'}, 'line 25.*text_to_text.prefix'),
    'missing column': ({'data__columns': 'set=name,source=text,target=x'}, "line 1 has no column 'x'"),
    'no column for the set': ({'data__columns': 'source=text,target=short'}, 'data.columns=.*set'),
    'empty table': ({'data__train': 'empty.jsonl'}, 'data.train: empty.jsonl is empty'),
    'cap of 0': ({'text_to_text__cap': 0}, 'text_to_text.cap=0'),
    'temperature below 1': ({'text_to_text__temperature': 0.5}, 'text_to_text.temperature=0.5'),
    'cap without sets': (ONE | {'text_to_text__cap': 9}, 'text_to_text.cap'),
    'temperature without sets': (ONE | {'text_to_text__temperature': 2.0}, 'text_to_text.temperature'),
    'set of dev alone': ({'data__dev': 'other.jsonl'}, "other.jsonl: line 1: .*'poems'"),
}


@pytest.mark.parametrize('slip', SLIPS)
def test_slips(folder, tmp_path, slip):
    (folder / 'empty.jsonl').write_text('')
    (folder / 'other.jsonl').write_text('{"name": "poems", "text": "x", "short": "y"}\n')
    changes, told = SLIPS[slip]
    with pytest.raises(ConfigError, match=told) as error:
        toys.trained(config_of(folder, **changes), tmp_path / 'run')
    assert '\n' not in str(error.value) and not (tmp_path / 'run').exists()


def test_a_stopped_training_resumes_to_the_same_parameters(trained, tmp_path):
    result = toys.resumed(trained.folder, tmp_path / 'run', 2, evaluate=False)
    assert result['params_sha256'] == trained.result()['params_sha256']


def test_the_loss_is_translations():
    """That devices and accumulation do not change its gradients is tested in training/test_loop.py."""
    assert task.TASK.sums is translation.TASK.sums
