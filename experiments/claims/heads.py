"""Heads learn different tasks: some attend to the previous token, some to an antecedent."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Float

from experiments.claims import grammar
from experiments.claims.claim import OVER_PAIRS, Measurement, Verdict, by_training, interval
from experiments.claims.panels import Panel, bars
from transformer.nn import models

TIMES = 3
SOURCE = '§4 and figures 3 to 5; Voita et al. 2019; one head removed as in Michel et al. 2019'
CRITERION = (
    "of the encoder's heads in the model of make run, the one that attends most to the previous piece "
    f'does so at least {TIMES} times as much as the median head; the one that most prefers the '
    'antecedent of "it" is another; and without it the right pronoun loses more log probability than '
    'without another head on average; in two trainings'
)
SEEDS = grammar.SEEDS


def remove_head(params: models.Params, layer: int, head: int) -> models.Params:
    """Copies the parameters with the output kernel of one head of the encoder's self-attention set to 0."""
    params = jax.tree.map(np.array, params)
    params['encoder'][f'layer_{layer}']['self_attention']['output']['kernel'][head] = 0.0
    return params


def measure(seed: int) -> dict:
    """Measures weight on the previous piece, preference for the antecedent, and effect of removal, by head.

    For each question, `lost` is the fall in log p of the pronoun (among the pronouns) when the head is
    removed, and `text` the fall in log p of the whole reference.
    """
    model, asked = grammar.trained(seed), grammar.questions()
    weights = grammar.attended(model)
    real = asked.batch['source'].segments[:, 1:] > 0
    before = (np.diagonal(weights, offset=-1, axis1=-2, axis2=-1) * real).sum(axis=(-2, -1)) / real.sum()
    whole = grammar.answers(model, {})
    heads = list(np.ndindex(before.shape))
    ablated = [grammar.answers(model._replace(params=remove_head(model.params, *h)), {}) for h in heads]
    return {
        'heads': [f'{layer + 1}.{head + 1}' for layer, head in heads],
        'before': before.ravel().tolist(),
        'antecedent': grammar.preference(weights, asked).mean(axis=-1).ravel().tolist(),
        'lost': [(whole.logp - answers.logp).tolist() for answers in ablated],
        'text': [(whole.text - answers.text).tolist() for answers in ablated],
    }


@by_training
def judge(m: Measurement) -> Verdict:
    first, second = (int(np.argmax(m[key])) for key in ('before', 'antecedent'))
    times = m['before'][first] / np.median(m['before'])
    excess, of_text = _excess(m['lost'], second), _excess(m['text'], first)
    return Verdict(
        bool(first != second and times >= TIMES and excess.mean() > 0),
        f'head {m["heads"][first]} gives the piece before {m["before"][first]:.2f}, {times:.1f} times '
        f'what the median head gives, and without it log p of the reference falls by '
        f'{interval(of_text, ".2f")} more than without one of the others, on average; head '
        f'{m["heads"][second]} prefers the antecedent by {m["antecedent"][second]:.2f}, and without it '
        f'log p of the pronoun falls by {interval(excess, ".3f")} more than without one of the others',
    )


def _excess(lost: Sequence[Sequence[float]], head: int) -> Float[np.ndarray, 'B']:
    """Computes for each question the fall without a head minus the mean fall without another head."""
    return np.subtract(lost[head], np.delete(lost, head, axis=0).mean(axis=0))


def _panel(label: str, of: Callable, legend: bool = False) -> Panel:
    return bars(lambda m: m['heads'], of, legend=legend, xlabel='layer.head of the encoder', ylabel=label)


NUMBERS = OVER_PAIRS
PANELS = (
    _panel('weight on the piece before', lambda m: m['before'], legend=True),
    _panel('antecedent less other noun', lambda m: m['antecedent']),
    _panel('nats of the pronoun lost without it', lambda m: np.mean(m['lost'], axis=-1)),
    _panel('nats of the reference lost without it', lambda m: np.mean(m['text'], axis=-1)),
)
