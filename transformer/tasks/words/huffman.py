"""Huffman codes of words by their counts (Mikolov et al. 2013, §2.1)."""

import heapq

import numpy as np
from jaxtyping import Float, Int, Integer


def paths(counts: Integer[np.ndarray, ' V']) -> tuple[Int[np.ndarray, 'V J'], Float[np.ndarray, 'V J']]:
    """Builds the Huffman tree of all words that occur.

    Returns:
      - The inner nodes from the root to each word, numbered from 1; 0 after the end of a path.
      - 1 where a path takes the branch with code 0, the rarer one, else 0.
    """
    words = np.flatnonzero(counts).tolist()
    # Among equal counts, the rarer branch is the one that was made first.
    queue = [(int(counts[word]), place, word) for place, word in enumerate(words)]
    heapq.heapify(queue)
    parent: dict[int, tuple[int, int]] = {}
    for node in range(1, len(words)):
        merged = 0
        for code in (0, 1):
            count, _, child = heapq.heappop(queue)
            parent[child] = (node, code)
            merged += count
        heapq.heappush(queue, (merged, len(words) + node, -node))
    routes = {word: _route(word, parent) for word in words}
    longest = max(map(len, routes.values()), default=0)
    nodes, yes = (np.zeros((len(counts), longest), kind) for kind in (np.int32, np.float32))
    for word, route in routes.items():
        nodes[word, : len(route)] = [node for node, _ in route]
        yes[word, : len(route)] = [code == 0 for _, code in route]
    return nodes, yes


def _route(word: int, parent: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the inner nodes from the root to a word, each with the code of the branch that is taken."""
    route, child = [], word
    while child in parent:
        node, code = parent[child]
        route.append((node, code))
        child = -node
    return route[::-1]
