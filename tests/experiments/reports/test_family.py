"""The table of all models: its rows agree with the committed results, and what is wrong is refused."""

import json
import shutil
import statistics

import pytest

from experiments import report
from experiments.reports import family
from experiments.tables.family import FAMILY, Member, Public
from transformer.config import ConfigError


def stored(folder):
    return json.loads((family.RESULTS / folder / 'result.json').read_text())


def test_every_row_has_committed_results():
    records = family.records()
    assert len(records) == len(FAMILY) and all(isinstance(record['score'], float) for record in records)
    names = [(member.model, member.data) for member in FAMILY]
    assert len(set(names)) == len(names)
    by_name = dict(zip(names, records, strict=True))
    three = [stored(f'sst2/seed{seed}') for seed in (1, 2, 3)]
    record = by_name['one attention layer', 'SST-2, dev']
    rates = [one['scores']['test']['accuracy']['score'] for one in three]
    assert record['score'] == pytest.approx(statistics.mean(rates)) and record['runs'] == 3
    # The interval over examples of one of several runs is not that of their mean.
    assert record['text'] == f'{100 * statistics.mean(rates):.2f} %'
    assert record['seconds'] == pytest.approx(statistics.mean(one['seconds'] for one in three))
    assert by_name['Transformer', 'GENIA, trees of dev']['public_number'] == '83.6'
    record = by_name['LSTM, attention', 'GENIA, trees of dev']
    result = stored('table4-genia/lstm-attention-seed1')
    assert record['params'] == result['params'] and record['runs'] == 1
    low, high = result['scores']['test']['evalb']['f1']['interval']
    assert record['text'] == f'{record["score"]:.2f} [{low:.2f}, {high:.2f}]'


def test_a_row_by_hand():
    member = Member('ViT', 'MNIST', ('vit_mnist',), 'accuracy', public=Public('96.3 %', 'small', 'a page'))
    cells = {column.heading: column.texts[0] for column in family.columns([member])}
    result = stored('vit_mnist')
    assert cells == {
        'model': 'ViT', 'data': 'MNIST', 'measure': 'images right', 'ours': '99.27 %', 'public': '96.3 %',
        'conditions': 'small', 'source': 'a page', 'params': f'{result["params"]:,}',
        'time': f'{result["seconds"] / 60:.0f} min', 'hardware': '2 CPU cores',
    }  # fmt: skip


def test_hardware_is_the_cores_or_the_accelerator(tmp_path):
    shutil.copytree(family.RESULTS / 'vit_mnist', tmp_path / 'vit_mnist')
    member = Member('ViT', 'MNIST', ('vit_mnist',), 'accuracy')
    assert family.read(member, tmp_path).hardware == '2 CPU cores'
    result = stored('vit_mnist')
    result['hardware'] |= {'platform': 'gpu', 'device': 'NVIDIA H100'}
    (tmp_path / 'vit_mnist' / 'result.json').write_text(json.dumps(result))
    assert family.read(member, tmp_path).hardware == 'NVIDIA H100'


def test_formats(capsys):
    assert report.main(['report', '--table=family', '--format=json']) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed['rows'] == json.loads(json.dumps(family.records()))
    assert report.main(['report', '--table=family', '--format=markdown', '--columns=ours,source']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith('|') for line in lines) == len(FAMILY) + 2
    assert [cell.strip() for cell in lines[0].split('|')] == ['', 'model', 'data', 'ours', 'source', '']


def test_eighty_columns(capsys, monkeypatch):
    """Each part of the table says which model and data its rows are of."""
    monkeypatch.setenv('COLUMNS', '80')
    assert report.main(['report', '--table=family']) == 0
    parts = capsys.readouterr().out.split('\n\n')[:-1]
    assert len(parts) > 1 and max(len(line) for part in parts for line in part.splitlines()) <= 80
    assert all(part.split()[:2] == ['model', 'data'] for part in parts)
    assert 'ours' in parts[0].splitlines()[0]


@pytest.mark.parametrize(
    'given', ['--workdir=x', '--scale=grammar', '--split=dev', 'runs/x', '--sensitivity=x']
)
def test_slips(given, capsys):
    assert report.main(['report', '--table=family', given]) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1 and given.partition('=')[0].lstrip('-') in error


def test_missing_results_are_named(tmp_path):
    with pytest.raises(ConfigError, match='grammar'):
        family.read(FAMILY[0], tmp_path)


def test_the_columns_of_a_page_are_chosen(capsys):
    argv = ['report', '--table=family', '--format=html']
    assert report.main([*argv, '--columns=nonsense']) == 2
    assert '--columns=nonsense' in capsys.readouterr().err
    pages = []
    for more in ([], ['--columns=ours']):
        assert report.main([*argv, *more]) == 0
        pages.append(capsys.readouterr().out)
    assert pages[1].count('<th') < pages[0].count('<th')
