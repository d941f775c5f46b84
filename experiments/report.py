"""Prints a table with the paper's numbers and ours: `python -m experiments.report --workdir=FOLDER`.

FOLDER is that of a sweep. Its sweep.json and the result.json of each run are enough; significance needs
the translations and references too, and learning curves the metrics.
"""

import dataclasses
import json
import math
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

import scipy.stats
from etils import epath
from tabulate import tabulate

from experiments import command, runs, tables
from transformer import accounting
from transformer import config as configs
from transformer.arguments import Call, Command, Flag
from transformer.config import Config
from transformer.options import ConfigError
from transformer.runs import workdir
from transformer.tasks.translation import bleu
from transformer.tasks.translation import task as translation

FORMATS = {'terminal': 'simple', 'markdown': 'github', 'latex': 'latex_booktabs', 'html': 'html'}
_LATEX = str.maketrans({'Δ': r'$\Delta$', '±': r'$\pm$', '→': r'$\to$'})


@dataclasses.dataclass(frozen=True)
class Measured:
    """A row, and what its runs reached."""

    row: tables.Row
    written: Config  # of the row at its own scale
    config: Config | None  # of the row at this scale; None where it is impossible
    runs: tuple[runs.Run, ...]  # those that are done
    results: tuple[dict, ...]  # of the same runs
    missing: tuple[runs.State, ...]

    def scores(self, split: str, path: str) -> dict[int, float]:
        """A score by seed, of the runs that have it; `path` as in `tables.Measure`."""
        by_seed = {
            run.seed: _at(result['scores'][split], path)
            for run, result in zip(self.runs, self.results, strict=True)
        }
        return {seed: value for seed, value in by_seed.items() if value is not None}


def _at(scores: object, path: str) -> float | None:
    """What stands at a path of names joined by dots; None if nothing does."""
    for name in path.split('.'):
        if not isinstance(scores, dict) or name not in scores:
            return None
        scores = scores[name]
    return scores


def columns(table: tables.Table) -> list[str]:
    """The headings of a table, in order."""
    found = ['row', *(key.partition('.')[2] for key in tables.OPTIONS), 'other']
    for measure in table.measures:
        found += [measure.name, f'{measure.name} ours', f'Δ{measure.name}', f'Δ{measure.name} ours']
        found += ['p'] if measure.significance else []
    return [*found, 'params', 'params ours', 'FLOPs', 'FLOPs ours', 'hours']


def read_rows(sweep: runs.Sweep, folder: pathlib.Path) -> list[Measured]:
    """The rows of a sweep's table with the results that are there.

    Raises:
      ConfigError: a result was made by another config than its row's.
    """
    table = tables.table(sweep.table)
    # Without its jobs: reading a report needs no SLURM, and what waits there counts as missing.
    states = runs.states(dataclasses.replace(sweep, jobs={}), folder)
    found = []
    for row in table.rows:
        mine = [s for s in states if s.run.row == row.name]
        try:
            config = tables.config(row, sweep.scale, sweep.different)
        except ConfigError:
            config = None
        results = {s.run: _result(s.run, config, table.split) for s in mine}
        found.append(
            Measured(
                row=row,
                written=tables.config(row, row.scale),
                config=config,
                runs=tuple(run for run, result in results.items() if result),
                results=tuple(filter(None, results.values())),
                missing=tuple(s for s in mine if not results[s.run]),
            )
        )
    return found


def _result(run: runs.Run, config: Config, split: str) -> dict | None:
    """The result of a run; None if the run has not ended or lacks the split."""
    file = run.folder / 'result.json'
    if not file.exists():
        return None
    result = runs.read_json(file, ('config', 'steps', 'params', 'seconds', 'hardware', 'scores'))
    made_by = configs.from_json(json.dumps(result['config']))
    wanted = configs.replace(config, {'train.seed': run.seed})
    for key, (old, new) in configs.differences(made_by, wanted, free=False).items():
        raise ConfigError(f'{run.folder}: made by another config: {key} is {old!r}, the row says {new!r}')
    whole = result['steps'] == run.steps
    # With `train.patience` a result is written where the training stopped early.
    early = 0 < wanted.train.patience == made_by.train.patience and made_by.train.steps == run.steps
    ended = whole or (early and result['steps'] < run.steps)
    return result if ended and split in result['scores'] else None


def significance(rows: Sequence[Measured], table: tables.Table) -> dict[str, str]:
    """How likely each row's difference in BLEU from base is by chance: the cells of the column p, by row.

    A cell has the greatest p over the seeds that the row shares with base, and how many these are. Where
    some seeds are better than base and others worse it says "mixed", however small each p is.

    Raises:
      ConfigError, OSError: translations or references are missing.
    """
    base = _base(rows)
    if not base or not any(_bleus(base, table)):
        return {}
    references = translation.references(epath.Path(base.runs[0].folder), table.split)
    language = base.config.data.target_language
    found: dict[str, list[tuple[float, float]]] = {}
    for run, result in zip(base.runs, base.results, strict=True):
        others = {
            row.row.name: _translations(other, outcome, table.split)
            for row in rows
            for other, outcome in zip(row.runs, row.results, strict=True)
            if row is not base and other.seed == run.seed
        }
        for name, lines in others.items():
            if len(lines) != len(references):
                raise ConfigError(f'{name}: {len(lines)} translations of {len(references)} sentences')
        if others:
            ours = _translations(run, result, table.split)
            tests = bleu.significance(ours, list(others.values()), references, language)
            for name, test in zip(others, tests, strict=True):
                found.setdefault(name, []).append(test)
    return {name: _agreement(tests) for name, tests in found.items()}


def _bleus(measured: Measured, table: tables.Table) -> list[dict[int, float]]:
    """The scores that paired bootstrap applies to, by seed."""
    return [measured.scores(table.split, m.path) for m in table.measures if m.significance]


def _agreement(tests: Sequence[tuple[float, float]]) -> str:
    """What differences and their p say together."""
    mixed = min(difference for difference, _ in tests) < 0 < max(difference for difference, _ in tests)
    return f'{"mixed" if mixed else format(max(p for _, p in tests), ".3f")} ({len(tests)})'


def _translations(run: runs.Run, result: dict, split: str) -> list[str]:
    return workdir.read_lines(epath.Path(run.folder), split, result['scores'][split]['checkpoint'])


def _base(rows: Sequence[Measured]) -> Measured | None:
    return next((row for row in rows if row.row.name == 'base'), None)


class Difference(NamedTuple):
    """A row's difference from base in a measure: the paper's and ours, None if unknown."""

    paper: float | None
    ours: float | None


def differences(rows: Sequence[Measured], split: str, measure: tables.Measure) -> dict[str, Difference]:
    """The difference of every row but base, by name; ours is the mean over the seeds shared with base."""
    base = _base(rows)
    found = {}
    for row in rows:
        if base is None or row is base:
            continue
        paper = [_paper(m.row, measure) for m in (row, base)]
        ours, of_base = row.scores(split, measure.path), base.scores(split, measure.path)
        shared = [ours[seed] - of_base[seed] for seed in ours if seed in of_base]
        # A perplexity may be too large for a number.
        known = shared and all(map(math.isfinite, shared)) and not _is_base(row, base)
        found[row.row.name] = Difference(
            paper[0] - paper[1] if None not in paper else None,
            statistics.mean(shared) if known else None,
        )
    return found


def _is_base(row: Measured, base: Measured) -> bool:
    """Whether a row has become base at this scale."""
    return row is not base and row.config == base.config


def _paper(row: tables.Row, measure: tables.Measure) -> float | None:
    return next((row.paper[name] for name in measure.paper if name in row.paper), None)


def cells(rows: Sequence[Measured], sweep: runs.Sweep) -> list[list[str]]:
    """The cells of the table, a list for each row, in the order of `columns`; p is empty."""
    table = tables.table(sweep.table)
    different = [differences(rows, table.split, measure) for measure in table.measures]
    lines = []
    for m in rows:
        line = [m.row.name, *(_option(m, rows[0], key) for key in tables.OPTIONS), _others(m, sweep)]
        for measure, by_row in zip(table.measures, different, strict=True):
            ours, papers = f'.{measure.decimals}f', f'.{measure.paper_decimals}f'
            difference = by_row.get(m.row.name, Difference(None, None))
            line += [
                _number(_paper(m.row, measure), papers),
                _spread(m, list(m.scores(table.split, measure.path).values()), ours),
                _number(difference.paper, f'+{papers}'),
                _number(difference.ours, f'+{ours}'),
                *([''] if measure.significance else []),
            ]
        flops = accounting.update_flops(m.config) * m.config.train.steps if m.config else None
        line += [
            _number(m.row.paper.get('params'), 'g', 'M'),
            f'{m.results[0]["params"] / 1e6:.2f}M' if m.results else '',
            _number(m.row.paper.get('FLOPs'), '.1e'),
            _number(flops, '.2e'),
            f'{statistics.mean(result["seconds"] for result in m.results) / 3600:.3g}' if m.results else '',
        ]
        lines.append(line)
    return lines


def _number(value: float | None, form: str, unit: str = '') -> str:
    return '' if value is None else f'{value:{form}}{unit}'


def _spread(measured: Measured, values: list[float], form: str) -> str:
    """Mean and standard deviation over seeds, and how many; without results, why there are none."""
    if measured.config is None:
        return 'impossible'
    if not values and measured.results:
        return ''
    if not values:
        states = [state.state for state in measured.missing]
        return states[0] if states and states[0] != 'done' else 'missing'
    several = len(values) > 1 and all(map(math.isfinite, values))
    deviation = f' ±{statistics.stdev(values):{form}}' if several else ''
    return f'{statistics.mean(values):{form}}{deviation} ({len(values)})'


def _option(measured: Measured, base: Measured, key: str) -> str:
    """An option as the row is written and what it became at this scale; empty where it is base's."""
    written, of_base = (configs.flatten(config)[key] for config in (measured.written, base.written))
    if measured is not base and written == of_base:
        return ''
    ours = configs.flatten(measured.config)[key] if measured.config else written
    shown = tables.shown(key, written)
    return shown if written == ours else f'{shown} → {tables.shown(key, ours)}'


def _others(measured: Measured, sweep: runs.Sweep) -> str:
    """What a row changes besides the options that have columns."""
    if measured.config is None:
        return ''
    changed = tables.changes(measured.row, sweep.scale, sweep.different)
    return ', '.join(
        f'{key.partition(".")[2]}={v}' for key, v in changed.items() if key not in tables.OPTIONS
    )


def notes(rows: Sequence[Measured], sweep: runs.Sweep) -> list[str]:
    """What stands below the table: what its numbers are, how they agree with the paper's, what is missing."""
    table = tables.table(sweep.table)
    found = [_caption(table, sweep)]
    for measure in table.measures:
        pairs = differences(rows, table.split, measure).values()
        if any(pair.paper is not None for pair in pairs):
            known = [pair for pair in pairs if None not in pair]
            found.append(f"Rank correlation of the Δ{measure.name} with the paper's: {_correlation(known)}")
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


def _caption(table: tables.Table, sweep: runs.Sweep) -> str:
    """What the numbers of a table are."""
    changed = ''.join(f', {key}={value}' for key, value in sweep.different.items())
    *first, last = (measure.meaning for measure in table.measures)
    meanings = f'{", ".join(first)} and {last}' if first else last
    tests = ''.join(
        f' p: of the {measure.name} difference by paired bootstrap, the greatest of those seeds (how many), '
        'mixed where some are better and some worse.'
        for measure in table.measures
        if measure.significance
    )
    return (
        f'Table {sweep.table} at the scale {sweep.scale}{changed}: {meanings} on {table.split}. Ours: mean '
        '± standard deviation (seeds). Δ: difference from base, ours over the seeds that both have.'
        f'{tests} hours: of training.'
    )


def _correlation(pairs: Sequence[tuple[float, float]]) -> str:
    if len(pairs) < 3:
        return f'needs three rows, there are {len(pairs)}'
    if any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return 'none, all differences are equal'
    result = scipy.stats.spearmanr(*zip(*pairs, strict=True))
    return f'{result.statistic:.2f} (Spearman, {len(pairs)} rows, p {result.pvalue:.2g})'


def rendered(headings: Sequence[str], lines: Sequence[Sequence[str]], form: str) -> str:
    """The table in a format of `FORMATS`, without the columns that are empty in all rows."""
    kept = [i for i in range(len(headings)) if any(line[i] for line in lines)]
    align = ['left' if headings[i] in ('row', 'other') else 'right' for i in kept]
    text = tabulate(
        [[line[i] for i in kept] for line in lines],
        [headings[i] for i in kept],
        FORMATS[form],
        colalign=align,
        disable_numparse=True,
    )
    return text.translate(_LATEX) if form == 'latex' else text


def print_report(call: Call) -> None:
    """Prints the report of a work directory, or writes it to a file."""
    values = call.flags
    if values.workdir is None:
        raise ConfigError('--workdir: missing; report needs the folder of a sweep')
    folder = pathlib.Path(values.workdir)
    sweep = runs.read_sweep(folder)
    if values.table not in (None, sweep.table):
        raise ConfigError(f'--table={values.table}: {folder} is of table {sweep.table}')
    table = tables.table(sweep.table)
    rows = read_rows(sweep, folder)
    headings, lines, told = columns(table), cells(rows, sweep), notes(rows, sweep)
    try:
        found = significance(rows, table)
        for line in lines:
            if line[0] in found:
                line[headings.index('p')] = found[line[0]]
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        told.append(f'No significance: {" ".join(str(error).split())}')
    title = f'Table {sweep.table}, scale {sweep.scale}'
    shown = rendered(headings, lines, values.format)
    if values.format == 'html':
        # Imported here, so that the other formats need no matplotlib.
        from experiments import page

        base, curves = _base(rows), {m.row.name: _curves(m) for m in rows}
        text = page.page(title, shown, table.measures[0].name, told, curves, _curves(base) if base else [])
    else:
        before = {'terminal': '', 'markdown': '- ', 'latex': '% '}[values.format]
        text = shown + '\n\n' + ''.join(f'{before}{note}\n' for note in told)
    if values.output:
        pathlib.Path(values.output).write_text(text)
        print(values.output)
    else:
        print(text, end='')


def _curves(measured: Measured) -> list[list[tuple[int, float]]]:
    """The steps and perplexities on the development set, of every run."""
    found = []
    for run in (*measured.runs, *(state.run for state in measured.missing)):
        lines = [line for line in runs.metrics(run.folder) if 'dev_perplexity' in line]
        found.append([(line['step'], line['dev_perplexity']) for line in lines])
    return [curve for curve in found if curve]


FLAGS = {
    'table': Flag(str, None, 'what the sweep must be of; any table if none', 'NAME'),
    'workdir': Flag(str, None, 'folder of the sweep', 'FOLDER'),
    'format': Flag(str, 'terminal', 'how to print it', 'NAME', choices=tuple(FORMATS)),
    'output': Flag(str, None, 'file to write; standard output if none', 'FILE'),
}
COMMANDS = {
    '': Command(
        "Print a table with the paper's numbers and ours.",
        print_report,
        tuple(FLAGS),
        examples=('{} --workdir=FOLDER', '{} --workdir=FOLDER --format=html --output=FILE'),
    )
}


def main(argv: Sequence[str]) -> int:
    """Prints a report. Returns the exit status."""
    return command.run(argv, 'report', __doc__, COMMANDS, FLAGS)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
