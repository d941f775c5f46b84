"""Generates pictures of two to five coloured shapes, 32 x 32 pixels, and lists the objects in them.

A picture depends on (split, number) alone. Its shapes are in different cells of a 3 x 3 grid, so that "left
of" and "above" are clear, and one shape is the largest by a margin. A block of pictures is drawn at once, in
numpy: a pixel's coverage is 0.5 minus its signed distance to the shape's edge, clipped to 0 and 1.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

VERSION = 1  # of the drawings
SIZE, CELLS, MOST = 32, 3, 5
SHAPES = ('circle', 'square', 'triangle', 'cross')
COLOURS = {
    'red': (214, 39, 40),
    'green': (44, 160, 44),
    'blue': (31, 119, 220),
    'yellow': (240, 200, 30),
    'purple': (140, 60, 190),
    'black': (25, 25, 25),
}
# One class for each colour and shape of the largest object.
CLASSES = tuple(f'{colour} {shape}' for colour in COLOURS for shape in SHAPES)
PICTURES = {'train': 50_000, 'dev': 2_000, 'test': 2_000}
BLOCK = 500  # pictures that are drawn at once
WINDOW = 14  # side of the square that an object is drawn in, in pixels
# Ranges of an object's size, as the radius of a circle of its area, in pixels: the largest, and the others.
LARGEST, OTHERS = (3.2, 3.7), (1.6, 2.4)


class Objects(NamedTuple):
    """The objects of N pictures, the largest first; objects beyond `count` are not drawn.

    Attributes:
      count: the number of objects in a picture.
      shape, colour: indexes into `SHAPES` and `COLOURS`.
      x, y: the middle, in pixels from the left and from the top.
      radius: the radius of a circle of the same area, in pixels.
      turn: the rotation, in radians.
    """

    count: Int[np.ndarray, ' N']
    shape: Int[np.ndarray, 'N O']
    colour: Int[np.ndarray, 'N O']
    x: Float[np.ndarray, 'N O']
    y: Float[np.ndarray, 'N O']
    radius: Float[np.ndarray, 'N O']
    turn: Float[np.ndarray, 'N O']


class Fact(NamedTuple):
    """One object of a picture; `column` and `row` give its cell, counted from 0."""

    colour: str
    shape: str
    column: int
    row: int
    radius: float


def draw_objects(split: str, block: int) -> Objects:
    """Draws the objects of a block's pictures at random, as a function of split and block number."""
    return random_objects(generator(f'pictures {VERSION} {split}', block))


def generator(name: str, block: int) -> np.random.Generator:
    """Returns the random generator of a block, a function of its corpus's name and its number."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], 'little')
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(block,))))


def random_objects(rng: np.random.Generator, small: tuple[float, float] = OTHERS) -> Objects:
    """Draws the objects of a block's pictures. `small` is the range of all radii but the largest."""
    shape = (BLOCK, MOST)
    cells = np.argsort(rng.random((BLOCK, CELLS**2)), axis=1)[:, :MOST]
    radius = rng.uniform(*small, shape)
    radius[:, 0] = rng.uniform(*LARGEST, BLOCK)
    cell = SIZE / CELLS
    # An object can move off the middle of its cell while its corners stay about inside.
    room = np.maximum(cell / 2 - 1.5 * radius, 0.0)
    x = (cells % CELLS + 0.5) * cell + room * rng.uniform(-1, 1, shape)
    y = (cells // CELLS + 0.5) * cell + room * rng.uniform(-1, 1, shape)
    return Objects(
        count=rng.integers(2, MOST + 1, BLOCK),
        shape=rng.integers(0, len(SHAPES), shape),
        colour=rng.integers(0, len(COLOURS), shape),
        x=x,
        y=y,
        radius=radius,
        turn=rng.uniform(-0.25, 0.25, shape),
    )


def draw(objects: Objects) -> UInt8[np.ndarray, 'N 32 32 3']:
    """Paints the objects of N pictures on a light background, in RGB."""
    colours = np.array(list(COLOURS.values()), np.float32)
    # With a margin, into which an object's window can extend.
    canvas = np.full((len(objects.count), SIZE + 2 * WINDOW, SIZE + 2 * WINDOW, 3), 235, np.float32)
    for number in range(MOST):
        chosen = np.flatnonzero(number < objects.count)
        one = Objects(*(values[chosen] if values.ndim == 1 else values[chosen, number] for values in objects))
        left, top = (np.floor(middle).astype(int) - WINDOW // 2 for middle in (one.x, one.y))
        pixels = np.arange(WINDOW)
        covered = _coverage(one, left[:, None] + pixels, top[:, None] + pixels)[..., None]
        rows, columns = (edge[:, None] + WINDOW + pixels for edge in (top, left))
        place = chosen[:, None, None], rows[:, :, None], columns[:, None, :]
        canvas[place] += covered * (colours[one.colour][:, None, None] - canvas[place])
    return np.rint(canvas[:, WINDOW:-WINDOW, WINDOW:-WINDOW]).astype(np.uint8)


def _coverage(
    one: Objects, columns: Int[np.ndarray, 'N P'], rows: Int[np.ndarray, 'N P']
) -> Float[np.ndarray, 'N P P']:
    """Approximates the share of each pixel of a window that an object covers, one object per picture."""
    dx = (columns + 0.5 - one.x[:, None]).astype(np.float32)[:, None, :]
    dy = (rows + 0.5 - one.y[:, None]).astype(np.float32)[:, :, None]
    turn, r = (values.astype(np.float32)[:, None, None] for values in (one.turn, one.radius))
    u, v = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
    distance = np.empty_like(u)
    for shape, function in enumerate((_circle, _square, _triangle, _cross)):
        same = one.shape == shape
        distance[same] = function(u[same], v[same], r[same])
    return np.clip(0.5 - distance, 0.0, 1.0)


# Distances of points to the edge of a shape with area πr², negative inside. Beyond a corner, they are
# distances to one side's line, which is good enough for the coverage of a pixel.


def _circle(u, v, r):
    return np.hypot(u, v) - r


def _square(u, v, r):
    return np.maximum(np.abs(u), np.abs(v)) - r * (np.sqrt(np.pi) / 2)


def _triangle(u, v, r):
    # Three sides at the same distance ρ from the middle: area 3√3 ρ².
    inner = r * np.float32(np.sqrt(np.pi / (3 * np.sqrt(3))))
    slanted = np.abs(u) * np.float32(np.sqrt(3) / 2) - v / 2
    return np.maximum(slanted, v) - inner


def _cross(u, v, r):
    # Two bars of width 2w and length 6w: area 20 w².
    w = r * np.float32(np.sqrt(np.pi / 20))
    u, v = np.abs(u), np.abs(v)
    return np.minimum(np.maximum(u - 3 * w, v - w), np.maximum(u - w, v - 3 * w))


def pictures(split: str) -> Iterator[tuple[UInt8[np.ndarray, '32 32 3'], str]]:
    """Yields the pictures of a split in order, each with its class."""
    for block in range(-(-PICTURES[split] // BLOCK)):
        objects = draw_objects(split, block)
        labels = objects.colour[:, 0] * len(SHAPES) + objects.shape[:, 0]
        yield from zip(draw(objects), (CLASSES[label] for label in labels), strict=True)


def facts_of(objects: Objects) -> list[list[Fact]]:
    """Returns the objects of each of N pictures, the largest object first."""
    colours, cell = list(COLOURS), SIZE / CELLS
    columns, rows = ((middle // cell).astype(int).tolist() for middle in (objects.x, objects.y))
    looks = objects.colour.tolist(), objects.shape.tolist()
    return [
        [
            Fact(colours[colour], SHAPES[shape], column, row, radius)
            for colour, shape, column, row, radius in itertools.islice(zip(*one, strict=True), count)
        ]
        for count, *one in zip(
            objects.count.tolist(), *looks, columns, rows, objects.radius.tolist(), strict=True
        )
    ]
