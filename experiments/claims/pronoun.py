"""Attention resolves the pronoun: "it" attends to the noun that it refers to."""

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes

from experiments.claims import grammar
from experiments.claims.claim import OVER_PAIRS, Measurement, Measurements, Verdict, by_training, interval
from experiments.claims.panels import bars

LEAST, LEARNED = 0.1, 0.9
ENCODER, CROSS = grammar.BLOCKABLE
IT_TO_ANTECEDENT, IT_TO_OTHER = 'it → antecedent', 'it → other noun'
SOURCE = 'Uszkoreit 2017, "Transformer: A Novel Neural Network Architecture"'
CRITERION = (
    f'the model of make run answers at least {LEARNED} of {2 * grammar.PAIRS} sentences in minimal '
    'pairs; the head of its encoder that most prefers the antecedent on half of them gives it on the '
    f'other half at least {LEAST} more weight than the other noun; and fewer pronouns are right where '
    '"it" cannot attend to the antecedent than where it cannot attend to the other noun; '
    'in two trainings'
)
SEEDS = grammar.SEEDS


def measure(seed: int) -> dict:
    """Measures a head's preference for the antecedent and, with parts of attention blocked, the translations.

    The encoder's head is chosen on the first half of the pairs, and measured on the second half.
    """
    model, asked = grammar.trained(seed), grammar.questions()
    preferred = grammar.preference(grammar.attended(model), asked)
    half = 2 * (preferred.shape[-1] // 4)
    head = np.unravel_index(preferred[..., :half].mean(axis=-1).argmax(), preferred.shape[:2])
    queries = lambda mark: mark[:, :, None]
    keys = lambda mark: mark[:, None, :]
    # No other source piece sees the antecedent.
    by_source = {ENCODER: queries(~asked.antecedent) & keys(asked.antecedent)}
    at_pronoun = np.arange(grammar.ROOM) == asked.asked[:, None]
    by_pronoun = {CROSS: queries(at_pronoun) & keys(asked.antecedent)}
    blocked = {
        'nothing': {},
        IT_TO_ANTECEDENT: {ENCODER: queries(asked.it) & keys(asked.antecedent)},
        IT_TO_OTHER: {ENCODER: queries(asked.it) & keys(asked.other)},
        'all → antecedent': by_source,
        'pronoun → antecedent': by_pronoun,
        'all and pronoun → antecedent': by_source | by_pronoun,
    }
    right = lambda masks: grammar.answers(model, masks).right.astype(int).tolist()
    return {
        'head': [int(number) + 1 for number in head],
        'preferred': preferred[head][half:].tolist(),
        'right': {name: right(masks) for name, masks in blocked.items()},
        'same': {name: equal(grammar.translations(model, masks)) for name, masks in blocked.items()},
    }


def equal(written: Int[np.ndarray, 'B T']) -> dict[str, list[int]]:
    """Marks with 1 the translations that equal the reference, and those that differ only in the pronoun."""
    asked = grammar.questions()
    reference, rows = asked.batch['target'].tokens, np.arange(len(written))
    # Both are padded after the end of a sentence.
    same = written == reference
    right = same[rows, asked.asked]
    wrong_pronoun = np.isin(written[rows, asked.asked], asked.pronouns) & ~right
    same[rows, asked.asked] = True
    rest = same.all(axis=-1)
    kinds = {'all': rest & right, 'but the pronoun': rest & wrong_pronoun}
    return {name: marks.astype(int).tolist() for name, marks in kinds.items()}


@by_training
def judge(m: Measurement) -> Verdict:
    right = {name: np.mean(values) for name, values in m['right'].items()}
    needed = right[IT_TO_ANTECEDENT] < right[IT_TO_OTHER]
    holds = right['nothing'] >= LEARNED and np.mean(m['preferred']) >= LEAST and needed
    answers = [f'{name} {interval(values, ".3f")}' for name, values in m['right'].items()]
    both = lambda kinds: ' and '.join(interval(values, '.2f') for values in kinds.values())
    same = [f'{name} {both(kinds)}' for name, kinds in m['same'].items()]
    layer, head = m['head']
    return Verdict(
        bool(holds),
        f'head {head} of layer {layer} prefers by {interval(m["preferred"], ".2f")}; right, blocked: '
        f'{"; ".join(answers)}; greedy translations that are the reference, and those that differ from it '
        f'only in the pronoun, blocked: {"; ".join(same)}',
    )


def draw_preference(axes: Axes, measurements: Measurements) -> None:
    for training, m in enumerate(measurements):
        label = f'training {training + 1}'
        axes.hist(m['preferred'], bins=np.linspace(-1, 1, 41), alpha=0.6, label=label)
    axes.set(xlabel='weight on the antecedent less that on the other noun', ylabel='sentences')
    axes.legend()


def draw_answers(axes: Axes, measurements: Measurements) -> None:
    draw = bars(
        lambda m: list(m['right']),
        lambda m: [np.mean(values) for values in m['right'].values()],
        horizontal=True,
        xlim=(0, 1),
        xlabel='right pronouns',
        ylabel='blocked',
    )
    draw(axes, measurements)
    axes.axvline(0.5, color='0.7', linestyle=':')
    axes.invert_yaxis()


NUMBERS = OVER_PAIRS
PANELS = (draw_preference, draw_answers)
