"""Huffman codes of words by their counts (Mikolov et al. 2013, §2.1)."""

import collections
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
    children: dict[int, list[int]] = {}
    for node in range(1, len(words)):
        rarest = [heapq.heappop(queue) for _ in range(2)]
        children[node] = [child for _, _, child in rarest]
        heapq.heappush(queue, (sum(count for count, _, _ in rarest), len(words) + node, -node))
    # The inner nodes from the root to each node, each with the code of the branch that is taken.
    routes: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for node in reversed(children):
        for code, child in enumerate(children[node]):
            routes[child] = [*routes[-node], (node, code)]
    longest = max((len(routes[word]) for word in words), default=0)
    nodes, yes = (np.zeros((len(counts), longest), kind) for kind in (np.int32, np.float32))
    for word in words:
        route = routes[word]
        nodes[word, : len(route)] = [node for node, _ in route]
        yes[word, : len(route)] = [code == 0 for _, code in route]
    return nodes, yes
