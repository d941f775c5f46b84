"""What `compare` does, for any task."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from etils import epath

from transformer import config as configs
from transformer.actions import data as corpora
from transformer.actions.evaluate import (
    check_evaluation,
    check_fields,
    run_evaluation,
    run_file_evaluation,
)
from transformer.config import Config, ConfigError
from transformer.data import text_input
from transformer.runs import restore, workdir
from transformer.tasks.contract import Evaluation
from transformer.tasks.task import task_of


class Side(NamedTuple):
    """One of two models that are compared."""

    folder: epath.Path
    choice: str


def run_comparison(
    sides: tuple[Side, Side],
    what: str | dict[str, str],
    changes: dict[str, object] | None = None,
    show: int = 0,
) -> tuple[dict[str, object], list[str]]:
    """Compares two models on a split or on files.

    What was evaluated in the same way before is used; the rest is evaluated and recorded.

    Args:
      what: a split, or files as for `run_file_evaluation`.
      changes: as for `run_evaluation`, of both.
      show: how many examples of what differs.

    Returns:
      A report, which is JSON, and lines for people.

    Raises:
      ConfigError: a mistake of the user's, or the models cannot be compared.
    """
    tasks = [workdir.read_config(side.folder).train.task for side in sides]
    if tasks[0] != tasks[1]:
        raise ConfigError(f'{sides[1].folder}: train.task={tasks[1]}, but {sides[0].folder} has {tasks[0]}')
    for side in sides:
        check_evaluation(side.folder, side.choice, changes)
    first, second = (_texts(side.folder, what, changes) for side in sides)
    if first != second:
        raise ConfigError(
            f'{sides[0].folder} and {sides[1].folder} have different texts of {what}; name files instead'
        )
    found = [_evaluated(side, what, changes) for side in sides]
    config = workdir.read_config(sides[0].folder)
    report, lines = task_of(config).compare(config, *found, first, show)
    named = [{'workdir': str(s.folder), **_made_by(one)} for s, one in zip(sides, found, strict=True)]
    notes = list(_not_alike(sides, found))
    told = [f'{name}: {side["workdir"]}, {side["name"]}' for name, side in zip('AB', named, strict=True)]
    return {'a': named[0], 'b': named[1], 'notes': notes, **report}, [*told, *notes, *lines]


def _made_by(found: Evaluation) -> dict[str, object]:
    return {'name': found.name} | {key: found.entry[key] for key in ('checkpoint', 'steps', 'decode')}


def _not_alike(sides: tuple[Side, Side], found: Sequence[Evaluation]) -> Iterator[str]:
    """Yields what makes scores of two models incomparable, or differ for another reason than the models."""
    ours, theirs = (one.entry['decode'] for one in found)
    if different := [name for name in ours if ours[name] != theirs.get(name)]:
        shown = ', '.join(f'{name} {ours[name]} and {theirs.get(name)}' for name in different)
        yield f'the two were decoded differently: {shown}'
    contexts = [one.entry['context'] for one in found if 'context' in one.entry]
    windows = [f'windows of {c["window"]} pieces, {c["stride"]} new ones in each' for c in contexts]
    if len(set(windows)) > 1:
        yield f'the two saw different contexts: {" and ".join(windows)}'
    tokenizers = {workdir.read_lock(side.folder)['tokenizer_sha256'] for side in sides}
    if len(tokenizers) > 1:
        yield 'the two have different tokenizers: loss and perplexity per piece cannot be compared'


def _texts(
    folder: epath.Path, what: str | dict[str, str], changes: dict[str, object] | None
) -> dict[str, list[str]]:
    """The texts of a split, or of files."""
    if isinstance(what, str):
        corpora.check_split(folder, what)
        return corpora.of_workdir(folder, changes).texts(what)
    check_fields(folder, what)
    data = workdir.read_config(folder).data
    return text_input.read(what, data, workdir.read_tokenizer(folder)).texts(text_input.SPLIT)


def _evaluated(side: Side, what: str | dict[str, str], changes: dict[str, object] | None) -> Evaluation:
    """The evaluation of a model that was made in this way before, else a new one."""
    folder, config = side.folder, restore.changed(workdir.read_config(side.folder), changes or {})
    origin = restore.origin(config, folder, side.choice)
    for name, entry in _known(workdir.read_result(folder), what, config):
        if (entry['checkpoint'], entry['steps']) == (origin.name, origin.steps):
            with contextlib.suppress(OSError):
                lines = workdir.read_lines(folder, name)
                return Evaluation(name, entry, lines)
    if isinstance(what, str):
        return run_evaluation(folder, [what], side.choice, changes)[0]
    return run_file_evaluation(folder, what, side.choice, changes)


def _known(
    result: dict[str, object], what: str | dict[str, str], config: Config
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields what result.json has of a split or of files that was scored as a config says, with its name."""
    named = isinstance(what, str)
    split, of = (what, {'split': what}) if named else (text_input.SPLIT, {'files': text_input.identity(what)})
    known = [(name, e) for name, e in result.get('evaluations', {}).items() if of.items() <= e.items()]
    if named and (own := result.get('scores', {}).get(split)):
        known.insert(0, (f'{split}.{own["checkpoint"]}', own))
    wanted = {**task_of(config).decoding(config, split), 'stride': config.data.stride}
    for name, entry in known:
        # The entry tells how it was made, whatever its name or the config says.
        made = dataclasses.asdict(configs.Decode()) | entry['decode']
        made['stride'] = entry.get('context', {}).get('stride', config.data.stride)
        if made == wanted:
            yield name, entry
