"""What a wider beam finds, and what the length penalty does."""

from collections.abc import Sequence

import numpy as np

from experiments.claims import rows
from experiments.claims.claim import Claim, Found, Verdict, spread
from transformer.tasks.translation import bleu
from transformer.tasks.translation.translator import hypotheses

SENTENCES = 100
GREEDY, PAPER, LARGE = BEAMS = (1, 4, 64)
ALPHAS = (0.0, 0.6)


def measure(seed: int) -> Found:
    """By alpha and beam: sacreBLEU, words for each of the reference's, and log p a sentence with alpha 0."""
    model, texts = rows.trained('base', seed), rows.corpus().texts('dev')
    sources, references = (texts[side][:SENTENCES] for side in ('source', 'target'))
    words = lambda written: sum(len(text.split()) for text in written)
    found = {}
    for alpha in ALPHAS:
        found[str(alpha)] = of_alpha = {}
        for beam in BEAMS:
            ways = hypotheses(model, sources, beam=beam, alpha=alpha)
            written = [way[0].text for way in ways]
            of_alpha[str(beam)] = {
                'bleu': bleu.sacre_bleu(written, references, model.config.data.target_language),
                'length': words(written) / words(references),
                # Without a penalty the score is log p.
                **({'logp': float(np.mean([way[0].score for way in ways]))} if not alpha else {}),
            }
    return found


def judge(found: Sequence[Found]) -> Verdict:
    """By the sign of five differences."""
    free, penalised = map(str, ALPHAS)
    of = lambda one, alpha, beam, key: one[alpha][str(beam)][key]
    differences = {
        'BLEU, beam 4 over greedy': [
            of(one, penalised, PAPER, 'bleu') - of(one, penalised, GREEDY, 'bleu') for one in found
        ],
        'log p, beam 64 over 4': [
            of(one, free, LARGE, 'logp') - of(one, free, PAPER, 'logp') for one in found
        ],
        'BLEU, beam 4 over 64': [
            of(one, free, PAPER, 'bleu') - of(one, free, LARGE, 'bleu') for one in found
        ],
        'length, beam 4 over 64': [
            of(one, free, PAPER, 'length') - of(one, free, LARGE, 'length') for one in found
        ],
        'length, alpha 0.6 over 0': [
            of(one, penalised, PAPER, 'length') - of(one, free, PAPER, 'length') for one in found
        ],
    }
    told = [f'{name} {spread(values, "+.3f")}' for name, values in differences.items()]
    return Verdict(all(min(values) > 0 for values in differences.values()), '; '.join(told))


def draw(axes: Sequence, found: Sequence[Found]) -> None:
    """BLEU, length and log p by beam, a line each seed."""
    labels = {'bleu': 'sacreBLEU', 'length': 'words / words of the reference', 'logp': 'log p a sentence'}
    for panel, (key, label) in zip(axes, labels.items(), strict=True):
        for i, alpha in enumerate(map(str, ALPHAS)):
            for one in found:
                values = [one[alpha][str(beam)].get(key) for beam in BEAMS]
                if None not in values:
                    shown = f'alpha {alpha}' if one is found[0] else None
                    panel.plot(BEAMS, values, color=f'C{i}', marker='.', label=shown)
        panel.set_xscale('log', base=2)
        panel.set_xticks(BEAMS, list(map(str, BEAMS)))
        panel.set(xlabel='beam', ylabel=label)
    axes[0].legend()


CLAIM = Claim(
    statement='A small beam translates better than greedy search; a large one finds likelier translations '
    'that are shorter and no better; the length penalty makes translations longer.',
    source='§6.1; Koehn and Knowles 2017, §3.6; Wu et al. 2016, §7',
    criterion=(
        f'base of Table 3 at the scale of the grammar after {rows.UPDATES} updates, the first {SENTENCES} '
        'sentences of dev: sacreBLEU of beam 4 with alpha 0.6 is above that of beam 1; with alpha 0, beam 64 '
        'has a higher log p than beam 4, a lower sacreBLEU and fewer words; beam 4 writes more words with '
        'alpha 0.6 than with 0; with every seed'
    ),
    seeds=rows.SEEDS,
    measure=measure,
    judge=judge,
    draw=draw,
    panels=3,
)
