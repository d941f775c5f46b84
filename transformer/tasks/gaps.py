"""Gaps in texts that a model fills: their scores, and how they are shown."""

from collections.abc import Sequence

from transformer.data.fields import Gap
from transformer.tasks.contract import Shown

GAP = '[MASK]'
# The numbers of gaps that an evaluation fills at most, and that are shown after training.
MOST, SHOWN = 1000, 4

# Gaps, each with the form that a model chose.
Filled = Sequence[tuple[Gap, str]]


def score(filled: Filled) -> dict[str, dict[str, float]]:
    """Computes the share of gaps with the right form, if there are any."""
    right = sum(form == gap.right for gap, form in filled)
    return {'gaps': {'accuracy': right / len(filled), 'count': len(filled)}} if filled else {}


def complete(filled: Filled) -> list[str]:
    """Returns the texts with the chosen forms in their gaps."""
    return [gap.text.replace(GAP, form) for gap, form in filled]


def show(filled: Filled) -> Shown:
    """Shows gaps and the chosen forms."""
    return Shown([line for gap, form in filled for line in (f'  {gap.text}', f'    {form}')])
