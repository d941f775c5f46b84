"""Tables and scales of the user's own, in files outside the package."""

import dataclasses
import json
import os
import pathlib

import calls
import pytest

from experiments import report, sweep
from experiments.sweeps import launch, runs
from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from transformer.cli import flags

SCALE = """
from transformer.config import config_dict

def get_config():
    return config_dict({'model.d_model': 32, 'model.h': 2, 'data.source': 'grammar', 'data.pieces': 600,
                        'model.vocab_size': 600, 'train.steps': 40})
"""
TABLE = """
from experiments.tables import Measure, Row, Table

TABLE = Table(
    rows=(Row('base', {}), Row('four', {'model.h': 4}, {'PPL': 3.5}), Row('wide', {'model.d_ff': 512})),
    split='test',
    measures=(Measure('PPL', 'perplexity', 'perplexity', 1, ('PPL',)),),
    citation='Nobody 2020, Table 1',
)
"""


TABLE_OF = "from experiments.tables import Measure, Row, Table\nTABLE = Table(%s, split='dev')"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Makes a folder with a table and a scale, and changes to it."""
    (tmp_path / 'mine.py').write_text(TABLE)
    (tmp_path / 'small.py').write_text(SCALE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launched(workdir: pathlib.Path, *rows: str) -> runs.Sweep:
    """Writes the sweep of a table and a scale that were named in another folder, as `sweep run` does."""
    asked = tuple((row, 1) for row in rows)
    names = user_files.stored_name('mine.py'), user_files.stored_name('small.py')
    new = runs.Sweep(*names, {'train.beta2': 0.9}, asked)
    workdir.mkdir()
    runs.write_sweep(workdir, new)
    return new


def write_result(run: runs.SweepRun, perplexity: float, split: str = 'test') -> None:
    call = calls.parse(['run.py', *run.options])
    config = flags.config(call)
    scores = {'checkpoint': 'best', 'decode': dataclasses.asdict(config.decode), 'perplexity': perplexity}
    result = {
        'params': 5, 'steps': run.steps, 'seconds': 60.0, 'config': dataclasses.asdict(config),
        'hardware': {'devices': 1, 'device': 'cpu', 'cpus': 2}, 'scores': {split: scores},
    }  # fmt: skip
    run.folder.mkdir()
    (run.folder / 'result.json').write_text(json.dumps(result))


def test_plan(files, capsys):
    assert sweep.main(['sweep', 'plan', '--table=mine.py', '--scale=small.py', '--rows=base,four']) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    # Numbers hold as they are written: 4 heads, of 8 pieces each.
    assert lines['four'][4:6] == ['4', '8'] and lines['base'][4:6] == ['2', '16'] and 'wide' not in lines


def test_own_rows_of_the_papers_base_at_another_scale(files):
    assert scales.changes(tables.rows(user_files.stored_name('mine.py'))[1], 'grammar') == {'model.h': 4}


def test_from_launch_to_report(files, capsys, monkeypatch):
    new = launched(files / 'w', 'base', 'four')
    assert pathlib.Path(new.table).is_absolute()
    # Wherever it is read.
    monkeypatch.chdir(user_files.ROOT)
    for run, perplexity in zip(new.all_runs(files / 'w'), (3.0, 4.0), strict=True):
        write_result(run, perplexity)
    assert report.main(['report', f'--workdir={files / "w"}']) == 0
    out = capsys.readouterr().out
    assert 'PPL  PPL ours  ΔPPL ours' in out
    four = next(line.split() for line in out.splitlines() if line.startswith('four'))
    assert four[:4] == ['four', '3.50', '4.0', '+1.0']
    assert 'Table mine at the scale small, train.beta2=0.9: perplexity on test.' in out
    assert 'Nobody 2020, Table 1.' in out and ': wide\n' in out
    monkeypatch.chdir(files)
    assert sweep.main(['sweep', 'status', '--workdir=w', '--table=mine.py', '--scale=small.py']) == 0
    assert 'four-seed1' in capsys.readouterr().out
    assert report.main(['report', '--workdir=w', '--table=3']) == 2
    assert '--table=3: ' in capsys.readouterr().err


GRID = ['--grid=model.h=2,4', '--grid=model.d_ff=64,128']


def test_a_grid_from_launch_to_report(files, capsys, monkeypatch):
    monkeypatch.setattr(launch, 'on_this_machine', lambda runs, *_: iter(()))
    assert sweep.main(['sweep', 'run', *GRID, '--scale=small.py', '--seeds=2', '--workdir=w']) == 1
    read = runs.read_sweep(files / 'w')
    made = read.all_runs(files / 'w')
    rows = ['h=2-d_ff=64', 'h=2-d_ff=128', 'h=4-d_ff=64', 'h=4-d_ff=128']
    assert [run.name for run in made] == [f'{row}-seed{seed}' for row in rows for seed in (1, 2)]
    sizes = {(run.row, flags.config(calls.parse(['run.py', *run.options])).model) for run in made}
    assert {(row, model.h, model.d_ff) for row, model in sizes} == {
        (f'h={h}-d_ff={d_ff}', h, d_ff) for h in (2, 4) for d_ff in (64, 128)
    }
    for number, run in enumerate(made):
        write_result(run, 3.0 + number, split='dev')
    assert sweep.main(['sweep', 'status', *GRID, '--scale=small.py', '--workdir=w']) == 0
    capsys.readouterr()
    assert report.main(['report', '--workdir=w', '--format=json']) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content['base'], content['split']) == (rows[0], 'dev')
    assert [row['row'] for row in content['rows']] == rows
    assert sweep.main(['sweep', 'run', *GRID[:1], '--scale=small.py', '--workdir=w']) == 2
    assert '--table=' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('words', 'told'),
    [
        (['--grid=model.h'], '--grid=model.h: expected OPTION=VALUE'),
        (['--grid=model.h=2,2'], '--grid=model.h=2,2: has a value twice'),
        (['--grid=model.h=2', '--grid=model.h=4'], '--grid=model.h: given twice'),
        (['--grid=train.seed=1,2'], '--grid=train.seed=1,2: '),
        (['--grid=model.hh=2'], 'model.hh: no such option'),
        (['--grid=model.h=two'], "model.h='two': expected int"),
        (['--grid=model.h=2', '--table=3'], '--grid: instead of --table'),
        (['--grid=model.h=2', '--set=model.h=4'], '--grid=model.h=2: --set sets'),
    ],
)
def test_grids_that_are_refused(files, capsys, words, told):
    assert sweep.main(['sweep', 'plan', *words, '--scale=small.py']) == 2
    error = capsys.readouterr().err
    assert told in error and error.count('\n') == 1


@pytest.mark.parametrize(
    'file, old, new_text, told',
    [
        ('mine.py', "'model.h': 4", "'model.h': 1", 'w/four-seed1: made by another config: model.h'),
        ('small.py', "'model.d_model': 32", "'model.d_model': 64", 'w/base-seed1: made by another config'),
        ('mine.py', "Row('four'", "Row('five'", 'mine.py no longer has the row four'),
        ('mine.py', 'TABLE = ', 'TABELLE = ', 'mine.py: defines no TABLE'),
    ],
)  # fmt: skip
def test_a_file_that_has_changed(files, capsys, file, old, new_text, told):
    """A result or a work directory that was made before is refused; what has not begun may change."""
    new = launched(files / 'w', 'base', 'four')
    for run in new.all_runs(files / 'w'):
        write_result(run, 3.0)
    text = (files / file).read_text()
    (files / file).write_text(text.replace(old, new_text))
    assert report.main(['report', '--workdir=w']) == 2
    error = capsys.readouterr().err
    assert told in error and error.count('\n') == 1
    (files / file).write_text(text.replace('512', '256'))
    assert report.main(['report', '--workdir=w']) == 0


def test_a_row_that_was_never_finished_may_go(files, capsys):
    new = launched(files / 'w', 'base', 'four', 'wide')
    for run in new.all_runs(files / 'w')[:2]:
        write_result(run, 3.0)
    table = (files / 'mine.py').read_text()
    (files / 'mine.py').write_text(table.replace(", Row('wide', {'model.d_ff': 512})", ''))
    assert sweep.main(['sweep', 'status', '--workdir=w']) == 0
    assert report.main(['report', '--workdir=w']) == 0
    assert 'wide' not in capsys.readouterr().out


@pytest.mark.parametrize(
    'table, told',
    [
        ("TABLE = 3", 'mine.py: TABLE must be a Table(rows, split, measures)'),
        ("TABLE = 1 / 0", 'mine.py: ZeroDivisionError: division by zero'),
        ("TABLE =", 'mine.py: SyntaxError'),
        ("raise SystemExit(0)", 'mine.py: SystemExit: 0'),
        (TABLE.replace("'four'", "'base'"), "mine.py: two rows are called 'base'"),
        (TABLE.replace("'four'", "'a b'"), "mine.py: row 'a b': a name of letters"),
        (TABLE.replace('model.h', 'model.hh'), "row four: model.hh: no such option; did you mean 'model.h'"),
        (TABLE.replace("'model.h': 4", "'model.h': 'x'"), "row four: model.h='x': expected int"),
        (TABLE.replace("'model.h': 4", "'data.name': None"), 'row four: data.name=None: a row gives values'),
        (TABLE.replace("Row('wide', {'model.d_ff': 512})", '5'), 'TABLE: rows='),
        (TABLE_OF % "rows=(Row('base', {}))", 'a tuple of one needs a comma'),
        (TABLE_OF % "rows=(Row('base', {}, 24.9),)", "Row 'base': paper=24.9: expected a dict"),
        (
            TABLE_OF % "rows=(Row('base', {}, {'PPL': '5'}),)",
            "Row 'base': paper={'PPL': '5'}: expected a dict",
        ),
        (
            TABLE_OF % "rows=(Row('base', ['model.h', 4]),)",
            "Row 'base': changes=['model.h', 4]: expected a dict",
        ),
        (TABLE_OF % "rows=(Row(3, {}),)", 'Row 3: name=3: expected text'),
        (TABLE_OF % "rows=(Row('one', {}),)", "base='base': choose one of one"),
        (TABLE_OF % "rows=(Row('bass', {}),)", "base='base': did you mean 'bass'"),
        (TABLE_OF % "rows=(Row('base', {}, {'PLL': 5.0}),)", "row 'base': paper='PLL': did you mean 'PPL'"),
        (
            TABLE_OF % "rows=(Row('base', {}, at_scale={'papr': {}}),)",
            "row base: at_scale='papr': choose one of paper",
        ),
        (TABLE.replace("'test'", "'valid'"), "split='valid': choose one of dev, test"),
        (TABLE_OF % "rows=(Row('base', {}),), noise='newstest2015'", "noise='newstest2015': did you mean"),
        (
            TABLE_OF % "rows=(Row('base', {}),), measures=('bleu', Measure('BLEU', 'moses', 'bleu.m', 2))",
            "TABLE: two measures are called 'BLEU'",
        ),
        (
            TABLE_OF % "rows=(Row('base', {}),), measures=(Measure('seed', 'moses', 'bleu.m', 2),)",
            "Measure 'seed'",
        ),
        (
            TABLE.replace("measures=(", "measures=('perplexty', "),
            "measures='perplexty': did you mean 'perplexity'",
        ),
        (TABLE.replace("('PPL',)", "'PPL'"), "Measure 'PPL': paper='PPL': expected a tuple"),
        (
            TABLE.replace("'perplexity', 1", "'perplexity', 'one'"),
            "Measure 'PPL': decimals='one': expected integer",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(files, capsys, table, told):
    (files / 'mine.py').write_text(table)
    assert sweep.main(['sweep', 'plan', '--table=mine.py', '--scale=small.py']) == 2
    error = capsys.readouterr().err
    assert told in error and error.count('\n') == 1


def test_a_table_in_a_folder_whose_name_has_an_equals_sign(files, capsys):
    (files / 'h=2').mkdir()
    (files / 'mine.py').rename(files / 'h=2' / 'mine.py')
    assert sweep.main(['sweep', 'plan', '--table=h=2/mine.py', '--scale=small.py']) == 0
    assert 'wide' in capsys.readouterr().out


def test_what_is_not_there(files, capsys):
    for words, told in (
        (['--table=yours.py'], '--table=yours.py: no such file'),
        (['--scale=yours.py'], '--scale=yours.py: no such file'),
        (['--table=mine.py'], 'the rows of mine.py are not written for one'),
    ):
        assert sweep.main(['sweep', 'plan', *words]) == 2
        assert told in capsys.readouterr().err.replace(f'{files}{os.sep}', '')


def test_a_table_has_a_folder_of_its_own():
    assert str(runs.folder('3', 'grammar')) == 'runs/table3-grammar'
    assert str(runs.folder('a/mine.py', 'configs/tiny.py')) == 'runs/mine-tiny'
    assert str(runs.folder('model.h=1,4 data.dir=a/b', 'configs/tiny.py')) == 'runs/h=1,4-dir=a_b-tiny'
    # A file is no grid, whatever its folder is called.
    assert str(runs.folder('h=2/mine.py', 'configs/tiny.py')) == 'runs/mine-tiny'


def test_default_folders_have_names_that_file_systems_take(tmp_path):
    long = [f'--config.data.train={"a" * 99},{"b" * 99}', f'--config.data.dev={"c" * 99}']
    names = [
        pathlib.Path(flags.work_directory(calls.parse(['run.py', *words]))) for words in (long, long[:1])
    ]
    names.append(runs.folder(f'model.h={",".join(map(str, range(1, 120)))}', 'grammar'))
    assert len(set(names)) == 3
    for name in names:
        (tmp_path / f'{name.name}-seed10.superseded-1').mkdir()
        assert len(name.name.encode()) <= 200
    assert str(names[0]).startswith(f'runs/tiny-dev={"c" * 99}')


def test_a_config_is_a_scale_by_its_name(files, capsys):
    plans = []
    for scale in ('tiny', str(launch.ROOT / 'configs' / 'tiny.py')):
        assert sweep.main(['sweep', 'plan', '--table=mine.py', f'--scale={scale}']) == 0
        plans.append(capsys.readouterr().out)
    assert plans[0] == plans[1] and 'wide' in plans[0]
    # A config of a scale's name is the scale.
    assert [scales.stored_name(name) for name in ('tiny', 'multi30k', 'big')] == [
        'configs/tiny.py', 'multi30k', 'configs/big.py',
    ]  # fmt: skip
    assert sweep.main(['sweep', 'plan', '--table=mine.py', '--scale=tinny']) == 2
    assert '--scale=tinny: choose one of paper' in capsys.readouterr().err
