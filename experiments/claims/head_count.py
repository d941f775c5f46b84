"""Multi-head attention is better than a single head, but quality drops off with too many heads."""

from experiments.claims import rows
from experiments.claims.claim import Measurements, Verdict, spreads
from experiments.claims.panels import curves

HEADS = {'A1': 1, 'base': 4, 'A4': 16}  # heads of the rows at the scale of the grammar
SOURCE = '§3.2.2, §6.2 and Table 3 (A)'
CRITERION = (
    f'base, A1 and A4 of Table 3 at the scale of the grammar after {rows.UPDATES} updates: perplexity on '
    'dev is higher with one head, and with four times the heads of base, than with those of base, with '
    'every seed'
)
SEEDS = rows.SEEDS


def measure(seed: int) -> dict:
    """Measures each row's perplexity on dev."""
    return {row: rows.means(row, seed)['perplexity'] for row in HEADS}


def judge(measurements: Measurements) -> Verdict:
    more = {f'with {HEADS[row]}': [m[row] - m['base'] for m in measurements] for row in ('A1', 'A4')}
    holds = all(min(values) > 0 for values in more.values())
    return Verdict(holds, f'perplexity beside {HEADS["base"]} heads: {spreads(more, "+.3f", ", ")}')


PANELS = (curves(list(HEADS.values()), 'heads', 'perplexity', ticks='log2'),)
