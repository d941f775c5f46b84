"""Label smoothing hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU."""

from experiments.claims import rows
from experiments.claims.claim import Measurements, Verdict, spread
from experiments.claims.panels import Panel, curves
from transformer.tasks import task_of

ROWS = {'eps_ls 0': 'D3', 'eps_ls 0.1': 'base'}
SCORES = {'perplexity': '.3f', 'accuracy': '.4f', 'bleu': '.1f'}
SOURCE = '§5.4'
CRITERION = (
    f'base and D3 of Table 3 at the scale of the grammar after {rows.UPDATES} updates, on dev: with '
    'label smoothing perplexity, the share of pieces predicted right, and sacreBLEU are all higher, with '
    'every seed'
)
SEEDS = rows.SEEDS


def measure(seed: int) -> dict:
    """Measures the scores on dev without and with label smoothing."""
    watch = lambda model: task_of(model.config).watch(model, rows.corpus())
    return {name: rows.means(row, seed) | watch(rows.trained(row, seed)) for name, row in ROWS.items()}


def judge(measurements: Measurements) -> Verdict:
    without, smoothed = ROWS
    more = {key: [m[smoothed][key] - m[without][key] for m in measurements] for key in SCORES}
    parts = [f'{key} {spread(more[key], f"+{form}")}' for key, form in SCORES.items()]
    return Verdict(all(min(values) > 0 for values in more.values()), f'with smoothing: {", ".join(parts)}')


def _panel(key: str, label: str) -> Panel:
    return curves(list(ROWS), '', label, lambda m: {'': [m[name][key] for name in ROWS]}, xmargin=0.3)


PANELS = (_panel('perplexity', 'perplexity'), _panel('accuracy', 'accuracy'), _panel('bleu', 'sacreBLEU'))
