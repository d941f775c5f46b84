"""Captions of the generated scenes, and judgements whether a caption is true of a picture."""

import functools
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import UInt8

from transformer.data.generated import pictures
from transformer.data.generated.pictures import BLOCK, Fact
from transformer.data.generated.scenes import reader, world, writer
from transformer.data.generated.scenes.facts import changed, is_true, state


def scenes(split: str, start: int, stop: int) -> Iterator[UInt8[np.ndarray, '32 32 3']]:
    """Yields the pictures of a split from number `start` to before `stop`."""
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        drawn = pictures.draw(world.draw_block(split, block).objects)
        yield from drawn[max(start - first, 0) : stop - first]


def facts(split: str, number: int) -> list[Fact]:
    """Returns the objects of a split's picture `number`, counted from 0, the largest object first."""
    return world.draw_block(split, number // BLOCK).facts[number % BLOCK]


def caption(split: str, number: int, language: str) -> str:
    """Returns the caption of a split's picture `number` in a language."""
    numbers = world.draw_block(split, number // BLOCK).numbers[number % BLOCK]
    return writer.write(state(facts(split, number), numbers), language, numbers)


def holds(sentence: str, picture: Sequence[Fact], language: str) -> bool | None:
    """Returns whether all that a sentence states is true of a picture; None if it is not of the grammar."""
    stated = reader.read(sentence, language)
    return None if stated is None else is_true(stated, picture)


def wrong_caption(split: str, number: int, language: str, kind: str) -> str | None:
    """Returns the caption with one fact of a kind changed, which makes it false, or None if none can be.

    It names no combination that the split's pictures never have, by which it could be known without looking.

    Args:
      kind: one of `CHANGES`.
    """
    numbers, picture = world.draw_block(split, number // BLOCK).numbers[number % BLOCK], facts(split, number)
    never = () if split == 'unseen' else world.HELD_OUT
    false = changed(state(picture, numbers), picture, kind, numbers[-1], never)
    return None if false is None else writer.write(false, language, numbers)


def recognise(picture: UInt8[np.ndarray, '32 32 3']) -> list[Fact] | None:
    """Returns the objects of a picture of any split by its pixels, or None for another picture."""
    key = _digest(picture)
    # Train last, because it is the largest.
    for split in sorted(world.SIZES, key=world.SIZES.get):
        if (number := _numbers(split).get(key)) is not None:
            return facts(split, number)
    return None


@functools.cache
def _numbers(split: str) -> dict[bytes, int]:
    """Returns the number of each picture of a split by its digest."""
    return {_digest(picture): number for number, picture in enumerate(scenes(split, 0, world.SIZES[split]))}


def _digest(picture: UInt8[np.ndarray, '32 32 3']) -> bytes:
    return hashlib.blake2b(picture.tobytes(), digest_size=16).digest()
