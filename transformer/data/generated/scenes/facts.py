"""What a caption states about a picture, whether it is true, and minimal changes that make it false."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from transformer.data.generated.pictures import CELLS, COLOURS, MOST, SHAPES, Fact

# Relations of an object to another, by their cells.
RELATIONS: dict[str, Callable[[Fact, Fact], bool]] = {
    'left': lambda one, other: one.column < other.column,
    'right': lambda one, other: one.column > other.column,
    'above': lambda one, other: one.row < other.row,
    'below': lambda one, other: one.row > other.row,
}
CHANGES = ('relation', 'place', 'colour', 'shape', 'number')
NAMED = 3  # the most objects, or groups of objects that look alike, that a caption names


class Mention(NamedTuple):
    """What a caption states about one object, or about several that look alike; None for what it leaves open.

    Attributes:
      large: whether this is the largest object of the picture.
      number: how many objects look so; a number above 1 is exact.
      column, row: the cell, counted from 0.
      relation, of: a name in `RELATIONS`, and the number of the mention that it relates to.
    """

    shape: str
    colour: str
    large: bool | None = None
    number: int = 1
    column: int | None = None
    row: int | None = None
    relation: str | None = None
    of: int | None = None

    @property
    def look(self) -> tuple[str, str]:
        """Returns colour and shape."""
        return self.colour, self.shape


class Caption(NamedTuple):
    """The facts of a caption.

    Attributes:
      number: the number of all objects, None if the caption leaves it open.
      mentions: the largest object, then the others in the order of the text.
    """

    number: int | None
    mentions: tuple[Mention, ...]


def state(picture: Sequence[Fact], numbers: Sequence[int]) -> Caption:
    """Chooses what a caption states about a picture.

    Args:
      picture: its objects, the largest first.
      numbers: random numbers, at least 6, that decide.
    """
    large, *small = picture
    groups: dict[tuple[str, str], list[Fact]] = {}
    for fact in small:
        groups.setdefault((fact.colour, fact.shape), []).append(fact)
    mentions = [Mention(large.shape, large.colour, True, 1, large.column, large.row)]
    alone = [large]  # the objects of the mentions, None for a group
    for (colour, shape), group in itertools.islice(groups.items(), NAMED - 1):
        place, size = numbers[2 * len(alone) : 2 * len(alone) + 2]
        # Without a size, it would be as well the largest object.
        stated = False if size % 4 == 0 or (colour, shape) == mentions[0].look else None
        mention = Mention(shape, colour, stated, len(group))
        # The last one mostly has no place: texts are shorter, and pictures are clear without it.
        has_place = len(alone) < NAMED - 1 or place // 16 % 4 == 0
        if has_place and len(group) == 1 and place % 2:
            mention = mention._replace(column=group[0].column, row=group[0].row)
        elif has_place:
            of = len(alone) - 1 if alone[-1] is not None and place // 2 % 2 else 0
            true = [r for r in RELATIONS if all(RELATIONS[r](fact, alone[of]) for fact in group)]
            if true:
                mention = mention._replace(relation=true[place // 4 % len(true)], of=of)
        mentions.append(mention)
        alone.append(group[0] if len(group) == 1 else None)
    counted = len(picture) == 2 or numbers[0] % 6 == 0
    return Caption(len(picture) if counted else None, tuple(mentions))


def is_true(caption: Caption, picture: Sequence[Fact]) -> bool:
    """Returns whether everything that a caption states is true of a picture.

    The mentions must stand for different objects.
    """
    return caption.number in (None, len(picture)) and _can_name(caption.mentions, picture, ())


def _can_name(
    mentions: Sequence[Mention], picture: Sequence[Fact], named: tuple[tuple[int, ...], ...]
) -> bool:
    """Returns whether the mentions after the first ones, which stand for `named`, can name other objects."""
    used = {index for group in named for index in group}
    if len(named) == len(mentions):
        others = [index for index in range(len(picture)) if index not in used]
        exact = not any(m.number > 1 and _looks(m, picture, index) for m in mentions for index in others)
        return exact and all(_are_related(mentions[i], picture, i, named) for i in range(len(mentions)))
    mention = mentions[len(named)]
    options = [i for i in range(len(picture)) if i not in used and _fits(mention, picture, i)]
    return any(
        _can_name(mentions, picture, (*named, group))
        for group in itertools.combinations(options, mention.number)
    )


def _looks(mention: Mention, picture: Sequence[Fact], index: int) -> bool:
    fact = picture[index]
    if (fact.colour, fact.shape) != mention.look:
        return False
    return mention.large in (None, fact.radius == max(one.radius for one in picture))


def _fits(mention: Mention, picture: Sequence[Fact], index: int) -> bool:
    """Returns whether a mention can stand for an object, by its look and cell."""
    fact = picture[index]
    cell = mention.column in (None, fact.column) and mention.row in (None, fact.row)
    return cell and _looks(mention, picture, index)


def _are_related(
    mention: Mention, picture: Sequence[Fact], index: int, named: Sequence[Sequence[int]]
) -> bool:
    """Returns whether all objects of a mention have its relation to the objects of another."""
    if mention.relation is None:
        return True
    pairs = itertools.product(named[index], named[mention.of])
    return all(RELATIONS[mention.relation](picture[one], picture[other]) for one, other in pairs)


def changed(
    caption: Caption,
    picture: Sequence[Fact],
    kind: str,
    number: int = 0,
    never: Sequence[tuple[str, str]] = (),
) -> Caption | None:
    """Changes one fact, which makes the caption false of the picture, or returns None if no change does.

    Args:
      kind: which fact changes, one of `CHANGES`.
      number: chooses one of the possible changes.
      never: pairs of colour and shape that the changed caption does not name.
    """
    false = [
        other
        for other in _changes(caption, kind)
        if is_distinct(other)
        and not is_true(other, picture)
        and not any(mention.look in never for mention in other.mentions)
    ]
    return false[number % len(false)] if false else None


def is_distinct(caption: Caption) -> bool:
    """Returns whether a text can tell the mentions apart: by colour and shape, or by size."""
    looks = [mention.look for mention in caption.mentions]
    if len(set(looks[1:])) < len(looks) - 1:
        return False
    return all(one.large is False for one in caption.mentions[1:] if one.look == looks[0])


def _changes(caption: Caption, kind: str) -> Iterator[Caption]:
    """Yields the captions that differ in one fact of a kind."""
    total = sum(mention.number for mention in caption.mentions)
    if kind == 'number' and caption.number is not None:
        others = range(max(total, 2), MOST + 1)
        yield from (caption._replace(number=other) for other in others if other != caption.number)
    for index, mention in enumerate(caption.mentions):
        for change in _mention_changes(mention, kind, MOST - total):
            mentions = list(caption.mentions)
            mentions[index] = mention._replace(**change)
            yield caption._replace(mentions=tuple(mentions))


def _mention_changes(mention: Mention, kind: str, room: int) -> Iterator[dict[str, object]]:
    """Yields the changes of one mention, with at most `room` objects more."""
    if kind == 'number' and mention.number > 1:
        yield from ({'number': n} for n in range(2, mention.number + room + 1) if n != mention.number)
    choices = {
        'relation': {'relation': RELATIONS},
        'place': {'column': range(CELLS), 'row': range(CELLS)},
        'colour': {'colour': COLOURS},
        'shape': {'shape': SHAPES},
        'number': {},
    }
    for name, values in choices[kind].items():
        value = getattr(mention, name)
        yield from ({name: other} for other in values if value is not None and other != value)
