"""Nouns attend to content words rather than to articles."""

import numpy as np

from experiments.claims import distance, small_language
from experiments.claims.claim import Measurements, Verdict, by_name, prepared, spreads
from experiments.claims.panels import JOINED, curves
from transformer.data.generated.grammar.sentences import sentence_trees
from transformer.data.trees import Constituent, leaves

ARTICLES = ('the', 'a', 'an')
NOUNS, CONTENT = ('NN', 'NNS'), ('NN', 'NNS', 'JJ', 'VB')
CLASSES = ('content word', 'article')
SEEDS = distance.SEEDS
SOURCE = 'figures 3 to 5; lectures on attention'
CRITERION = (
    f'language models of {distance.LAYERS} layers, {distance.UPDATES} updates on the English of the grammar: '
    'over all heads and layers, a noun that was just read gives more attention to a piece of an earlier '
    'noun, verb or adjective than to an earlier article, with every seed'
)


def tags(pieces: list[str], tree: Constituent) -> list[tuple[int, str, str]]:
    """Returns the place of the word that each piece belongs to, its tag and the word; '' for other pieces."""
    letters = [(place, tag, word) for place, (tag, word) in enumerate(leaves(tree)) for _ in word]
    tagged, begin = [], 0
    for piece in pieces:
        size = len(piece.replace('▁', ''))
        tagged.append(letters[begin] if begin < len(letters) else (-1, '', ''))
        begin += size
    return tagged


def measure(seed: int) -> dict:
    """Measures the mean weight that a noun gives to a piece of each class."""
    weights, text = distance.attention(seed)
    by_head = weights.mean(axis=(0, 1))
    tokenizer = prepared(small_language.config(distance.CHANGES)).codecs['text']
    given = {name: [] for name in CLASSES}
    for row, (tree, tokens) in enumerate(zip(sentence_trees('dev'), text.tokens, strict=False)):
        length = int(text.segments[row].sum()) - 1  # without the end
        tagged = tags(tokenizer.pieces(tokens[:length].tolist()), tree)
        for query, (noun, tag, _) in enumerate(tagged):
            for key in range(query) if tag in NOUNS else ():
                place, other, word = tagged[key]
                # A piece is read at the position after its own.
                weight = float(by_head[row, query + 1, key + 1])
                if word.lower() in ARTICLES:
                    given['article'].append(weight)
                elif other in CONTENT and place != noun:
                    given['content word'].append(weight)
    return {name: float(np.mean(values)) for name, values in given.items()}


def judge(measurements: Measurements) -> Verdict:
    given = by_name(measurements)
    holds = all(a > b for a, b in zip(given['content word'], given['article'], strict=True))
    return Verdict(holds, f'weight from a noun to a piece of a {spreads(given, ".3f")}')


PANELS = (curves(CLASSES, '', 'weight from a noun', style=JOINED, ylim=(0, None)),)
