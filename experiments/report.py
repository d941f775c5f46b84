"""A table with the paper's numbers and ours: `python -m experiments.report --table=3 --workdir=FOLDER`.

Also of a folder that holds but sweep.json and the result.json of runs, without what only the work
directories tell: significance and learning curves.
"""

import dataclasses
import json
import pathlib
import statistics
import sys
from collections.abc import Sequence

import scipy.stats
from absl import flags
from tabulate import tabulate

from experiments import command, runs, tables
from transformer import accounting, commands
from transformer import config as configs
from transformer.config import Config, ConfigError

FORMATS = {'terminal': 'simple', 'markdown': 'github', 'latex': 'latex_booktabs', 'html': 'html'}
_LATEX = str.maketrans({'Δ': r'$\Delta$', '±': r'$\pm$', '→': r'$\to$'})
# Table 3 is of the development set with a BLEU near sacreBLEU's, Table 2 of the test set with its own.
_SCORES = {'2': ('test', 'paper')}
_SCORES_ELSE = ('dev', 'sacrebleu')
_OPTIONS = ('model.N', 'model.d_model', 'model.d_ff', 'model.h', 'model.d_k', 'model.d_v', 'model.P_drop',
            'train.eps_ls', 'train.steps')  # fmt: skip
COLUMNS = (
    'row', *(key.partition('.')[2] for key in _OPTIONS), 'other',
    'PPL', 'PPL ours', 'ΔPPL', 'ΔPPL ours', 'BLEU', 'BLEU ours', 'ΔBLEU', 'ΔBLEU ours', 'p',
    'params', 'params ours', 'FLOPs', 'FLOPs ours', 'hours',
)  # fmt: skip
_PAPER = ('BLEU', 'EN-DE', 'EN-FR')  # what the paper calls BLEU, by table


@dataclasses.dataclass(frozen=True)
class Measured:
    """A row, and what its runs reached."""

    row: tables.Row
    paper: Config  # of the row at the paper's scale
    config: Config | None  # None where the row is impossible at this scale
    runs: tuple[runs.Run, ...]  # those that are done
    results: tuple[dict, ...]  # of the same runs
    missing: tuple[runs.State, ...]

    def values(self, split: str, name: str) -> dict[int, float]:
        """Perplexity, or a BLEU by its name, by seed."""
        scores = {
            run.seed: result['scores'][split] for run, result in zip(self.runs, self.results, strict=True)
        }
        return {
            seed: s['perplexity'] if name == 'PPL' else s['bleu'][name]['score'] for seed, s in scores.items()
        }


def measure(sweep: runs.Sweep, folder: pathlib.Path, split: str) -> list[Measured]:
    """The rows of a sweep's table with the results that are there.

    Raises:
      ConfigError: a result was made by another config.
    """
    # Who reads needs no SLURM: what waits there is missing.
    states = runs.states(dataclasses.replace(sweep, jobs={}), folder)
    found = []
    for row in tables.rows(sweep.table):
        mine = [s for s in states if s.run.row == row.name]
        try:
            config = tables.config(row, sweep.scale, sweep.different)
        except ConfigError:
            config = None
        results = {s.run: _result(s.run, config, split) for s in mine}
        found.append(
            Measured(
                row=row,
                paper=tables.config(row, 'paper'),
                config=config,
                runs=tuple(run for run, result in results.items() if result),
                results=tuple(filter(None, results.values())),
                missing=tuple(s for s in mine if not results[s.run]),
            )
        )
    return found


def _result(run: runs.Run, config: Config, split: str) -> dict | None:
    """The result of a run that has ended, if it has."""
    file = run.folder / 'result.json'
    if not file.exists():
        return None
    result = runs.read_json(file, ('config', 'steps', 'params', 'seconds', 'hardware', 'scores'))
    made_by = configs.from_json(json.dumps(result['config']))
    wanted = configs.replace(config, {'train.seed': run.seed})
    for key, (old, new) in configs.differences(made_by, wanted, free=False).items():
        raise ConfigError(f'{run.folder}: made by another config: {key} is {old!r}, the row says {new!r}')
    return result if result['steps'] == run.steps and split in result['scores'] else None


def significance(rows: Sequence[Measured], split: str) -> dict[str, str]:
    """Of every row the greatest p of its BLEU over the seeds that it shares with base, and how many.

    Where some seeds are better than base and others worse it is "mixed", however small each p.

    Raises:
      ConfigError, OSError: translations or references are missing.
    """
    base = _base(rows)
    if not base or not base.runs:
        return {}
    references = commands.references(base.runs[0].folder, split)
    found: dict[str, list[tuple[float, float]]] = {}
    for run, result in zip(base.runs, base.results, strict=True):
        others = {
            row.row.name: _translations(other, outcome, split)
            for row in rows
            for other, outcome in zip(row.runs, row.results, strict=True)
            if row is not base and other.seed == run.seed
        }
        for name, lines in others.items():
            if len(lines) != len(references):
                raise ConfigError(f'{name}: {len(lines)} translations of {len(references)} sentences')
        if others:
            tests = bleu.significance(_translations(run, result, split), list(others.values()), references)
            for name, test in zip(others, tests, strict=True):
                found.setdefault(name, []).append(test)
    return {name: _agreement(tests) for name, tests in found.items()}


def _agreement(tests: Sequence[tuple[float, float]]) -> str:
    """What differences and their p say together."""
    mixed = min(difference for difference, _ in tests) < 0 < max(difference for difference, _ in tests)
    return f'{"mixed" if mixed else format(max(p for _, p in tests), ".3f")} ({len(tests)})'


def _translations(run: runs.Run, result: dict, split: str) -> list[str]:
    return workdir.read_translations(run.folder, split, result['scores'][split]['checkpoint'])


def _base(rows: Sequence[Measured]) -> Measured | None:
    return next((row for row in rows if row.row.name == 'base'), None)


def differences(rows: Sequence[Measured], split: str, bleu_name: str) -> dict[str, dict[str, tuple]]:
    """By PPL and BLEU, of every row but base: the paper's difference from base, and ours; None if unknown.

    Ours is the mean over the seeds that the row shares with base.
    """
    base = _base(rows)
    found = {}
    for kind, name in (('PPL', 'PPL'), ('BLEU', bleu_name)):
        found[kind] = {}
        for row in rows:
            if base is None or row is base:
                continue
            paper = [_paper(m.row, kind) for m in (row, base)]
            ours, of_base = row.values(split, name), base.values(split, name)
            shared = [ours[seed] - of_base[seed] for seed in ours if seed in of_base]
            found[kind][row.row.name] = (
                paper[0] - paper[1] if None not in paper else None,
                statistics.mean(shared) if shared and not _is_base(row, base) else None,
            )
    return found


def _is_base(row: Measured, base: Measured) -> bool:
    """Whether a row has become base at this scale."""
    return row is not base and row.config == base.config


def _paper(row: tables.Row, kind: str) -> float | None:
    names = _PAPER if kind == 'BLEU' else (kind,)
    return next((row.paper[name] for name in names if name in row.paper), None)


def table(rows: Sequence[Measured], sweep: runs.Sweep, split: str, bleu_name: str) -> list[list[str]]:
    """The cells of the table, by `COLUMNS`, without significance."""
    base = rows[0]
    different = differences(rows, split, bleu_name)
    lines = []
    for m in rows:
        name = m.row.name
        cells = [name, *(_option(m, base, key) for key in _OPTIONS), _others(m, sweep)]
        for kind, scored, form in (('PPL', 'PPL', '.3f'), ('BLEU', bleu_name, '.2f')):
            paper, ours = different[kind].get(name, (None, None))
            cells += [
                _number(_paper(m.row, kind), '.2f' if kind == 'PPL' else '.1f'),
                _spread(m, list(m.values(split, scored).values()), form),
                _number(paper, '+.2f' if kind == 'PPL' else '+.1f'),
                _number(ours, '+' + form),
            ]
        flops = accounting.update_flops(m.config) * m.config.train.steps if m.config else None
        cells += [
            '',
            _number(m.row.paper.get('params'), 'g', 'M'),
            f'{m.results[0]["params"] / 1e6:.2f}M' if m.results else '',
            _number(m.row.paper.get('FLOPs'), '.1e'),
            _number(flops, '.2e'),
            f'{statistics.mean(result["seconds"] for result in m.results) / 3600:.3g}' if m.results else '',
        ]
        lines.append(cells)
    return lines


def _number(value: float | None, form: str, unit: str = '') -> str:
    return '' if value is None else f'{value:{form}}{unit}'


def _spread(measured: Measured, values: list[float], form: str) -> str:
    """Mean and standard deviation over seeds, and how many; what is wrong where there is none."""
    if measured.config is None:
        return 'impossible'
    if not values:
        states = [state.state for state in measured.missing]
        return states[0] if states and states[0] != 'done' else 'missing'
    deviation = f' ±{statistics.stdev(values):{form}}' if len(values) > 1 else ''
    return f'{statistics.mean(values):{form}}{deviation} ({len(values)})'


def _option(measured: Measured, base: Measured, key: str) -> str:
    """An option as the paper's table shows it: of base, and where it differs; and what it became."""
    paper, of_base = (configs.flatten(config)[key] for config in (measured.paper, base.paper))
    if measured is not base and paper == of_base:
        return ''
    shown = (lambda steps: f'{steps / 1000:g}K') if key == 'train.steps' else '{:g}'.format
    ours = configs.flatten(measured.config)[key] if measured.config else paper
    return shown(paper) if paper == ours else f'{shown(paper)} → {shown(ours)}'


def _others(measured: Measured, sweep: runs.Sweep) -> str:
    """What a row changes beside the columns."""
    if measured.config is None:
        return ''
    changed = tables.changes(measured.row, sweep.scale, sweep.different)
    return ', '.join(f'{key.partition(".")[2]}={v}' for key, v in changed.items() if key not in _OPTIONS)


def notes(rows: Sequence[Measured], sweep: runs.Sweep, split: str, bleu_name: str) -> list[str]:
    """What the table is of, how it agrees with the paper's, and what is missing in it, in lines."""
    changed = ''.join(f', {key}={value}' for key, value in sweep.different.items())
    found = [
        f'Table {sweep.table} at the scale {sweep.scale}{changed}: perplexity and {bleu.NAMES[bleu_name]} on '
        f'{split}. Ours: mean ± standard deviation (seeds). Δ: difference from base, ours over the seeds '
        'that both have. p: of the BLEU difference by paired bootstrap, the greatest of those seeds (how '
        'many), mixed where some are better and some worse. hours: of training.'
    ]
    for kind, pairs in differences(rows, split, bleu_name).items():
        if all(paper is None for paper, _ in pairs.values()):
            continue
        known = [pair for pair in pairs.values() if None not in pair]
        found.append(f"Rank correlation of the Δ{kind} with the paper's: {_correlation(known)}")
    base = _base(rows)
    if same := [m.row.name for m in rows if base and m.config and _is_base(m, base)]:
        found.append(f'The same as base at this scale: {", ".join(same)}')
    missing = [state for m in rows for state in m.missing]
    found += [f'{s.run.name}: {s.state} at step {s.step}: {s.error}' for s in missing if s.error]
    for name in runs.STATES:
        if these := [state.run.name for state in missing if state.state == name and not state.error]:
            found.append(f'{name}: {", ".join(these)}')
    hardware = {json.dumps(result['hardware']) for m in rows for result in m.results}
    for text in sorted(hardware):
        one = json.loads(text)
        found.append(f'Trained on {one["devices"]} x {one["device"]} ({one["cpus"]} CPU cores).')
    return found


def _correlation(pairs: Sequence[tuple[float, float]]) -> str:
    if len(pairs) < 3:
        return f'needs three rows, there are {len(pairs)}'
    if any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return 'none, all differences are equal'
    result = scipy.stats.spearmanr(*zip(*pairs, strict=True))
    return f'{result.statistic:.2f} (Spearman, {len(pairs)} rows, p {result.pvalue:.2g})'


def rendered(lines: Sequence[Sequence[str]], form: str, columns: Sequence[str] = COLUMNS) -> str:
    """The table in a format of `FORMATS`; columns that are empty in all rows are left out."""
    kept = [i for i in range(len(columns)) if any(line[i] for line in lines)]
    align = ['left' if columns[i] in ('row', 'other') else 'right' for i in kept]
    text = tabulate(
        [[line[i] for i in kept] for line in lines],
        [columns[i] for i in kept],
        FORMATS[form],
        colalign=align,
        disable_numparse=True,
    )
    return text.translate(_LATEX) if form == 'latex' else text


def print_report(values: flags.FlagValues) -> None:
    """Prints, or writes, the report of a work directory."""
    if values.workdir is None:
        raise ConfigError('--workdir: missing; report needs the folder of a sweep')
    folder = pathlib.Path(values.workdir)
    sweep = runs.read_sweep(folder)
    if values.table not in (None, sweep.table):
        raise ConfigError(f'--table={values.table}: {folder} is of table {sweep.table}')
    split, bleu_name = _SCORES.get(sweep.table, _SCORES_ELSE)
    rows = measure(sweep, folder, split)
    lines, told = table(rows, sweep, split, bleu_name), notes(rows, sweep, split, bleu_name)
    try:
        found = significance(rows, split)
        for line in lines:
            if line[0] in found:
                line[COLUMNS.index('p')] = found[line[0]]
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        told.append(f'No significance: {" ".join(str(error).split())}')
    title = f'Table {sweep.table}, scale {sweep.scale}'
    text = _report(values.format, title, rendered(lines, values.format), told, rows)
    if values.output:
        pathlib.Path(values.output).write_text(text)
        print(values.output)
    else:
        print(text, end='')


def _report(form: str, title: str, shown: str, told: Sequence[str], rows: Sequence[Measured]) -> str:
    if form == 'html':
        # Here, so that the other formats need no matplotlib.
        from experiments import page

        base = _base(rows)
        curves = {m.row.name: _curves(m) for m in rows}
        return page.page(title, shown, told, curves, _curves(base) if base else [])
    before = {'terminal': '', 'markdown': '- ', 'latex': '% '}[form]
    return shown + '\n\n' + ''.join(f'{before}{note}\n' for note in told)


def _curves(measured: Measured) -> list[list[tuple[int, float]]]:
    """Steps and perplexities on the development set, of every run."""
    found = []
    for run in (*measured.runs, *(state.run for state in measured.missing)):
        lines = [line for line in runs.metrics(run.folder) if 'dev_perplexity' in line]
        found.append([(line['step'], line['dev_perplexity']) for line in lines])
    return [curve for curve in found if curve]


def main(argv: Sequence[str]) -> int:
    """Prints a report; returns the exit status."""
    values = flags.FlagValues()
    own = {'flag_values': values}
    flags.DEFINE_string('table', None, f'one of {", ".join(tables.TABLES)}; that of the sweep if none', **own)
    flags.DEFINE_string('workdir', None, 'of the sweep', **own)
    flags.DEFINE_enum('format', 'terminal', list(FORMATS), 'of the report', **own)
    flags.DEFINE_string('output', None, 'file to write it to', **own)
    return command.run(argv, values, {'': print_report})


if __name__ == '__main__':
    sys.exit(main(sys.argv))
