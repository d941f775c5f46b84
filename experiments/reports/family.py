"""Builds the table `family` from the committed results: each model's score beside a public number."""

import pathlib
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from experiments.rendering.formats import Column
from experiments.reports import results
from experiments.tables.family import FAMILY, Member, Public
from transformer.tasks import task_of

RESULTS = pathlib.Path(__file__).parents[1] / 'results'
NOTES = (
    'Ours: the mean of the runs; of a single run also its 95 % interval over resampled examples, if any. '
    'Times contain evaluations on dev and compilation. The LSTM on the Penn Treebank also stood still for 23 '
    'minutes of its time, the captions of photographs for 15.',
    'Public numbers are as published; the table says in what their conditions differ from ours.',
)


class Ours(NamedTuple):
    """A member's scores and costs, from its committed runs.

    Attributes:
      meaning: the name of the measure.
      better: whether a lower or a higher score is better.
      score: the mean score of the runs.
      text: the score as text, with its interval if there is one run.
      params: the number of parameters.
      seconds: the mean time of training.
      hardware: the devices of the first run.
    """

    meaning: str
    better: str
    score: float
    text: str
    params: int
    seconds: float
    hardware: str


def read(member: Member, root: pathlib.Path = RESULTS) -> Ours:
    """Reads a member's runs. Raises ConfigError, which names the file, if one is missing or damaged."""
    found = [results.read_finished(root / folder, member.split) for folder in member.runs]
    measure = {one.name: one for one in task_of(found[0][1]).measures}[member.measure]
    entries = [result['scores'][member.split] for result, _ in found]
    score = statistics.mean(measure.value(entry) for entry in entries)
    interval = measure.interval(entries[0]) if len(entries) == 1 else None
    ends = ', '.join(measure.format(end).removesuffix(' %') for end in interval or ())
    machine = found[0][0]['hardware']
    cores = f'{machine["cpus"]} CPU core{"s" if machine["cpus"] > 1 else ""}'
    return Ours(
        measure.meaning,
        measure.better,
        score,
        measure.format(score) + (f' [{ends}]' if interval else ''),
        found[0][0]['params'],
        statistics.mean(result['seconds'] for result, _ in found),
        cores if machine['platform'] == 'cpu' else machine['device'],
    )


def columns(members: Sequence[Member] = FAMILY, root: pathlib.Path = RESULTS) -> list[Column]:
    """Makes the table's columns."""
    ours, publics = [read(member, root) for member in members], [member.public for member in members]
    return [
        Column('model', 'row', [member.model for member in members]),
        Column('data', 'row', [member.data for member in members]),
        Column('measure', 'text', [one.meaning for one in ours]),
        Column('ours', 'score', [one.text for one in ours], [len(member.runs) for member in members]),
        Column('public', 'score', [public.number if public else '' for public in publics]),
        Column('conditions', 'text', [public.of if public else '' for public in publics]),
        Column('source', 'text', [public.source if public else '' for public in publics]),
        Column('params', 'cost', [f'{one.params:,}' for one in ours]),
        Column('time', 'cost', [f'{one.seconds / 60:.0f} min' for one in ours]),
        Column('hardware', 'text', [one.hardware for one in ours]),
    ]


def records(members: Sequence[Member] = FAMILY, root: pathlib.Path = RESULTS) -> list[dict[str, object]]:
    """Makes a record of each row: numbers without rounding, and None where there is no public number."""
    rows = []
    for member in members:
        public = dict.fromkeys(Public._fields) if member.public is None else member.public._asdict()
        about = {'model': member.model, 'data': member.data, 'runs': len(member.runs), 'split': member.split}
        named = {f'public_{key}': value for key, value in public.items()}
        rows.append(about | read(member, root)._asdict() | named)
    return rows
