"""A small beam translates better than greedy search;
a large one finds likelier translations that are shorter and no better;
the length penalty makes translations longer."""

from collections.abc import Sequence

import numpy as np

from experiments.claims import rows
from experiments.claims.claim import Measurements, Verdict, spreads
from experiments.claims.panels import Panel, curves
from transformer.tasks.translation import bleu
from transformer.tasks.translation.translator import hypotheses

SENTENCES = 100
GREEDY, PAPER, LARGE = BEAMS = (1, 4, 64)
FREE, PENALISED = ALPHAS = ('0.0', '0.6')
# Differences that must be above 0: name, score, and alpha and beam of the minuend and of the subtrahend.
DIFFERENCES = (
    ('BLEU, beam 4 over greedy', 'bleu', (PENALISED, PAPER), (PENALISED, GREEDY)),
    ('log p, beam 64 over 4', 'logp', (FREE, LARGE), (FREE, PAPER)),
    ('BLEU, beam 4 over 64', 'bleu', (FREE, PAPER), (FREE, LARGE)),
    ('length, beam 4 over 64', 'length', (FREE, PAPER), (FREE, LARGE)),
    ('length, alpha 0.6 over 0', 'length', (PENALISED, PAPER), (FREE, PAPER)),
)
SOURCE = '§6.1; Koehn and Knowles 2017, §3.6; Wu et al. 2016, §7'
CRITERION = (
    f'base of Table 3 at the scale of the grammar after {rows.UPDATES} updates, the first {SENTENCES} '
    'sentences of dev: sacreBLEU of beam 4 with alpha 0.6 is above that of beam 1; with alpha 0, beam 64 '
    'has a higher log p than beam 4, a lower sacreBLEU and fewer words; beam 4 writes more words with '
    'alpha 0.6 than with 0; with every seed'
)
SEEDS = rows.SEEDS


def measure(seed: int) -> dict:
    """Measures sacreBLEU, length relative to the reference, and, with alpha 0, log p, by alpha and beam."""
    model, texts = rows.trained('base', seed), rows.corpus().texts('dev')
    sources, references = (texts[side][:SENTENCES] for side in ('source', 'target'))
    words = lambda lines: sum(len(line.split()) for line in lines)

    def scores(alpha: str, beam: int) -> dict[str, float]:
        best = [beams[0] for beams in hypotheses(model, sources, beam=beam, alpha=float(alpha))]
        lines = [hypothesis.text for hypothesis in best]
        # Without a length penalty the score is log p.
        logp = {'logp': float(np.mean([hypothesis.score for hypothesis in best]))} if alpha == FREE else {}
        return {
            'bleu': bleu.sacre_bleu(lines, references, model.config.data.target_language),
            'length': words(lines) / words(references),
            **logp,
        }

    return {alpha: {str(beam): scores(alpha, beam) for beam in BEAMS} for alpha in ALPHAS}


def judge(measurements: Measurements) -> Verdict:
    values = {
        name: [m[a1][str(b1)][key] - m[a2][str(b2)][key] for m in measurements]
        for name, key, (a1, b1), (a2, b2) in DIFFERENCES
    }
    return Verdict(all(min(by_seed) > 0 for by_seed in values.values()), spreads(values, '+.3f'))


def _panel(key: str, label: str, alphas: Sequence[str] = ALPHAS, legend: bool = False) -> Panel:
    values = lambda m: {f'alpha {alpha}': [m[alpha][str(b)][key] for b in BEAMS] for alpha in alphas}
    return curves(BEAMS, 'beam', label, values, ticks='log2', legend=legend)


PANELS = (
    _panel('bleu', 'sacreBLEU', legend=True),
    _panel('length', 'words / words of the reference'),
    _panel('logp', 'log p a sentence', (FREE,)),
)
