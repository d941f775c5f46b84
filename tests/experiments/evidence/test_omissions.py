"""Tests the costs of omissions: the printed differences, and the rules of counting BLEU."""

import dataclasses
import json
import pathlib
import shutil
import statistics

import pytest

from experiments.evidence import __main__ as evidence
from experiments.evidence import omissions
from transformer.config import ConfigError
from transformer.tasks.translation import bleu

HYPOTHESES = ['Ein „Ost-West“-Konflikt .', 'zwei Männer stehen am Fluss.', 'Ein Hund läuft durch den Schnee.']
REFERENCES = [
    'Ein "Ost-West"-Konflikt.',
    'Zwei Männer stehen an einem Fluss.',
    'Ein Hund rennt durch den Schnee.',
]


def table(section) -> dict[str, dict[str, str]]:
    """Returns the cells of a section by row and heading."""
    names, *others = section.columns
    return {
        name: {column.heading: column.texts[i] for column in others} for i, name in enumerate(names.texts)
    }


def scores(row: str) -> dict[str, dict]:
    """Reads the committed result of each run of a row, by seed."""
    folders = omissions.COMMITTED.glob(f'{row}-seed*')
    return {path.name[-1]: json.loads((path / 'result.json').read_text()) for path in folders}


def test_rules_are_those_of_all_scores_and_others():
    counted = {name: rule(HYPOTHESES, REFERENCES) for name, rule in omissions.rules('de').items()}
    all_scores = bleu.score_all(HYPOTHESES, REFERENCES, ('en', 'de'))
    for name, same in (('13a', 'sacrebleu'), ('Moses', 'moses'), ('Moses, both', 'paper')):
        assert counted[name] == all_scores[same]['score']
    lower = bleu.score_all(HYPOTHESES, REFERENCES, ('en', 'de'), lowercase=True)
    assert counted['13a, without case'] == lower['sacrebleu']['score']
    # Quotes and compounds differ in one sentence, and each has its own effect.
    assert len(set(counted.values())) == len(counted)


def test_differences_are_those_of_the_committed_results():
    trained, evaluated, counted = map(table, omissions.sections())
    base = {seed: result['scores']['test'] for seed, result in scores('base').items()}
    of_base = {seed: entry['bleu']['sacrebleu']['score'] for seed, entry in base.items()}
    assert trained['base']['BLEU'] == f'{statistics.mean(of_base.values()):.2f} (3)'
    for row in trained.keys() - {'base'}:
        ours = {seed: result['scores']['test'] for seed, result in scores(row).items()}
        shared = [entry['bleu']['sacrebleu']['score'] - of_base[seed] for seed, entry in ours.items()]
        assert trained[row]['ΔBLEU'] == f'{statistics.mean(shared):+.2f}'
        # An interval needs two seeds.
        assert bool(trained[row]['ΔBLEU 95%']) == (len(shared) > 1)
    greedy = {
        seed: result['evaluations']['test.average.beam=1']['bleu']['sacrebleu']['score'] - of_base[seed]
        for seed, result in scores('base').items()
    }
    assert evaluated['average.beam=1']['ΔBLEU'] == f'{statistics.mean(greedy.values()):+.2f}'
    papers = statistics.mean(entry['bleu']['paper']['score'] for entry in base.values())
    assert counted['Moses, both']['BLEU'] == f'{papers:.2f} (3)'


def test_a_sweep_of_a_task_without_bleu(monkeypatch):
    """As of language models, whose table has perplexity alone."""
    read = omissions._read
    alone = lambda folder: dataclasses.replace(read(folder), scores=read(folder).scores[:1])
    monkeypatch.setattr(omissions, '_read', alone)
    trained, evaluated, _ = map(table, omissions.sections())
    assert set(trained['base']) == set(evaluated['base']) == {'PPL', 'ΔPPL', 'ΔPPL 95%'}
    with pytest.raises(ConfigError, match='no BLEU'):
        omissions.count(omissions.COMMITTED)


def test_evaluations_of_other_splits_do_not_count(tmp_path):
    folder = pathlib.Path(shutil.copytree(omissions.COMMITTED, tmp_path / 'sweep'))
    for file in folder.glob('base-seed*/result.json'):
        result = json.loads(file.read_text())
        of_dev = result['evaluations']['test.latest'] | {'split': 'dev'}
        file.write_text(json.dumps(result | {'evaluations': {'dev.best': of_dev, **result['evaluations']}}))
    _, evaluated, _ = map(table, omissions.sections(folder))
    assert set(evaluated) == {'base', 'latest', 'average.beam=1', 'average.alpha=0.0'}


def test_outputs_are_counted_by_every_rule(tmp_path, monkeypatch, capsys):
    folder = shutil.copytree(omissions.COMMITTED, tmp_path / 'sweep')
    monkeypatch.setattr(omissions.differences, 'read_texts', lambda *_: {'target': REFERENCES})
    monkeypatch.setattr(omissions.differences, 'read_output', lambda *_: HYPOTHESES)
    assert evidence.main(['evidence', 'omissions', f'--workdir={folder}', '--count']) == 0
    counted = json.loads((pathlib.Path(folder) / omissions.FILE).read_text())
    seeds = set(scores('base'))
    assert counted.keys() == omissions.rules('de').keys()
    assert all(set(by_seed) == seeds and len(set(by_seed.values())) == 1 for by_seed in counted.values())
    assert f'{counted["intl"].popitem()[1]:.2f}' in capsys.readouterr().out


def test_outputs_of_other_seeds_are_told(tmp_path):
    folder = pathlib.Path(shutil.copytree(omissions.COMMITTED, tmp_path / 'sweep'))
    counted = json.loads((folder / omissions.FILE).read_text())
    assert omissions._RECOUNT not in omissions.sections(folder)[2].notes
    of_one = {name: dict([by_seed.popitem()]) for name, by_seed in counted.items()}
    (folder / omissions.FILE).write_text(json.dumps(of_one))
    section = omissions.sections(folder)[2]
    assert omissions._RECOUNT in section.notes and table(section)['13a']['BLEU'].endswith(' (1)')
    (folder / omissions.FILE).write_text('{}')
    assert len(omissions.sections(folder)) == 2
    (folder / omissions.FILE).write_text('{"13a": 3}')
    with pytest.raises(ConfigError, match=omissions.FILE):
        omissions.sections(folder)


def test_the_committed_outputs_cannot_be_counted(capsys):
    assert evidence.main(['evidence', 'omissions', '--count']) == 2
    assert '--workdir' in capsys.readouterr().err


def test_rows_without_a_finished_run_are_named(tmp_path):
    folder = pathlib.Path(shutil.copytree(omissions.COMMITTED, tmp_path / 'sweep'))
    for file in folder.glob('untied-seed*/result.json'):
        file.unlink()
    first, *_ = omissions.sections(folder)
    assert 'untied' not in table(first) and any('untied' in note for note in first.notes)
    assert not any('untied' in note for note in omissions.sections()[0].notes)


@pytest.mark.parametrize('sweep', ['table3-grammar', 'words'])
def test_other_folders_are_refused(capsys, sweep):
    folder = omissions.COMMITTED.parent / sweep
    assert evidence.main(['evidence', 'omissions', f'--workdir={folder}']) == 2
    assert str(folder) in capsys.readouterr().err
