"""How rows differ from base, and whether that is more than chance: over seeds, and over sentences."""

import math
import statistics
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from etils import epath

from experiments.reports import results
from experiments.reports.results import Comparison, Done, Measured
from experiments.tables import rows as tables
from transformer.actions import data as corpora
from transformer.config import ConfigError
from transformer.runs import workdir
from transformer.runs.workdir import Run
from transformer.tasks.translation import bleu

# Of an interval, and of what counts as chance.
CONFIDENCE = 0.95
RESAMPLES = 2000


class SeedTest(NamedTuple):
    """A t-test of the differences from base, one for each seed that both have.

    low, high: the 95 % interval of the mean difference. p: how likely a mean at least that far from 0 is
    where only the seeds differ.
    """

    low: float
    high: float
    p: float

    @property
    def is_told(self) -> bool:
        """Whether the row can be told from base."""
        return self.p < 1 - CONFIDENCE


class Difference(NamedTuple):
    """A row's difference from base in a measure: the paper's and ours, None if unknown.

    over_seeds: None with fewer than two seeds in common, which cannot tell what is chance. by_seed: ours,
    of each seed in common.
    """

    paper: float | None
    ours: float | None
    over_seeds: SeedTest | None = None
    by_seed: Mapping[object, float] = types.MappingProxyType({})


def differences(comparison: Comparison, measure: tables.Measure) -> dict[str, Difference]:
    """The difference of every row but base, by name; ours is the mean over the pairs of runs."""
    split, base = comparison.table.split, comparison.base_row()
    found = {row.row.name: Difference(None, None) for row in comparison.rows if base and row is not base}
    for row, base in pairs(comparison):
        papers = [paper(m.row, measure) for m in (row, base)]
        ours, of_base = row.scores(split, measure.path), base.scores(split, measure.path)
        by_seed = {seed: ours[seed] - of_base[seed] for seed in ours if seed in of_base}
        shared = list(by_seed.values())
        # A perplexity may be too large for a number.
        known = shared and all(map(math.isfinite, shared)) and not is_base(row, base) and not row.is_unlike
        found[row.row.name] = Difference(
            papers[0] - papers[1] if None not in papers else None,
            statistics.mean(shared) if known else None,
            over_seeds(shared) if known else None,
            by_seed if known else {},
        )
    return found


class Correlation(NamedTuple):
    """Spearman's rank correlation of our differences with the paper's, over some rows.

    p: how likely one so large is where the ranks are chance. low, high: the middle 95 % of the correlations
    when the seeds that all these rows have are resampled, None with fewer than three. With so few seeds that
    is too narrow for a confidence interval of 95 %.
    """

    value: float
    rows: int
    p: float
    seeds: int
    low: float | None
    high: float | None


def correlation(found: Iterable[Difference]) -> Correlation | None:
    """How our differences agree with the paper's; None of fewer than three rows, or where all are equal."""
    known = [pair for pair in found if None not in (pair.paper, pair.ours)]
    papers, ours = [pair.paper for pair in known], [pair.ours for pair in known]
    if len(known) < 3 or 1 in (len(set(papers)), len(set(ours))):
        return None
    result = scipy.stats.spearmanr(papers, ours)
    seeds = sorted(set.intersection(*(set(pair.by_seed) for pair in known)), key=str)
    low = high = None
    if len(seeds) > 2:
        by_seed = np.array([[pair.by_seed[seed] for seed in seeds] for pair in known])
        drawn = np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))
        resampled = by_seed[:, drawn].mean(axis=-1)
        ranks = scipy.stats.rankdata(resampled, axis=0)
        values = [np.corrcoef(scipy.stats.rankdata(papers), column)[0, 1] for column in ranks.T]
        low, high = (
            float(edge) for edge in np.nanquantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        )
    return Correlation(float(result.statistic), len(known), float(result.pvalue), len(seeds), low, high)


def pairs(comparison: Comparison) -> Iterator[tuple[Measured, Measured]]:
    """Yields every row that can be compared with base, and base: scores of two languages cannot."""
    base = comparison.base_row()
    for row in comparison.rows:
        if base is not None and row is not base and _languages(row) == _languages(base):
            yield row, base


def _languages(row: Measured) -> tuple[str | None, ...]:
    data = row.written.data
    return data.source_language, data.target_language, data.language


def over_seeds(differences: Sequence[float]) -> SeedTest | None:
    """Student's t-test of paired differences, with its interval; None of fewer than two."""
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
    """Whether a row has become base at this scale."""
    if base is None or row is base or row.config != base.config:
        return False
    # What two runs with one config started from may differ.
    start, other = (next((run.result.get('init_from') for run in each.done), None) for each in (row, base))
    return start == other


def paper(row: tables.Row, measure: tables.Measure) -> float | None:
    """The paper's number of a row; None if it has none."""
    return next((row.paper[name] for name in measure.paper if name in row.paper), None)


def told(comparison: Comparison) -> list[str]:
    """What the differences over seeds mean, in words."""
    if not comparison.several or not comparison.base_row():
        return []
    found, untested = [], set()
    for measure in comparison.table.measures:
        known = {
            name: pair for name, pair in differences(comparison, measure).items() if pair.ours is not None
        }
        tests = {name: pair.over_seeds for name, pair in known.items() if pair.over_seeds}
        untested |= known.keys() - tests.keys()
        if not tests:
            continue
        equal = [name for name, test in tests.items() if not test.is_told]
        shown = ', '.join(equal) or 'none'
        found.append(
            f'Cannot be told from {comparison.base} by {measure.name} (≈), {len(equal)} of the '
            f'{len(tests)} rows that were tested over seeds: {shown}'
        )
    if untested:
        names = ', '.join(row.row.name for row in comparison.rows if row.row.name in untested)
        found.append(
            f'Fewer than two seeds in common with {comparison.base}, so that nothing tells their differences '
            f'from chance: {names}'
        )
    return found


def other_pieces(comparison: Comparison) -> list[str]:
    """Which rows have other pieces than base, so that their differences in what counts pieces say nothing."""
    others = [row.row.name for row, base in pairs(comparison) if results.have_other_pieces(row, base)]
    return [
        f'{measure.name} counts pieces, and these rows have other pieces than {comparison.base}, so their '
        f'Δ{measure.name} says nothing: {", ".join(others)}'
        for measure in comparison.table.measures
        if others and measure.path in results.BY_PIECE
    ]


def over_sentences(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    """Bootstrap tests of each row's difference in BLEU from base: difference and p of every pair of runs.

    The BLEU is the one that the table prints.

    Raises:
      ConfigError: translations or references are missing.
    """
    base, split = comparison.base_row(), comparison.table.split
    tested = next((measure for measure in comparison.table.measures if measure.significance), None)
    if not base or not tested or not base.scores(split, tested.path):
        return {}
    against = references(base.counted[0].folder, split)
    score, language = tested.path.split('.')[1], base.config.data.target_language
    found: dict[str, list[tuple[float, float]]] = {}
    for run in base.counted:
        others = {
            row.row.name: _translations(other, split)
            for row, _ in pairs(comparison)
            for other in row.counted
            if other.pair == run.pair and not other.unlike
        }
        for name, lines in others.items():
            if len(lines) != len(against):
                raise ConfigError(f'{name}: {len(lines)} translations of {len(against)} sentences')
        if others:
            ours = _translations(run, split)
            tests = bleu.significance(ours, list(others.values()), against, language, score)
            for name, test in zip(others, tests, strict=True):
                found.setdefault(name, []).append(test)
    return found


def references(folder: epath.PathLike, split: str) -> list[str]:
    """The references of a split of a run.

    Raises:
      ConfigError: they cannot be had.
    """
    if not (epath.Path(folder) / 'config.json').exists():
        raise ConfigError(f'{epath.Path(folder).name} holds neither config nor data')
    return corpora.of_run(Run.open(folder)).texts(split)['target']


def disagree(tests: Sequence[tuple[float, float]]) -> bool:
    """Whether some runs are better than base and others worse."""
    return min(difference for difference, _ in tests) < 0 < max(difference for difference, _ in tests)


def _translations(run: Done, split: str) -> list[str]:
    try:
        return workdir.read_lines(epath.Path(run.folder), f'{split}.{run.scores(split)["checkpoint"]}')
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f'{run.name} holds no translations of {split}') from None
