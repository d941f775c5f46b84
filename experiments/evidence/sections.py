"""Renders several tables under headings, and the texts that their cells share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.rendering.formats import Column


class Section(NamedTuple):
    """A table with a heading above it and notes below it."""

    heading: str
    columns: Sequence[Column]
    notes: Sequence[str]


def text(
    sections: Sequence[Section], form: Callable[[Sequence[Column], Sequence[str]], str], mark: str = ''
) -> str:
    """Renders sections in a format; each heading begins with `mark`."""
    return '\n'.join(
        f'{mark}{heading}\n\n{form(columns, notes).rstrip()}\n' for heading, columns, notes in sections
    )


def table(names: str, rows: Sequence[tuple[str, ...]], *headings: str) -> list[Column]:
    """Makes the columns of rows of texts; the first column, headed `names`, names the rows."""
    first, *others = zip(*rows, strict=True)
    columns = [Column(heading, 'score', list(cells)) for heading, cells in zip(headings, others, strict=True)]
    return [Column(names, 'row', list(first)), *columns]


def interval(low: float, high: float, form: str) -> str:
    """Formats an interval."""
    return f'[{low:{form}}, {high:{form}}]'
