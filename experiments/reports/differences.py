"""Tests whether rows differ from base by more than chance, over seeds and over sentences."""

import itertools
import math
import statistics
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from etils import epath

from experiments.reports.results import Comparison, Done, Measured
from experiments.tables.table import Score
from transformer.actions import data as run_data
from transformer.config import ConfigError
from transformer.runs import workdir
from transformer.runs.workdir import Run

CONFIDENCE = 0.95  # of intervals, and of the verdict that a difference is more than chance
RESAMPLES = 2000
MOST_EXACT = 8  # with at most this many rows, the p of a rank correlation compares all their orders

# The difference and p of each pair of runs, by row.
SentenceTests = Mapping[str, Sequence[tuple[float, float]]]


class SeedTest(NamedTuple):
    """A paired t-test of the differences from base, with one difference for each seed that both have."""

    low: float  # the 95 % interval of the mean difference
    high: float
    p: float  # the probability of a mean at least that far from 0 if only the seeds differ

    @property
    def is_significant(self) -> bool:
        """Returns whether the row differs from base by more than chance."""
        return self.p < 1 - CONFIDENCE


class Difference(NamedTuple):
    """A row's difference from base in a score; None where unknown."""

    paper: float | None = None
    ours: float | None = None  # the mean over seeds
    over_seeds: SeedTest | None = None  # needs two seeds in common
    by_seed: Mapping[object, float] = types.MappingProxyType({})


def differences(comparison: Comparison, score: Score) -> dict[str, Difference]:
    """Computes the difference of every row but base, by name; ours is the mean over pairs of runs."""
    split, base = comparison.table.split, comparison.base_row()
    by_row = {row.row.name: Difference() for row in comparison.rows if base and row is not base}
    for row, base in pairs(comparison):
        papers = [score.paper_number(measured.row) for measured in (row, base)]
        paper = papers[0] - papers[1] if None not in papers else None
        ours, of_base = row.scores(split, score.measure), base.scores(split, score.measure)
        by_seed = {seed: ours[seed] - of_base[seed] for seed in ours if seed in of_base}
        shared = list(by_seed.values())
        by_row[row.row.name] = Difference(paper)
        # A perplexity can be infinite.
        if shared and all(map(math.isfinite, shared)) and not is_base(row, base) and not row.is_unlike:
            test = seed_test(shared)
            by_row[row.row.name] = Difference(paper, statistics.mean(shared), test, by_seed)
    return by_row


class Correlation(NamedTuple):
    """Spearman's rank correlation of our differences with the paper's."""

    value: float
    rows: int
    p: float  # the probability of so large a correlation between random ranks
    seeds: int  # the number of seeds that all rows have
    # The middle 95 % of the correlations when these seeds are resampled; with few seeds it is narrower than a
    # 95 % confidence interval. None with fewer than three seeds.
    low: float | None
    high: float | None


def correlation(pairs: Iterable[Difference]) -> Correlation | None:
    """Correlates our differences with the paper's.

    Returns:
      The correlation, or None for fewer than three rows, or if all are equal.
    """
    known = [pair for pair in pairs if None not in (pair.paper, pair.ours)]
    papers, ours = [pair.paper for pair in known], [pair.ours for pair in known]
    if len(known) < 3 or 1 in (len(set(papers)), len(set(ours))):
        return None
    result = scipy.stats.spearmanr(papers, ours)
    seeds = sorted(set.intersection(*(set(pair.by_seed) for pair in known)), key=str)
    low = high = None
    if len(seeds) > 2:
        by_seed = np.array([[pair.by_seed[seed] for seed in seeds] for pair in known])
        drawn = np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))
        ranks = scipy.stats.rankdata(by_seed[:, drawn].mean(axis=-1), axis=0)
        values = [np.corrcoef(scipy.stats.rankdata(papers), column)[0, 1] for column in ranks.T]
        low, high = np.nanquantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    p = _exact_p(papers, ours) if len(known) <= MOST_EXACT else float(result.pvalue)
    return Correlation(float(result.statistic), len(known), p, len(seeds), low, high)


def _exact_p(papers: Sequence[float], ours: Sequence[float]) -> float:
    """Computes the share of orders of our ranks that (dis)agree with the paper's at least as much as ours."""
    theirs, here = (scipy.stats.zscore(scipy.stats.rankdata(x)) for x in (papers, ours))
    correlations = np.array(list(itertools.permutations(here))) @ theirs
    return float(np.mean(np.abs(correlations) >= abs(here @ theirs) - 1e-9))


def pairs(comparison: Comparison) -> Iterator[tuple[Measured, Measured]]:
    """Yields (row, base) for each row that can be compared with base: rows of other languages cannot."""
    base = comparison.base_row()
    languages = lambda data: (data.source_language, data.target_language, data.language)
    for row in comparison.rows if base else ():
        if row is not base and languages(row.written.data) == languages(base.written.data):
            yield row, base


def seed_test(differences: Sequence[float]) -> SeedTest | None:
    """Tests paired differences by Student's t, with its interval.

    Returns:
      The test, or None for fewer than two differences.
    """
    count = len(differences)
    if count < 2:
        return None
    mean, error = statistics.mean(differences), statistics.stdev(differences) / math.sqrt(count)
    if not error:
        return SeedTest(mean, mean, 0.0 if mean else 1.0)
    student = scipy.stats.t(count - 1)
    half = float(student.ppf((1 + CONFIDENCE) / 2)) * error
    return SeedTest(mean - half, mean + half, 2 * float(student.sf(abs(mean) / error)))


def is_base(row: Measured, base: Measured | None) -> bool:
    """Returns whether a row equals base at this scale."""
    if base is None or row is base or row.config != base.config:
        return False
    # Two runs with one config can start from different parameters.
    start, other = (next((run.result.get('init_from') for run in each.done), None) for each in (row, base))
    return start == other


def sentence_tests(comparison: Comparison) -> SentenceTests:
    """Tests each row's difference from base by paired bootstrap, in the first score that has such a test."""
    base, split = comparison.base_row(), comparison.table.split
    measure = next((score.measure for score in comparison.scores if score.measure.significance), None)
    if not base or not measure or not base.scores(split, measure):
        return {}
    seeds = {run.pair for run in base.counted}
    if not any(run.pair in seeds for row, _ in pairs(comparison) for run in row.counted):
        return {}
    texts = read_texts(base.counted[0].folder, split)
    count = len(next(iter(texts.values())))
    tests: dict[str, list[tuple[float, float]]] = {}
    for run in base.counted:
        others = {
            row.row.name: read_output(other, split, count)
            for row, _ in pairs(comparison)
            for other in row.counted
            if other.pair == run.pair and not other.unlike
        }
        if others:
            output = read_output(run, split, count)
            results = measure.significance(base.config, texts, output, list(others.values()))
            for name, test in zip(others, results, strict=True):
                tests.setdefault(name, []).append(test)
    return tests


def read_texts(folder: epath.PathLike, split: str) -> dict[str, list[str]]:
    """Reads the texts of a split of a run, by field."""
    return run_data.of_run(Run.open(folder)).texts(split)


def read_output(run: Done, split: str, count: int) -> list[str]:
    """Reads the lines of a run that its training scored, one for each of `count` sentences."""
    entry = run.scores(split)
    try:
        lines = workdir.read_lines(epath.Path(run.folder), f'{split}.{entry["checkpoint"]}', entry)
    except OSError:
        raise ConfigError(f'{run.name} holds no translations of {split}') from None
    if len(lines) != count:
        raise ConfigError(f'{run.name}: {len(lines)} lines of output for {count} sentences')
    return lines
