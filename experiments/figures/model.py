"""Draws the paper's base model as SVG: its parts, their parameters' paths and shapes, and their files."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from transformer import config as configs
from transformer.nn import models
from transformer.runs.hashes import named_leaves

WIDTH = 830  # pixels, as wide as GitHub shows a page
_BOX, _MARGIN, _LINE, _GAP, _ADDED = 380, 12, 14, 14, 34
_LEFT = 16  # of the encoder's boxes
_RIGHT = WIDTH - _LEFT - _BOX  # of the decoder's
_STYLE = """
text { font: 12px Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-weight: bold }
.path, .shape { font: 10.5px Menlo, Consolas, 'DejaVu Sans Mono', monospace }
.shape, .file { text-anchor: end; fill: #59636e }
.file { font-size: 11px }
.middle { text-anchor: middle }
polyline { fill: none; stroke: #1f2328; marker-end: url(#head) }
"""


class Box(NamedTuple):
    """A part of the model: its title, its file, its parameters and its colour."""

    title: str
    file: str
    paths: tuple[str, ...]
    colour: str

    @property
    def height(self) -> int:
        """Returns the height in pixels."""
        return 27 + _LINE * len(self.paths)


def _embedding(title: str) -> Box:
    return Box(title, 'nn/layers.py', ('embedding/table',), '#fde7e9')


def _layer(stack: str, attentions: dict[str, str]) -> list[Box]:
    """Lists the parts of a stack's first layer, from the lowest; `attentions` contains titles by name."""
    parts = {name: ('query', 'key', 'value', 'output') for name in attentions} | {
        'feed_forward': ('inner', 'outer')
    }
    boxes = []
    for name, kernels in parts.items():
        path = f'{stack}/layer_0/{name}'
        paths = tuple(f'{path}/{kernel}/kernel' for kernel in kernels)
        if name in attentions:
            boxes.append(Box(f'{attentions[name]}, §3.2', 'nn/attention.py', paths, '#fff0d6'))
        else:
            boxes.append(Box('Feed-forward, §3.3', 'nn/layers.py', paths, '#dff1fb'))
        scale = (f'{path}_sublayer/norm/layer/scale',)
        boxes.append(Box('Add & Norm, §3.1', 'nn/layers.py', scale, '#f4f6d8'))
    return boxes


ENCODER = _layer('encoder', {'self_attention': 'Self-attention'})
DECODER = _layer(
    'decoder', {'self_attention': 'Masked self-attention', 'cross_attention': 'Attention to the encoder'}
)


def draw() -> str:
    """Draws the figure, from the inputs at the bottom to the probabilities at the top."""
    config = configs.resolve_values({})
    leaves = named_leaves(models.parameter_shapes(config))
    shapes = {path: '×'.join(map(str, leaf.shape)) for path, leaf in leaves.items()}
    softmax = _embedding('Softmax, §3.4 (the same table)')
    inputs = {
        _LEFT: ('inputs', _embedding('Input embedding, §3.4')),
        _RIGHT: ('outputs, shifted right', _embedding('Output embedding, §3.4 (the same table)')),
    }
    bottom = 24 + softmax.height + _GAP + _frame_height(DECODER)  # of both stacks
    lowest = bottom + _ADDED + softmax.height
    height = lowest + 2 * _GAP + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {height}">',
        f'<style>{_STYLE}</style>',
        '<defs><marker id="head" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6"',
        'orient="auto"><polygon points="0,0 6,3 0,6"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_LEFT, 40, 'title', "The paper's base model"),
        _text(_LEFT, 62, '', 'Each box lists the paths and shapes of its parameters.'),
        _text(_LEFT, 80, '', 'Beside every kernel and every scale there is a bias.'),
    ]
    for x, boxes in ((_LEFT, ENCODER), (_RIGHT, DECODER)):
        stack = 'encoder' if x == _LEFT else 'decoder'
        lines += _stack(x, bottom, boxes, f'{stack}/layer_0, of N = {config.model.N} layers', shapes)
    for x, (name, box) in inputs.items():
        middle, top = x + _BOX // 2, bottom + _ADDED
        lines += _box(x, top, box, shapes)
        lines.append(_text(middle, lowest + 2 * _GAP, 'middle', name))
        lines.append(_line((middle, lowest + _GAP + 2), (middle, lowest)))
        lines.append(_line((middle, top), (middle, bottom)))
        lines.append(_text(x + 8, bottom + 21, '', '+ positional encodings, §3.5'))
        lines.append(_text(x + _BOX - 8, bottom + 21, 'file', 'nn/positions.py'))
    middle, top = _RIGHT + _BOX // 2, bottom - _frame_height(DECODER)
    lines += _box(_RIGHT, 24, softmax, shapes)
    lines.append(_line((middle, top), (middle, top - _GAP)))
    lines.append(_text(middle, 15, 'middle', 'probabilities of the next piece'))
    # From the top of the encoder to the decoder's second sub-layer.
    out, down = bottom - _frame_height(ENCODER), (_LEFT + _BOX + _RIGHT) // 2
    cross = next(top + box.height // 2 for box, top in _place(bottom, DECODER) if 'encoder' in box.title)
    start = _LEFT + _BOX // 2
    lines.append(_line((start, out), (start, out - _GAP), (down, out - _GAP), (down, cross), (_RIGHT, cross)))
    return '\n'.join([*lines, '</svg>', ''])


def _frame_height(boxes: Sequence[Box]) -> int:
    return sum(box.height for box in boxes) + _GAP * len(boxes) + 2 * _GAP + 6


def _place(bottom: int, boxes: Sequence[Box]) -> list[tuple[Box, int]]:
    """Stacks boxes above one another, and returns each with its top."""
    placed, top = [], bottom
    for box in boxes:
        top -= _GAP + box.height
        placed.append((box, top))
    return placed


def _stack(x: int, bottom: int, boxes: Sequence[Box], title: str, shapes: dict[str, str]) -> Iterator[str]:
    """Draws a layer in a frame: its parts, the arrows between them, and the residual connections."""
    top, middle, side = bottom - _frame_height(boxes), x + _BOX // 2, x + _BOX + _MARGIN // 2
    yield _rect(x - _MARGIN, top, _BOX + 2 * _MARGIN, bottom - top, '#f6f8fa')
    yield _text(x + 8, top + 19, 'title', title)
    yield _text(x + _BOX - 8, top + 19, 'file', 'nn/stacks.py')
    below = bottom
    for number, (box, its_top) in enumerate(_place(bottom, boxes)):
        yield from _box(x, its_top, box, shapes)
        yield _line((middle, below), (middle, its_top + box.height))
        if number % 2:
            # Add & Norm also gets the input of the part below it.
            source, target = below + boxes[number - 1].height + _GAP // 2, its_top + box.height // 2
            yield _line((middle, source), (side, source), (side, target), (x + _BOX, target))
        below = its_top


def _box(x: int, top: int, box: Box, shapes: dict[str, str]) -> Iterator[str]:
    yield _rect(x, top, _BOX, box.height, box.colour)
    yield _text(x + 8, top + 16, 'title', box.title)
    yield _text(x + _BOX - 8, top + 16, 'file', box.file)
    for number, path in enumerate(box.paths, 1):
        y = top + 18 + number * _LINE
        yield _text(x + 8, y, 'path', path)
        # A scale has d_model numbers, and a path as long as the box.
        if not path.endswith('scale'):
            yield _text(x + _BOX - 8, y, 'shape', shapes[path])


def _rect(x: int, y: int, width: int, height: int, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="#59636e" rx="5"/>'


def _text(x: int, y: int, kind: str, text: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def _line(*points: tuple[int, int]) -> str:
    return f'<polyline points="{" ".join(f"{x},{y}" for x, y in points)}"/>'
