"""The rows of tables: the paper's numbers, their meanings at other scales, and their costs."""

import dataclasses
import re

import calls
import pytest
from etils import epath

from configs import multi30k, names
from experiments import benchmark, report, sweep
from experiments.claims import __main__ as claims
from experiments.complexity import __main__ as complexity
from experiments.figures import __main__ as figures
from experiments.speed import updates
from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from experiments.tables.table import Table, printed_scores, shown
from transformer import config as configs
from transformer.cli import flags
from transformer.config import ConfigError
from transformer.config.files import find_config, read_config_file
from transformer.nn import cost, models
from transformer.runs import restore
from transformer.tasks.contract import Measure
from transformer.tasks.language.task import TASK as LANGUAGE_MODEL
from transformer.tasks.parsing.task import TASK as PARSER
from transformer.tasks.translation.task import TASK as TRANSLATOR
from transformer.tasks.transliteration.task import TASK as TRANSLITERATOR

# As Table 3 prints it: row, what differs from base, perplexity, BLEU, millions of parameters.
PRINTED_3 = """\
base                                 4.92 25.8 65
A1   h=1 d_k=512 d_v=512             5.29 24.9
A2   h=4 d_k=128 d_v=128             5.00 25.5
A3   h=16 d_k=32 d_v=32              4.91 25.8
A4   h=32 d_k=16 d_v=16              5.01 25.4
B1   d_k=16                          5.16 25.1 58
B2   d_k=32                          5.01 25.4 60
C1   N=2                             6.11 23.7 36
C2   N=4                             5.19 25.3 50
C3   N=8                             4.88 25.5 80
C4   d_model=256 d_k=32 d_v=32       5.75 24.5 28
C5   d_model=1024 d_k=128 d_v=128    4.66 26.0 168
C6   d_ff=1024                       5.12 25.4 53
C7   d_ff=4096                       4.75 26.2 90
D1   P_drop=0.0                      5.77 24.6
D2   P_drop=0.2                      4.95 25.5
D3   eps_ls=0.0                      4.67 25.3
D4   eps_ls=0.2                      5.47 25.7
E    positions=learned               4.92 25.7
big  d_model=1024 d_ff=4096 h=16 d_k=64 d_v=64 P_drop=0.3 steps=300000 4.33 26.4 213
"""
BASE = {
    'N': 6, 'd_model': 512, 'd_ff': 2048, 'h': 8, 'd_k': 64, 'd_v': 64, 'P_drop': 0.1, 'eps_ls': 0.1,
    'steps': 100_000, 'positions': 'sinusoidal',
}  # fmt: skip


def printed() -> dict[str, tuple[dict[str, str], list[float]]]:
    """Parses each row's differences from base, and its numbers."""
    rows = {}
    for line in PRINTED_3.splitlines():
        name, *words = line.split()
        changes = dict(word.split('=') for word in words if '=' in word)
        rows[name] = changes, [float(word) for word in words if '=' not in word]
    return rows


def column(config: configs.Config, name: str):
    group = 'train' if name in ('eps_ls', 'steps') else 'model'
    return getattr(getattr(config, group), name)


def test_table_3_has_the_rows_that_are_printed():
    assert [row.name for row in tables.TABLE_3] == list(printed())


@pytest.mark.parametrize('row', tables.TABLE_3, ids=lambda row: row.name)
def test_a_row_of_table_3_is_what_is_printed(row):
    changes, numbers = printed()[row.name]
    config = scales.config(row, 'paper')
    for name, base in BASE.items():
        assert str(column(config, name)) == changes.get(name, str(base)), name
    assert [row.paper[key] for key in ('PPL', 'BLEU', 'params') if key in row.paper] == numbers
    if 'params' in row.paper and row.name != 'big':
        count = cost.parameters(models.parameter_shapes(config))
        assert round(count / 1e6) == row.paper['params']


def test_table_2():
    bleu = {row.name: row.paper.get('EN-DE', row.paper.get('EN-FR')) for row in tables.TABLE_2}
    assert bleu == {'base-en-de': 27.3, 'big-en-de': 28.4, 'base-en-fr': 38.1, 'big-en-fr': 41.8}
    for row in tables.TABLE_2:
        config = scales.config(row, 'paper')
        big = row.name.startswith('big')
        assert config.train.average_last == (20 if big else 5)
        assert config.train.average_every == (600 if big else 1500)
        assert config.data.target_language == row.name[-2:]
        assert row.paper['FLOPs'] == (2.3e19 if big else 3.3e18)
    assert scales.config(tables.TABLE_2[3], 'paper').model.P_drop == 0.1


TRANSLATION = ('paper', 'multi30k', 'grammar')
TREEBANKS = ('wsj', 'craft', 'genia', 'grammar-trees')


@pytest.mark.parametrize(
    'table, scale',
    [
        *((table, scale) for table in ('2', '3', 'further', 'omissions') for scale in TRANSLATION),
        ('3', 'language'),
        ('language', 'language'),
        ('architectures', 'captions'),
        ('architectures', 'names'),
        *(('4', scale) for scale in TREEBANKS),
    ],
)
def test_rows_are_possible_and_different_at_every_scale(table, scale):
    found = [scales.config(row, scale) for row in tables.rows(table)]
    different = set(found)
    if (table, scale) == ('3', 'language'):
        # The base there has no label smoothing to have more or less of.
        assert scales.config(tables.rows('3', 'D4')[0], scale) == found[0]
        assert len(different) == len(found) - 2
    else:
        assert len(different) == len(found)


def test_the_parser_is_the_papers():
    config = scales.scale_config('wsj')
    model, decode = config.model, config.decode
    assert (model.N, model.d_model, config.data.pieces) == (4, 1024, 16_000)
    assert (decode.beam, decode.alpha, decode.extra_len) == (21, 0.3, 300)


@pytest.mark.parametrize('scale', ['paper', 'grammar'])
def test_heads_of_the_same_width_in_all_cost_the_same(scale):
    rows = tables.rows('3', 'base,A1,A2,A3,A4')
    assert len({cost.update_flops(scales.config(row, scale)) for row in rows}) == 1


def test_every_table_and_scale_is_tested():
    assert {*TRANSLATION, *TREEBANKS, 'language', 'captions', 'names'} == set(scales.SCALES)
    assert {'2', '3', '4', 'further', 'omissions', 'language', 'architectures'} == set(tables.TABLES)


@pytest.mark.parametrize('scale', TRANSLATION)
def test_an_eighth_of_the_batch_has_equal_updates_or_equal_tokens(scale):
    base, *eighths = (scales.config(row, scale) for row in tables.OMISSIONS[:3])
    assert [8 * config.data.batch_tokens for config in eighths] == 2 * [base.data.batch_tokens]
    assert [config.train.steps for config in eighths] == [base.train.steps, 8 * base.train.steps]
    assert [config.train.warmup_steps for config in eighths] == 2 * [base.train.warmup_steps]


def test_an_eighth_of_the_batch_is_one_of_any_config():
    for file, changed in (('news_small', {'data.batch_tokens': 4096}), ('tiny', {}), ('multi30k', {})):
        base, *eighths = (scales.config(row, f'configs/{file}.py', changed) for row in tables.OMISSIONS[:3])
        assert [8 * config.data.batch_tokens for config in eighths] == 2 * [base.data.batch_tokens]
        assert [config.train.steps for config in eighths] == [base.train.steps, 8 * base.train.steps]


def test_a_change_may_have_a_meaning_for_a_row_alone():
    row = next(row for row in tables.ARCHITECTURES if row.name == 'gru')
    assert scales.config(row, 'names', {'model.residual': True}).model.residual
    (one_head,) = tables.rows('3', 'A1')
    assert scales.config(one_head, 'grammar', {'model.h': 3}).model.h == 1


@pytest.mark.parametrize('scale, base', [('captions', multi30k), ('names', names)])
def test_architectures_have_about_equal_parameters(scale, base):
    found = [scales.config(row, scale) for row in tables.ARCHITECTURES]
    counts = [cost.parameters(models.parameter_shapes(config)) for config in found]
    assert max(counts) < 1.02 * min(counts)
    # The same text, batches and updates.
    assert len({(config.data, config.decode, config.train.steps) for config in found}) == 1
    expected = configs.resolve(base.get_config()).model
    assert found[0].model == dataclasses.replace(expected, d_ff=256)
    assert tables.TABLES['architectures'].base == tables.ARCHITECTURES[0].name


def test_a_row_has_numbers_of_its_own_at_single_scales():
    (row,) = tables.rows('architectures', 'gru')
    at_names = scales.config(row, 'names')
    assert (at_names.model.N, at_names.model.d_model) == (4, row.at_scale['names']['model.d_model'])
    assert scales.config(row, 'captions').model.d_model == row.changes['model.d_model']
    # If the user halves the base's width, the row has half of its width for captions.
    assert (
        scales.config(row, 'names', {'model.d_model': 64}).model.d_model == row.changes['model.d_model'] / 2
    )


def test_a_row_for_another_task_is_a_mistake():
    (row,) = tables.rows('further', 'tied-decoder')
    with pytest.raises(ConfigError, match="^row tied-decoder: model.tie_embeddings='decoder'"):
        scales.config(row, 'language')


def test_rows_of_a_language_model_are_in_proportion_to_its_own_scale():
    base, one_head = tables.rows('language', 'base,one-head')
    own = scales.config(base, 'language')
    assert (own.model.kind, own.train.task) == ('transformer', 'language')
    assert scales.changes(one_head, 'language') == {'model.h': 1}
    half = dataclasses.replace(base, changes={'model.d_ff': own.model.d_ff // 2})
    assert scales.config(half, 'language').model.d_ff == own.model.d_ff // 2
    assert scales.changes(half, 'paper') == {'model.d_ff': 1024}
    # Nothing is in proportion to 0.
    assert own.train.eps_ls == 0
    smoothed = dataclasses.replace(base, changes={'train.eps_ls': 0.05})
    assert scales.changes(smoothed, 'paper') == {'train.eps_ls': 0.05}


@pytest.mark.parametrize('scale', TRANSLATION)
def test_table_3_is_scored_at_the_last_checkpoint(tmp_path, scale):
    """Not at one that was chosen on dev, which the table reports."""
    folder = epath.Path(tmp_path)
    for row in tables.TABLE_3:
        config = scales.config(row, scale)
        assert restore.scored(config, folder) == 'latest', row.name
    # Where dev decides when to stop, it decides what is scored too, if nothing else is said.
    patient = configs.replace(config, {'train.patience': 2, 'train.scored': None})
    assert restore.scored(patient, folder) == 'best'
    assert restore.scored(configs.replace(patient, {'train.scored': 'latest'}), folder) == 'latest'
    averaging = configs.replace(config, {'train.average_last': 1, 'train.scored': None})
    assert restore.scored(averaging, folder) == 'latest'
    # What is left of an average that was cut off is none.
    (folder / restore.AVERAGE).mkdir()
    assert restore.scored(averaging, folder) == 'latest'
    (folder / restore.AVERAGE / '0').mkdir()
    assert restore.scored(averaging, folder) == 'average'


def test_measures_name_what_is_scored():
    for name, table in tables.TABLES.items():
        task = {'language': LANGUAGE_MODEL, '4': PARSER}.get(name, TRANSLATOR)
        scores = printed_scores(table, task)
        # The table of architectures also has measures of transliteration.
        of_names = ['exact', 'exact_of_three', 'character_errors'] if name == 'architectures' else []
        assert len(scores) + len(of_names) == (len(table.measures) or len(scores)) > 1
        assert len({score.measure.heading for score in scores}) == len(scores)
        # Sentences are resampled for one score of a table.
        assert sum(score.measure.significance is not None for score in scores) == (name != 'language')
        paths = {measure.path for measure in task.measures}
        assert all(
            score.measure.path in paths or score.measure.path[0] == 'bleu_by_length' for score in scores
        )
    named = printed_scores(tables.TABLES['architectures'], TRANSLITERATOR)
    headings = ['PPL', 'exact', 'exact_of_three', 'CER']
    assert [score.measure.heading for score in named if len(score.measure.path) == 1] == headings
    (perplexity, bleu), row = printed_scores(tables.TABLES['3'], TRANSLATOR), tables.TABLE_3[0]
    assert [(s.measure.heading, s.paper_decimals) for s in (perplexity, bleu)] == [('PPL', 2), ('BLEU', 1)]
    assert (perplexity.paper_number(row), bleu.paper_number(row)) == (4.92, 25.8)


def test_a_report_has_the_measures_of_any_task():
    """Without a line about the task in the tables: those with a heading, in their order."""
    measures = (
        Measure('loss', 'loss', ('loss',)),
        Measure('accuracy', 'accuracy', ('accuracy',), percent=True),
    )
    hidden = Measure('count', 'count', ('count',), heading=None)
    scores = printed_scores(tables.Table((), 'dev'), LANGUAGE_MODEL._replace(measures=(*measures, hidden)))
    assert [score.measure.heading for score in scores] == ['loss', 'accuracy']


@pytest.mark.parametrize(
    'name, expected',
    [
        ('A1', {'h': 1, 'd_k': 128}),
        ('A2', {'h': 2, 'd_k': 64}),
        ('A4', {'h': 16, 'd_k': 8}),
        ('B1', {'h': 4, 'd_k': 8, 'd_v': 32}),
        ('C1', {'N': 1, 'N_decoder': 1}),
        ('C2', {'N': 2}),
        ('C5', {'d_model': 256, 'h': 4, 'd_k': 64}),
        ('C6', {'d_ff': 256}),
        ('D2', {'P_drop': 0.2}),
        ('big', {'d_model': 256, 'd_ff': 1024, 'h': 8, 'd_k': 32, 'P_drop': 0.3}),
    ],
)
def test_a_row_keeps_its_meaning_at_a_smaller_scale(name, expected):
    (row,) = tables.rows('3', name)
    width = {'model.d_model': 128, 'model.d_ff': 512}
    config = scales.config(row, 'grammar', width)
    assert {key: getattr(config.model, key) for key in expected} == expected
    base = scales.config(tables.TABLE_3[0], 'grammar').train
    assert config.train == dataclasses.replace(base, steps=(3 if name == 'big' else 1) * base.steps)


def test_the_base_of_a_scale_can_differ():
    big = tables.TABLE_3[-1]
    assert scales.config(big, 'paper', {'train.beta2': 0.99}).train.steps == 300_000
    assert scales.config(big, 'paper', {'train.steps': 10}).train.steps == 30


@pytest.mark.parametrize('table, big', [('3', 'big'), ('2', 'big-en-de'), ('2', 'big-en-fr')])
@pytest.mark.parametrize('scale', TRANSLATION)
def test_big_has_three_times_the_updates_of_base_at_every_scale(scale, table, big):
    (row,) = tables.rows(table, big)
    steps = scales.scale_config(scale).train.steps
    assert scales.config(row, scale).train.steps == 3 * steps
    averaged = {'train.average_last': 0}
    assert scales.config(row, scale, averaged | {'train.steps': 700}).train.steps == 2100


def test_one_measure_is_tested_over_sentences():
    """The one that asks for it, or else the first that the task can test."""
    chrf = tables.Measure('own', 'characters', 'bleu.chrf.score', 2, significance=True)
    for measures, tested in ((('perplexity', 'bleu', 'chrf'), 'BLEU'), (('bleu', 'chrf', chrf), 'own')):
        table = Table(tables.TABLE_3, 'dev', measures)
        scores = printed_scores(table, TRANSLATOR)
        assert [score.measure.heading for score in scores if score.measure.significance] == [tested]


def test_options_give_the_config():
    for name, table in tables.TABLES.items():
        scale = 'grammar' if table.rows[0].scale == 'paper' else table.rows[0].scale
        for row in table.rows:
            call = ['run.py', *scales.options(row, scale, {'train.seed': 7})]
            called = flags.config(calls.parse(call))
            config = scales.config(row, scale, {'train.seed': 7})
            assert called == config, (name, row.name)


def test_options_of_the_base_that_a_row_has_no_use_for_are_not_given():
    kinds, cells = 'model.kind=transformer,recurrent', 'model.cell=gru,lstm'
    for grid, different in ((kinds, {}), (kinds, {'model.h': 2}), (cells, {'model.kind': 'recurrent'})):
        for row in tables.table(grid).rows:
            called = flags.config(calls.parse(['run.py', *scales.options(row, 'grammar', different)]))
            assert called == scales.config(row, 'grammar', different)


def test_a_users_row_can_have_the_earlier_name_of_an_option():
    row = tables.Row('mine', {'train.bleu_every': 50}, scale='grammar')
    assert scales.changes(row, 'grammar') == {'train.watch_every': 50}
    at_scale = tables.Row('mine', {}, scale='grammar', at_scale={'grammar': {'train.bleu_every': 60}})
    assert scales.changes(at_scale, 'grammar') == {'train.watch_every': 60}
    assert scales.changes(at_scale, 'grammar', {'train.watch_every': 70}) == {}
    twice = tables.Row('mine', {'train.bleu_every': 50, 'train.watch_every': 60}, scale='grammar')
    with pytest.raises(ConfigError, match='train.watch_every: given twice'):
        scales.changes(twice, 'grammar')


def test_values_of_a_grid_with_blanks():
    table = tables.table('data.dir=/my data,/other model.h=1,2')
    assert [row.changes['data.dir'] for row in table.rows] == ['/my data'] * 2 + ['/other'] * 2
    assert table.rows[0].name == 'dir=_my_data-h=1'


def test_rows_of_a_grid_have_different_names():
    with pytest.raises(ConfigError, match="two rows are called 'dir=a_b'"):
        tables.table('data.dir=a/b,a_b')


def test_unknown_names():
    for call, part in (
        (lambda: tables.rows('5'), '--table=5: choose one of 2, 3, 4, further, omissions'),
        (lambda: tables.rows('3', 'A1,A9'), '--rows=A9: table 3 has base, A1'),
        (lambda: scales.scale_config('huge'), '--scale=huge: choose one of paper'),
    ):
        with pytest.raises(ConfigError) as error:
            call()
        assert part in str(error.value)


def test_plan(capsys):
    assert sweep.main(['sweep', 'plan', '--table=3', '--tflops=100', '--rows=base,E,big']) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    base = scales.config(tables.TABLE_3[0], 'paper')
    flops = cost.update_flops(base) * 100_000
    assert lines['base'][10:] == [
        '65.11M', '65M', f'{flops / 1e5:.2e}', f'{flops:.2e}', '3.3e+18', '3.28e+09',
        f'{flops / 1e14 / 3600:.3g}',
    ]  # fmt: skip
    # The share of what eight P100 could have computed, which experiments/README.md states.
    big = cost.update_flops(scales.config(tables.TABLE_3[-1], 'paper')) * 300_000
    assert (round(100 * flops / 3.3e18), round(100 * big / 2.3e19)) == (39, 56)
    assert {'213M', '2.3e+19', '300K', f'{big:.2e}'} <= set(lines['big'])
    assert 'E: model.positions=learned' in out and '100 TFLOP/s' in out


def test_the_plan_is_not_wider_than_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '80')
    assert sweep.main(['sweep', 'plan', '--table=2', '--tflops=100', '--rows=base-en-de,big-en-fr']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    # Hours, and their total.
    hours = [float(line.split()[-1]) for line in lines if re.match(r'(base-en-de|big-en-fr) .*e\+', line)]
    [total] = re.findall(r'([\d.]+) in all', ' '.join(lines))
    assert len(hours) == 2 and float(total) == pytest.approx(sum(hours), rel=0.02)
    # What a row is and what it costs stand below each other, each with its name.
    names = [line.split()[0] for line in lines if line]
    assert names.count('row') == names.count('base-en-de') == 2
    assert any('FLOPs/update' in line for line in lines) and 'big-en-fr:' in names


def test_a_table_of_epochs_is_refused():
    # At a scale that sets no steps, with which epochs would be refused anyway.
    [row] = tables.rows('3', 'C6')
    with pytest.raises(ConfigError, match='row C6: train.epochs=3.0'):
        scales.config(row, 'paper', {'train.epochs': 3.0})


def test_plan_measures_time_and_memory(capsys):
    small = ['--set=model.N=1', '--set=model.d_model=32', '--set=data.batch_tokens=512', '--time', '--memory']
    assert sweep.main(['sweep', 'plan', '--scale=grammar', '--rows=C6', *small]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[-3:] == ['s/update', 'GiB', 'hours']
    seconds, memory, hours = map(float, out[2].split()[-3:])
    assert 0 < seconds < 60 and 0.0001 < memory < 4
    # Of 1,500 updates; both are printed with three digits.
    assert hours == pytest.approx(1500 * seconds / 3600, rel=0.01)
    assert any('(cpu)' in line for line in out)


def test_plan_measures_the_speed_or_takes_it(capsys):
    assert sweep.main(['sweep', 'plan', '--time', '--tflops=5']) == 2
    assert '--tflops and --time' in capsys.readouterr().err


def test_the_plan_of_a_language_model(capsys):
    """At its own scale, if none is named."""
    assert sweep.main(['sweep', 'plan', '--table=language', '--tflops=1', '--rows=base,one-head,relu']) == 0
    out = capsys.readouterr().out
    names = [line.split()[0] for line in out.splitlines() if line]
    assert names[2:5] == ['base', 'one-head', 'relu']
    config = scales.config(tables.LANGUAGE[0], 'language')
    count = cost.parameters(models.parameter_shapes(config))
    assert f'{count / 1e6:.2f}M' in out.splitlines()[2].split()
    assert 'relu: model.activation=relu (§3.3)' in out


def test_what_rows_become_at_each_scale(capsys):
    assert sweep.main(['sweep', 'rows', '--rows=base,A2,B1,C2,E,big']) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: re.split(r'  +', line)[1:] for line in out.splitlines() if '  ' in line}
    assert set(lines.pop('----')[0]) == {'-'}
    assert lines == {
        'row': ['paper', 'multi30k', 'grammar'],
        'base': ['as base'] * 3,
        'A2': ['h 4', 'h 2', 'h 2'],
        'B1': ['d_k 16', 'd_k 4', 'd_k 4'],
        'C2': ['N 4', 'N 2', 'N 2'],
        'E': ['positions learned'] * 3,
        'big': [
            'd_model 1024, d_ff 4096, h 16, P_drop 0.3, steps 300K',
            'd_model 128, d_ff 512, h 8, P_drop 0.3, steps 9K',
            'd_model 128, d_ff 512, h 8, P_drop 0.3, steps 4.5K',
        ],
    }
    assert 'at the scale grammar: N 3, d_model 64, d_ff 256, h 4, P_drop 0.1, eps_ls 0.1, steps 1.5K\n' in out
    # The paper gives it the dropout of base.
    assert sweep.main(['sweep', 'rows', '--table=2', '--rows=big-en-fr']) == 0
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith('big-en-fr')]
    assert 'd_model 1024' in row and 'P_drop' not in row
    assert sweep.main(['sweep', 'rows', '--scale=grammar', '--rows=big']) == 0
    assert 'multi30k' not in capsys.readouterr().out


@pytest.mark.parametrize(('table', 'scale'), [('language', 'language'), ('architectures', 'captions')])
def test_rows_that_are_not_of_the_papers_base_are_told_at_their_own_scale(capsys, table, scale):
    assert sweep.main(['sweep', 'rows', f'--table={table}']) == 0
    heading, _, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ['row', scale]
    assert [line.split()[0] for line in lines[: len(tables.rows(table))]] == [
        row.name for row in tables.rows(table)
    ]


def test_the_page_of_scales_is_what_the_command_prints(capsys):
    assert sweep.main(['sweep', 'rows', '--format=markdown']) == 0
    page = (user_files.ROOT / 'experiments' / 'results' / 'scales.md').read_text()
    assert capsys.readouterr().out in page


def test_a_time_or_memory_is_measured_of_a_batch_of_the_configs_size():
    config = scales.config(tables.TABLE_3[0], 'grammar')
    batch = updates.full_batch(config)
    assert set(batch) == {'source', 'target'}
    for tokens, segments, positions in batch.values():
        assert tokens.shape == segments.shape == positions.shape == (1024 // 32, 32)
        assert segments.min() == 1 and tokens.max() < config.data.pieces
    bucketed = configs.replace(config, {'data.batching': 'bucketed', 'data.batch_tokens': 2000})
    # Rows of 48, but no longer than a text, as many as divide among 8 microbatches.
    assert updates.full_batch(bucketed)['target'].tokens.shape == (56, 32)
    longer = configs.replace(bucketed, {'data.row_len': 64, 'data.max_len': 64})
    assert updates.full_batch(longer)['target'].tokens.shape == (40, 48)


@pytest.mark.parametrize(
    'program', [sweep, report, benchmark, figures, claims, complexity], ids=lambda module: module.__name__
)
def test_help(capsys, program):
    """Of each command with its own flags alone, at most 80 columns wide, whatever else the call says."""
    name = program.__name__.removesuffix('.__main__').rpartition('.')[2]
    for command, said in program.COMMANDS.items():
        assert program.main([name, *filter(None, [command]), '--help', '--rows=Z']) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80
        assert re.findall(r'^    --(\w+)', out, re.MULTILINE) == list(said.flags)
        assert f'    python -m experiments.{name} {command}'.rstrip() in out
        assert said.summary.split()[0] in out
    if len(program.COMMANDS) > 1:
        assert program.main([name, '--help']) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80
        assert all(f'\n    {command}' in out for command in program.COMMANDS)


def test_flags_that_a_command_ignores_are_refused(capsys):
    for words, part in (
        (['plan', '--seeds=3'], '--seeds: plan does not take it; it takes --table, '),
        (['plan', '--workdir=runs/x'], '--workdir: plan does not take it'),
        (['status', '--rows=A1'], '--rows: status does not take it'),
        (['run', '--time'], '--time: run does not take it'),
        (['run', '--cpus=4'], '--cpus: for SLURM only; needs --launcher=slurm'),
        (['run', 'base'], "'base': run takes only flags"),
    ):
        assert sweep.main(['sweep', *words]) == 2
        error = capsys.readouterr().err
        assert part in error and error.count('\n') == 1


def test_mistakes_are_one_line(capsys):
    for argv, part in ((['fly'], "'fly': no such command"), (['plan', '--rows=Z'], '--rows=Z')):
        assert sweep.main(['sweep', *argv]) == 2
        error = capsys.readouterr().err
        assert part in error and error.count('\n') == 1


@pytest.mark.parametrize('name', ['base', 'big', 'tiny', 'gpt_grammar', 'gru_bahdanau', 'bert_grammar'])
def test_values_resolve_as_a_config_file_does(name):
    """By the way that tables take, which is faster, and through a written config.json."""
    written = configs.option_values(read_config_file(find_config(name)))
    resolved = configs.resolve(configs.config_dict(written))
    assert configs.resolve_values(written) == resolved
    assert configs.from_json(configs.to_json(resolved)) == resolved
    with pytest.raises(ConfigError, match='no such option'):
        configs.resolve_values({'model.hh': 4})
    with pytest.raises(ConfigError, match='expected int'):
        configs.resolve_values(written | {'model.N': 'two'})


def test_a_scale_is_its_config_with_changes():
    for scale in scales.SCALES:
        base = configs.resolve(scales.scale_config(scale, {'train.beta2': 0.9}))
        assert scales.config(tables.Row('base', {}), scale, {'train.beta2': 0.9}) == base


@pytest.mark.parametrize(('steps', 'text'), [(100_000, '100K'), (1500, '1.5K'), (20, '20')])
def test_numbers_of_updates(steps, text):
    assert shown('train.steps', steps) == text
