"""Reads the committed sweeps of Table 3, and of further rows, at small scales."""

import functools
import pathlib

from experiments.reports import differences, results
from experiments.reports.differences import Difference
from experiments.reports.results import Comparison
from experiments.sweeps import runs
from experiments.tables import rows as tables
from experiments.tables.table import printed_scores
from transformer.tasks import task_of

RESULTS = pathlib.Path(__file__).parents[1] / 'results'
# Table 3's sweeps, by scale.
TABLE_3 = {'grammar': 'table3-grammar', 'multi30k': 'table3-multi30k'}
FURTHER = 'further-grammar'


@functools.cache
def comparison(folder: str) -> Comparison:
    """Reads a sweep of the results by the name of its folder."""
    path = RESULTS / folder
    return results.of_sweep(runs.read_sweep(path), path)


def changes(folder: str) -> dict[str, Difference]:
    """Computes each row's change of log perplexity from base, over the seeds that both have.

    The loss in nats per piece is the logarithm of the perplexity.
    """
    sweep = comparison(folder)
    loss_only = tables.Table((), sweep.table.split, ('loss',))
    (loss,) = printed_scores(loss_only, task_of(sweep.base_row().config))
    return {name: each for name, each in differences.differences(sweep, loss).items() if each.over_seeds}
