"""What the runs of a report reached, and which of them were scored as base was."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence

from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables import scales, user_files
from transformer import config as configs
from transformer.config import Config, ConfigError, Decode

_KEYS = ('config', 'steps', 'params', 'seconds', 'hardware', 'scores')
# Scores that count pieces, and options of the tokenizer, which makes them.
BY_PIECE = ('loss', 'perplexity', 'accuracy')
_OF_PIECES = ('data.tokenizer', 'data.pieces', 'data.vocabulary', 'data.tokenizer_model')
# Options that decide which checkpoint a training scores.
_DECIDE_THE_CHECKPOINT = {'train.average_last', 'train.scored', 'train.patience', 'train.best_by'}


@dataclasses.dataclass(frozen=True)
class Done:
    """A run that was scored.

    Attributes:
      pair: the runs of two rows with the same number are compared: its seed in a sweep.
      result: its result.json.
      unlike: how it was scored otherwise than base; empty if alike.
    """

    name: str
    folder: pathlib.Path
    pair: int
    result: dict
    unlike: str = ''

    def scores(self, split: str) -> dict:
        """What its training scored of a split."""
        return self.result['scores'][split]


@dataclasses.dataclass(frozen=True)
class Measured:
    """A row, and what its runs reached."""

    row: tables.Row
    written: Config  # of the row at its own scale
    config: Config  # of the row at this scale
    changed: Mapping[str, object]  # what the row changes at this scale
    done: tuple[Done, ...]
    missing: tuple[runs.State, ...] = ()

    @property
    def counted(self) -> tuple[Done, ...]:
        """The runs whose scores are printed: those scored as base, or all where none is."""
        return tuple(run for run in self.done if not run.unlike) or self.done

    @property
    def is_unlike(self) -> bool:
        """Whether no run was scored as base, so that the row cannot be compared."""
        return bool(self.done) and all(run.unlike for run in self.done)

    def scores(self, split: str, path: str) -> dict[int, float]:
        """A score of each run that has it, by `Done.pair`; `path` as in `tables.Measure`."""
        found = {run.pair: value_at(run.scores(split), path) for run in self.counted}
        return {pair: value for pair, value in found.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rows of a report.

    Attributes:
      title: of a page. subject: the same in a sentence.
      table: what is printed of them.
      options: those with columns of their own, by dotted name.
      base: the name of the row that others are compared with.
      left_out: rows of the table that were never launched.
      several: whether a row has runs with several seeds, that have a mean.
      scale: what the scale of a sweep is, and why; empty of other runs.
    """

    title: str
    subject: str
    table: tables.Table
    options: tuple[str, ...]
    rows: tuple[Measured, ...]
    base: str = 'base'
    left_out: tuple[str, ...] = ()
    several: bool = True
    scale: str = ''

    def base_row(self) -> Measured | None:
        """The row that others are compared with; None if there is none."""
        return next((row for row in self.rows if row.row.name == self.base), None)


def have_other_pieces(row: Measured, other: Measured) -> bool:
    """Whether texts of two rows have different pieces, by their tokenizers or by what these were made of."""
    runs_of = [each.done[:1] for each in (row, other)]
    locks = [run.folder / 'data.lock.json' for done in runs_of for run in done]
    if len(locks) == 2 and all(lock.exists() for lock in locks):
        return len({runs.read_json(lock, ('tokenizer_sha256',))['tokenizer_sha256'] for lock in locks}) == 2
    brought = [value_at(run.result, 'init_from.params_sha256') for done in runs_of for run in done]
    options = [[configs.flatten(each.config)[key] for key in _OF_PIECES] for each in (row, other)]
    return options[0] != options[1] or len(set(brought)) == 2


def value_at(scores: object, path: str):
    """What stands at a path of names joined by dots; None if nothing does."""
    for name in path.split('.'):
        if not isinstance(scores, dict) or name not in scores:
            return None
        scores = scores[name]
    return scores


def of_sweep(sweep: runs.Sweep, folder: pathlib.Path) -> Comparison:
    """The rows that a sweep was launched with, and the results that are there.

    Raises:
      ConfigError: a result was made by another config than its row's.
    """
    table = tables.table(sweep.table)
    # Without its jobs: reading a report needs no SLURM, and what waits there counts as missing.
    states = runs.states(dataclasses.replace(sweep, jobs={}), folder)
    found = []
    launched = {state.run.row for state in states}
    for row in (row for row in table.rows if row.name in launched):
        config = scales.config(row, sweep.scale, sweep.different)
        mine = [s for s in states if s.run.row == row.name]
        results = {s.run: _result_of(s.run, config, table.split) for s in mine}
        done = [Done(run.name, run.folder, run.seed, result) for run, result in results.items() if result]
        found.append(
            Measured(
                row=row,
                written=scales.config(row, row.scale) if row.scale else config,
                config=config,
                changed=scales.changes(row, sweep.scale, sweep.different),
                done=tuple(done),
                missing=tuple(s for s in mine if not results[s.run]),
            )
        )
    name, scale = user_files.stem(sweep.table), user_files.stem(sweep.scale)
    changed = ''.join(f', {key}={value}' for key, value in sweep.different.items())
    return _marked(
        Comparison(
            title=f'Table {name}, scale {scale}',
            subject=f'Table {name} at the scale {scale}{changed}',
            table=table,
            options=tables.OPTIONS,
            rows=tuple(found),
            base=table.base,
            left_out=tuple(row.name for row in table.rows if row.name not in launched),
            scale=scales.told(sweep.scale, sweep.different),
        )
    )


def _result_of(run: runs.Run, config: Config, split: str) -> dict | None:
    """The result of a run; None if the run has not ended or lacks the split."""
    file = run.folder / 'result.json'
    if not file.exists():
        return None
    result = _read(file, split)
    made_by, wanted = _config(result, file), configs.replace(config, {'train.seed': run.seed})
    for key, (old, new) in configs.differences(made_by, wanted, free=False).items():
        raise ConfigError(f'{run.folder}: made by another config: {key} is {old!r}, the row says {new!r}')
    whole = result['steps'] == run.steps
    # With `train.patience` a result is written where the training stopped early.
    early = 0 < wanted.train.patience == made_by.train.patience and made_by.train.steps == run.steps
    ended = whole or (early and result['steps'] < run.steps)
    return result if ended and split in result['scores'] else None


def _read(file: pathlib.Path, split: str) -> dict:
    """A result.json, and what must stand in it of the split."""
    result = runs.read_json(file, _KEYS)
    if 'checkpoint' not in result['scores'].get(split, {'checkpoint': None}):
        raise ConfigError(f'{file}: damaged')
    return result


def _config(result: dict, file: pathlib.Path) -> Config:
    try:
        return configs.from_json(json.dumps(result['config']))
    except ConfigError as error:
        raise ConfigError(f'{file}: {error}') from None


def of_runs(folders: Sequence[str], base: str | None, split: str) -> Comparison:
    """Runs that need not belong to a sweep, a row each, named by their folders.

    Args:
      base: the name or folder of the run that others are compared with; the first if None.

    Raises:
      ConfigError: a folder holds no result or lacks the split, or two are of different tasks.
    """
    paths = [pathlib.Path(folder) for folder in folders]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f'{twice[0]}: named twice')
    results = {name: _finished(path, split) for name, path in zip(names, paths, strict=True)}
    read = {
        name: _config(results[name], path / 'result.json') for name, path in zip(names, paths, strict=True)
    }
    based = dict(zip(folders, names, strict=True)).get(base, base) if base else names[0]
    if based not in names:
        raise ConfigError(f'--base={base}: choose one of {", ".join(names)}')
    tasks = {config.train.task: name for name, config in read.items()}
    if len(tasks) > 1:
        told = ' and '.join(f'{name} of {task}' for task, name in tasks.items())
        raise ConfigError(f'{told}: runs of different tasks cannot be compared')
    different = {name: configs.differences(read[based], config) for name, config in read.items()}
    rows = tuple(
        Measured(
            row=tables.Row(name, {}),
            written=read[name],
            config=read[name],
            changed={key: new for key, (_, new) in different[name].items()},
            done=(Done(name, path, 0, results[name]),),
        )
        for name, path in zip(names, paths, strict=True)
    )
    changed = set().union(*different.values())
    count = f'{len(rows)} run{"s" if len(rows) > 1 else ""}'
    return _marked(
        Comparison(
            title=count,
            subject=count,
            table=tables.Table((), split, tables.MEASURES[next(iter(tasks))]),
            options=tuple(key for key in configs.OPTIONS if key in changed),
            rows=rows,
            base=based,
            several=False,
        )
    )


def _finished(folder: pathlib.Path, split: str) -> dict:
    file = folder / 'result.json'
    if not file.exists():
        raise ConfigError(f'{folder}: holds no result.json; a run has one when its training has ended')
    result = _read(file, split)
    if split not in result['scores']:
        there = f'scores of {", ".join(result["scores"])}' if result['scores'] else 'no scores'
        raise ConfigError(f'--split={split}: {folder} has {there}')
    return result


def _marked(comparison: Comparison) -> Comparison:
    """The comparison with what was scored otherwise than base marked."""
    base, split = comparison.base_row(), comparison.table.split
    with_scores = [row for row in (base, *comparison.rows) if row and row.done]
    if not with_scores:
        return comparison
    # Where runs of base differ among themselves, as most of them.
    of_base = with_scores[0].done
    like = max(of_base, key=lambda run: sum(not _unlike(other, run, split, {}) for other in of_base))
    # A row of a table is meant to be scored as it says; runs of their own are not.
    meant = {row.row.name: row.changed if comparison.several else {} for row in comparison.rows}
    rows = tuple(
        dataclasses.replace(
            row,
            done=tuple(
                dataclasses.replace(run, unlike=_unlike(run, like, split, meant[row.row.name]))
                for run in row.done
            ),
        )
        for row in comparison.rows
    )
    return dataclasses.replace(comparison, rows=rows)


def _unlike(run: Done, like: Done, split: str, meant: Mapping[str, object]) -> str:
    """How a run was scored otherwise than another; empty if alike.

    Args:
      meant: options in which the two are meant to differ.
    """
    ours, theirs = run.scores(split), like.scores(split)
    found = []
    if ours['checkpoint'] != theirs['checkpoint'] and not _DECIDE_THE_CHECKPOINT & meant.keys():
        found.append(f'checkpoint {ours["checkpoint"]}, not {theirs["checkpoint"]}')
    new, old = _decoding(ours), _decoding(theirs)
    for name in dataclasses.asdict(Decode()):
        value = new[name]
        if value != old[name] and f'decode.{name}' not in meant:
            found.append(f'decode.{name}={value}, not {old[name]}')
    strides = [value_at(scores, 'context.stride') for scores in (ours, theirs)]
    if strides[0] != strides[1] and 'data.stride' not in meant:
        found.append(f'data.stride={strides[0]}, not {strides[1]}')
    texts = [_text(one, split) for one in (run, like)]
    if None not in texts and texts[0] != texts[1] and not any(key.startswith('data.') for key in meant):
        found.append('another text')
    return ', '.join(found)


def _decoding(scores: dict) -> dict[str, object]:
    """The options of decoding; where a result is older than an option, its default."""
    return dataclasses.asdict(Decode()) | (value_at(scores, 'decode') or {})


def _text(run: Done, split: str) -> dict[str, str] | None:
    """What identifies the text of a split; None for results that were moved without their data.lock.json."""
    file = run.folder / 'data.lock.json'
    if not file.exists():
        return None
    checksums = runs.read_json(file, ('checksums',))['checksums']
    return {
        name: digest
        for name, digest in checksums.items()
        if name.startswith(f'{split}.') and name.endswith('.txt')
    }
