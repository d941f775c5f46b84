"""Draws the objects of scenes: like `pictures`, with larger small shapes and combinations held out.

A picture and the random numbers of its caption depend on (split, number) alone.
"""

import functools
from typing import NamedTuple

import numpy as np

from transformer.data.generated import pictures
from transformer.data.generated.pictures import BLOCK, COLOURS, MOST, SHAPES, Fact, Objects

VERSION = 1  # of the pictures and captions
SIZES = {'train': 50_000, 'dev': 2_000, 'test': 2_000, 'unseen': 2_000}
# What is never drawn but in `unseen`, whose largest objects look so.
HELD_OUT = (('red', 'circle'), ('blue', 'square'), ('yellow', 'triangle'), ('purple', 'cross'))
# Radii of the objects other than the largest, in pixels: large enough that their shapes can be seen.
SMALL = (2.2, 2.6)
NUMBERS = 32  # random numbers of a picture, for its caption
_ALIKE = 0.15  # chance that the third object, if there is one, takes the second's look


class Block(NamedTuple):
    """The pictures of a block: their objects, the random numbers of their captions, and facts."""

    objects: Objects
    numbers: list[list[int]]
    facts: list[list[Fact]]


@functools.lru_cache(maxsize=4)
def draw_block(split: str, block: int) -> Block:
    """Draws a block's objects at random, as a function of split and block number."""
    rng = pictures.generator(f'scenes {VERSION} {split}', block)
    objects = pictures.random_objects(rng, small=SMALL)
    every = [(colour, shape) for colour in range(len(COLOURS)) for shape in range(len(SHAPES))]
    held_out = [(list(COLOURS).index(colour), SHAPES.index(shape)) for colour, shape in HELD_OUT]
    seen = [look for look in every if look not in held_out]
    looks = _choose(rng, every if split == 'unseen' else seen, (BLOCK, MOST))
    if split == 'unseen':
        looks[:, 0] = _choose(rng, held_out, BLOCK)
    alike = rng.random(BLOCK) < _ALIKE
    looks[alike, 2] = looks[alike, 1]
    objects = objects._replace(colour=looks[..., 0], shape=looks[..., 1])
    return Block(objects, rng.integers(0, 1 << 16, (BLOCK, NUMBERS)).tolist(), pictures.facts_of(objects))


def _choose(rng: np.random.Generator, looks: list[tuple[int, int]], shape: int | tuple[int, ...]):
    return np.array(looks)[rng.integers(0, len(looks), shape)]
