"""Reads the results of a report's rows, and marks runs that were not scored in the same way as base."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence

from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from experiments.tables.table import OPTIONS, Score, printed_scores
from transformer import config as configs
from transformer import files
from transformer.config import Config, ConfigError, Decode, errors_in
from transformer.tasks import task_of
from transformer.tasks.contract import Measure

# The shapes of a result.json and of a split's scores.
_SHAPE = {
    'config': dict, 'steps': files.COUNT, 'params': files.COUNT, 'seconds': float, 'scores': dict,
    'hardware': {'devices': files.COUNT, 'device': str, 'cpus': files.COUNT, '*': object},
    'tokens_per_second?': (float, None), 'init_from?': (dict, None), '*': object,
}  # fmt: skip
_SCORES = {'checkpoint': str, 'decode?': dict, 'context?': dict, '*': object}
# Options of the tokenizer.
_TOKENIZER = ('data.tokenizer', 'data.pieces', 'data.vocabulary', 'data.tokenizer_model')
# Options that decide which checkpoint a training scores.
_DECIDE_THE_CHECKPOINT = {'train.average_last', 'train.scored', 'train.patience', 'train.best_by'}


@dataclasses.dataclass(frozen=True)
class Done:
    """A run that was scored."""

    name: str
    folder: pathlib.Path
    pair: int  # runs with the same number in two rows are compared; in a sweep the seed
    result: dict  # the contents of result.json
    unlike: str = ''  # how its scoring differed from base's; '' if it did not

    def scores(self, split: str) -> dict:
        """Returns the scores of a split that its training recorded."""
        return self.result['scores'][split]

    def manifest(self) -> dict | None:
        """Reads the manifest of its data, or returns None if only result.json of the run is there."""
        file = self.folder / 'data.lock.json'
        return runs.read_json(file, ('checksums',)) if file.exists() else None


@dataclasses.dataclass(frozen=True)
class Measured:
    """A row and its runs."""

    row: tables.Row
    written: Config  # the config at the row's own scale
    config: Config  # the config at this scale
    changed: Mapping[str, object]  # the changes at this scale
    done: tuple[Done, ...]  # runs with results
    missing: tuple[runs.RunState, ...] = ()  # the other runs

    @property
    def counted(self) -> tuple[Done, ...]:
        """Returns the runs whose scores are printed: those scored as base was, or all if no run was."""
        return tuple(run for run in self.done if not run.unlike) or self.done

    @property
    def is_unlike(self) -> bool:
        """Returns whether no run was scored as base was, so that the row cannot be compared."""
        return bool(self.done) and all(run.unlike for run in self.done)

    def scores(self, split: str, measure: Measure) -> dict[int, float]:
        """Returns the score of each run that has it, by `Done.pair`."""
        values = {run.pair: measure.value(run.scores(split)) for run in self.counted}
        return {pair: value for pair, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rows of a report."""

    title: str
    table: tables.Table  # has no rows if the runs belong to no table
    scores: tuple[Score, ...]  # printed for each row
    options: tuple[str, ...]  # the options with columns of their own
    rows: tuple[Measured, ...]
    base: str = 'base'  # the name of the row that others are compared with
    left_out: tuple[str, ...] = ()  # rows of the table that were never launched
    several: bool = True  # whether rows are means over seeds; if not, each row is one run
    scale: str = ''  # what the scale of a sweep changes

    def base_row(self) -> Measured | None:
        """Returns the row that others are compared with, or None if there is none."""
        return next((row for row in self.rows if row.row.name == self.base), None)


def have_other_tokenizers(row: Measured, other: Measured) -> bool:
    """Returns whether two rows have different tokenizers, or tokenizers made with different options."""
    runs_of_both = [run for measured in (row, other) for run in measured.done[:1]]
    manifests = [run.manifest() for run in runs_of_both]
    if len(manifests) == 2 and None not in manifests:
        return len({manifest.get('tokenizer_sha256') for manifest in manifests}) == 2
    # A run that starts from another run uses that run's tokenizer.
    starts = {(run.result.get('init_from') or {}).get('params_sha256') for run in runs_of_both}
    options = [[configs.flatten(measured.config)[key] for key in _TOKENIZER] for measured in (row, other)]
    return options[0] != options[1] or len(starts) == 2


def of_sweep(sweep: runs.Sweep, folder: pathlib.Path) -> Comparison:
    """Reads the rows that a sweep was launched with, and their results."""
    table = tables.table(sweep.table)
    # A report does not ask SLURM: without the sweep's jobs, runs that wait there count as missing.
    states = runs.states(dataclasses.replace(sweep, jobs={}), folder)
    if not states:
        raise ConfigError(f'{folder}: the sweep has no run')
    launched = {state.run.row for state in states}
    rows = tuple(
        _row_of_sweep(row, sweep, table.split, [state for state in states if state.run.row == row.name])
        for row in table.rows
        if row.name in launched
    )
    check_tasks({row.row.name: row.config for row in rows}, 'rows')
    name, scale = user_files.stem(sweep.table), user_files.stem(sweep.scale)
    changed = ''.join(f', {key}={value}' for key, value in sweep.different.items())
    return _mark_unlike(
        Comparison(
            title=f'Table {name} at the scale {scale}{changed}',
            table=table,
            scores=printed_scores(table, task_of(rows[0].config)),
            options=OPTIONS,
            rows=rows,
            base=table.base,
            left_out=tuple(row.name for row in table.rows if row.name not in launched),
            scale=scales.describe(sweep.scale),
        )
    )


def check_tasks(of: Mapping[str, Config], what: str) -> None:
    """Raises ConfigError if the configs of rows or runs, by name, have different tasks."""
    tasks = {config.train.task: name for name, config in of.items()}
    if len(tasks) > 1:
        by_task = ' and '.join(f'{name} has train.task={task}' for task, name in tasks.items())
        raise ConfigError(f'{by_task}: {what} of different tasks cannot be compared')


def _row_of_sweep(
    row: tables.Row, sweep: runs.Sweep, split: str, states: Sequence[runs.RunState]
) -> Measured:
    config = scales.config(row, sweep.scale, sweep.different)
    results = {state.run: _result_of(state.run, config, split) for state in states}
    for result in filter(None, results.values()):
        # Classes that the row leaves open are the data's.
        made_by = configs.flatten(configs.from_json(json.dumps(result['config'])))
        if classes := {k: n for k, n in made_by.items() if k.endswith('.classes') and n}:
            config = configs.replace(config, classes)
    return Measured(
        row=row,
        written=scales.config(row, row.scale) if row.scale else config,
        config=config,
        changed=scales.changes(row, sweep.scale, sweep.different),
        done=tuple(Done(run.name, run.folder, run.seed, result) for run, result in results.items() if result),
        missing=tuple(state for state in states if not results[state.run]),
    )


def _result_of(run: runs.SweepRun, config: Config, split: str) -> dict | None:
    """Reads the result of a run, or returns None if the run has not ended or lacks the split.

    Raises:
      ConfigError: the run was made by another config, or its result is damaged.
    """
    if not runs.has_result(run.folder):
        return None
    result, made_by = _read(run.folder, split)
    wanted = configs.replace(config, {'train.seed': run.seed})
    for key, (old, new) in runs.differences(made_by, wanted).items():
        raise ConfigError(f'{run.folder}: made by another config: {key} is {old!r}, the row says {new!r}')
    return result if runs.has_ended(result, made_by, wanted) and split in result['scores'] else None


def _read(folder: pathlib.Path, split: str) -> tuple[dict, Config]:
    """Reads and checks the result.json of a run, and the config in it."""
    file = folder / 'result.json'
    result = files.check_shape(runs.read_json(file, ()), _SHAPE, str(file))
    files.check_shape(result['scores'].get(split, {'checkpoint': ''}), _SCORES, f'{file}: scores.{split}')
    with errors_in(file):
        config = configs.from_json(json.dumps(result['config']))
    with errors_in(folder):
        for measure in task_of(config).measures:
            measure.value(result['scores'].get(split, {}))
            measure.interval(result['scores'].get(split, {}))
    return result, config


def of_runs(folders: Sequence[str], base: str | None, split: str) -> Comparison:
    """Compares runs of any trainings, a row for each, with `base` (a name or folder) or with the first."""
    paths = [pathlib.Path(folder) for folder in folders]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f'{twice[0]}: named twice')
    read = {name: read_finished(path, split) for name, path in zip(names, paths, strict=True)}
    base_name = dict(zip(folders, names, strict=True)).get(base, base) if base else names[0]
    if base_name not in names:
        raise ConfigError(f'--base={base}: choose one of {", ".join(names)}')
    check_tasks({name: config for name, (_, config) in read.items()}, 'runs')
    of_base = read[base_name][1]
    rows = tuple(
        Measured(
            row=tables.Row(name, {}),
            written=config,
            config=config,
            changed={key: new for key, (_, new) in configs.differences(of_base, config).items()},
            done=(Done(name, path, 0, result),),
        )
        for path, (name, (result, config)) in zip(paths, read.items(), strict=True)
    )
    changed, table = set().union(*(row.changed for row in rows)), tables.Table((), split)
    return _mark_unlike(
        Comparison(
            title=f'{len(rows)} run{"s" if len(rows) > 1 else ""}',
            table=table,
            scores=printed_scores(table, task_of(of_base)),
            options=tuple(key for key in configs.OPTIONS if key in changed),
            rows=rows,
            base=base_name,
            several=False,
        )
    )


def read_finished(folder: pathlib.Path, split: str) -> tuple[dict, Config]:
    """Reads the result.json of a training with scores of a split, and its config."""
    if not runs.has_result(folder):
        raise ConfigError(f'{folder}: holds no result.json of a training, which writes one at its end')
    result, config = _read(folder, split)
    if split not in result['scores']:
        there = f'scores of {", ".join(result["scores"])}' if result['scores'] else 'no scores'
        raise ConfigError(f'--split={split}: {folder} has {there}')
    return result, config


def _mark_unlike(comparison: Comparison) -> Comparison:
    """Marks the runs that were scored differently from base."""
    base, split = comparison.base_row(), comparison.table.split
    with_scores = [row for row in (base, *comparison.rows) if row and row.done]
    if not with_scores:
        return comparison
    # If the runs of base were scored differently, the most common way counts.
    of_base = with_scores[0].done
    like = max(of_base, key=lambda run: sum(not _unlike(other, run, split, {}) for other in of_base))

    def mark(row: Measured) -> Measured:
        # A row of a table may change options of scoring; any other run must be scored as base was.
        intended = row.changed if comparison.several else {}
        done = [dataclasses.replace(run, unlike=_unlike(run, like, split, intended)) for run in row.done]
        return dataclasses.replace(row, done=tuple(done))

    return dataclasses.replace(comparison, rows=tuple(map(mark, comparison.rows)))


def _unlike(run: Done, like: Done, split: str, intended: Mapping[str, object]) -> str:
    """Describes how a run's scoring differed from another's, except in options that differ by intention."""
    ours, theirs = run.scores(split), like.scores(split)
    reasons = []
    if ours['checkpoint'] != theirs['checkpoint'] and not _DECIDE_THE_CHECKPOINT & intended.keys():
        reasons.append(f'checkpoint {ours["checkpoint"]}, not {theirs["checkpoint"]}')
    options, base_options = _scoring_options(ours), _scoring_options(theirs)
    for key, value in options.items():
        if value != base_options[key] and key not in intended:
            reasons.append(f'{key}={value}, not {base_options[key]}')
    texts = [_text_checksums(run, split), _text_checksums(like, split)]
    if None not in texts and texts[0] != texts[1] and not any(key.startswith('data.') for key in intended):
        reasons.append('another text')
    return ', '.join(reasons)


def _scoring_options(scores: dict) -> dict[str, object]:
    """Returns the options that a split was scored with, and defaults for options newer than the result."""
    decode = dataclasses.asdict(Decode())
    decode |= {key: value for key, value in scores.get('decode', {}).items() if key in decode}
    options = {f'decode.{key}': value for key, value in decode.items()}
    return options | {'data.stride': scores.get('context', {}).get('stride')}


def _text_checksums(run: Done, split: str) -> dict[str, str] | None:
    """Returns the checksums of a split's text, classes and numbers, or None if only the result is there."""
    manifest = run.manifest() or {}
    checksums, fields = manifest.get('checksums'), manifest.get('fields', {})
    gold = [name for name, field in fields.items() if field.get('type') in ('label', 'number')]
    counts = lambda file: file.endswith('.txt') or file in [f'{split}.{name}.bin' for name in gold]
    of_split = lambda file: file.startswith(f'{split}.') and counts(file)
    return checksums and {file: digest for file, digest in checksums.items() if of_split(file)}
