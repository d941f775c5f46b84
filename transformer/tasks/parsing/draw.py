"""Draws constituency trees."""

from typing import NamedTuple

from matplotlib.figure import Figure

from transformer import files
from transformer.data import trees
from transformer.data.trees import WORD, Constituent
from transformer.files import Path

# In inches: the height of a level, and the width of a letter and of the gap between words.
_LEVEL, _LETTER, _GAP = 0.42, 0.085, 0.16
_DPI, _MOST_PIXELS = 200, 60_000  # matplotlib draws fewer than 2^16 pixels a side


class Node(NamedTuple):
    """A label or word with its place: x in inches, and its level from the root."""

    text: str
    x: float
    level: int
    parent: int | None
    is_word: bool


def layout(tree: Constituent) -> list[Node]:
    """Places the nodes: words side by side on the lowest level, all else above the middle of its parts."""
    right = 0.0
    nodes: list[Node] = []
    opened: list[tuple[int, list[float]]] = []  # the open constituents: each node, and where its parts are
    for event, part in trees.walk(tree):
        if event == 'close':
            own, places = opened.pop()
            x = (places[0] + places[-1]) / 2
            nodes[own] = nodes[own]._replace(x=x)
        else:
            parent = opened[-1][0] if opened else None
            nodes.append(Node(part.label, 0.0, len(opened), parent, False))
        if event == 'open':
            opened.append((len(nodes) - 1, []))
            continue
        if event == 'word':
            width = _LETTER * max(len(part.label), len(part.parts)) + _GAP
            x, right = right + width / 2, right + width
            nodes[-1] = nodes[-1]._replace(x=x)
            nodes.append(Node(part.parts, x, len(opened) + 1, len(nodes) - 1, True))
        if opened:
            opened[-1][1].append(x)
    lowest = max(node.level for node in nodes)
    for number, node in enumerate(nodes):
        if node.is_word:
            nodes[number] = node._replace(level=lowest)
            nodes[node.parent] = nodes[node.parent]._replace(level=lowest - 1)
    return nodes


def draw(tree: Constituent) -> Figure:
    """Draws a tree, as wide as its words need."""
    nodes = layout(tree)
    width = max(node.x + _LETTER * len(node.text) / 2 for node in nodes) + _GAP
    height = _LEVEL * (max(node.level for node in nodes) + 1)
    figure = Figure((width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis('off')
    y = lambda node: _LEVEL * (node.level + 0.5)
    for node in nodes:
        if node.parent is not None:
            parent = nodes[node.parent]
            # First to the side, then down, so that no line crosses a label. XX is not drawn.
            top = y(parent) + (0.1 if _is_shown(parent) else -0.1)
            bottom = y(node) - 0.1
            axes.plot([parent.x, node.x, node.x], [top, top, bottom], color='0.6', linewidth=0.8)
        style = {'style': 'italic'} if node.is_word else {'color': '#1f4e79'}
        # Words can hold dollar signs, which are no formulas.
        if _is_shown(node):
            axes.text(
                node.x, y(node), node.text, ha='center', va='center', fontsize=9, parse_math=False, **style
            )
    return figure


def _is_shown(node: Node) -> bool:
    return node.is_word or node.text != WORD


def save(tree: Constituent, path: Path) -> None:
    """Writes a tree's picture as SVG and PNG, replacing earlier ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = draw(tree)
    dpi = min(_DPI, _MOST_PIXELS / max(figure.get_size_inches()))
    for kind in ('svg', 'png'):
        with files.replacing(path.with_name(f'{path.name}.{kind}')) as file:
            figure.savefig(file, format=kind, dpi=dpi, metadata={'Date': None} if kind == 'svg' else None)
