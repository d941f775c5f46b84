"""Judges the printed scores of a table by the noise of public trainings (experiments/evidence/noise.py)."""

from experiments.evidence import noise
from experiments.evidence.noise import Ceiling, Noise, NoiseVerdict
from experiments.reports import differences
from experiments.reports.results import Comparison
from experiments.tables.table import Score


def noise_of(comparison: Comparison, score: Score) -> Noise | None:
    """Returns the noise of a score's printed numbers, or None if it is unknown."""
    test_set = comparison.table.noise
    spreads = (noise.of_column(test_set, column) for column in score.paper if test_set)
    return next((spread for spread in spreads if spread), None)


def verdicts(comparison: Comparison, score: Score) -> dict[str, NoiseVerdict]:
    """Judges each row's printed difference from base, by name, or no row if the noise is unknown."""
    spread = noise_of(comparison, score)
    papers = {
        row.row.name: (score.paper_number(row.row), score.paper_number(base.row))
        for row, base in differences.pairs(comparison)
    }
    return {
        name: noise.compare(spread, *numbers, score.paper_decimals)
        for name, numbers in papers.items()
        if spread and None not in numbers
    }


def ceiling(comparison: Comparison, score: Score) -> Ceiling | None:
    """Computes the ceiling of a rank correlation with the printed scores, or None if the noise is unknown."""
    spread = noise_of(comparison, score)
    if spread is None:
        return None
    by_row = differences.differences(comparison, score)
    # The rows that the correlation compares.
    both = {name for name, pair in by_row.items() if None not in (pair.paper, pair.ours)}
    printed = [score.paper_number(row.row) for row in comparison.rows if row.row.name in both]
    return noise.ceiling(spread, printed, score.paper_decimals)
