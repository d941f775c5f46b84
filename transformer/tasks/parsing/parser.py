"""Parses sentences with a trained model."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import logging
from etils import epath, epy

from transformer.data import trees
from transformer.data.fields import split_at_blanks
from transformer.data.trees import Constituent, Repairs
from transformer.inference import generate
from transformer.runs import workdir
from transformer.runs.restore import Trained
from transformer.tasks.contract import Hypothesis
from transformer.tasks.parsing import well_formed
from transformer.tasks.translation import translator

with epy.lazy_imports():
    from transformer.tasks.parsing import draw as drawing

# The tags of words that are a tag of the Penn Treebank themselves, or have only one.
_PUNCTUATION = {
    **dict.fromkeys('.!?', '.'),
    ',': ',',
    **dict.fromkeys((':', ';', '-', '--', '...'), ':'),
    **dict.fromkeys(('-LRB-', '(', '[', '-LSB-'), '-LRB-'),
    **dict.fromkeys(('-RRB-', ')', ']', '-RSB-'), '-RRB-'),
    **dict.fromkeys(('``', '“'), '``'),
    **dict.fromkeys(("''", '”'), "''"),
}
# The rules by which the Penn Treebank splits a sentence into words, in order.
_SPLITS = (
    (r'(^|[\s(\[{<])"', r'\1`` '),
    (r'\.\.\.', ' ... '),
    (r'[,;:@#$%&?!]', r' \g<0> '),
    (r'(?<=\d) ([,:]) (?=\d)', r'\1'),
    (r"([^.\s])(\.)([\])}>\"']*)\s*$", r'\1 \2\3 '),
    (r'[()\[\]{}<>]', r' \g<0> '),
    (r'--', ' -- '),
    (r'"', r" '' "),
    (r"(?i)([^' ])('s|'m|'d|'ll|'re|'ve|n't)(?= |$)", r'\1 \2'),
    (r"([^' ])'(?= |$)", r"\1 '"),
    (r'(?i)\b(can(?=not\b)|gon(?=na\b)|got(?=ta\b)|wan(?=na\b)|gim(?=me\b)|lem(?=me\b))', r'\1 '),
)
_BRACKETS = str.maketrans({'(': '-LRB-', ')': '-RRB-'})


class Parse(NamedTuple):
    """A tree over a sentence's words.

    Attributes:
      repairs: the repairs of the model's output.
      score: the output's score.
      tags: the label that the model wrote for each word.
    """

    tree: Constituent
    repairs: Repairs
    score: float
    tags: list[str]


def split_words(sentence: str) -> list[str]:
    """Splits a sentence into words as the Penn Treebank does: did n't, the dog 's, brackets as -LRB-."""
    for pattern, replacement in _SPLITS:
        sentence = re.sub(pattern, replacement, sentence)
    # Raw text has other blanks, too.
    return escaped_words(' '.join(sentence.split()))


def escaped_words(sentence: str) -> list[str]:
    """Splits a sentence at blanks, and writes brackets as treebanks do, where no word contains one."""
    return [word.translate(_BRACKETS) for word in split_at_blanks(sentence)]


def parses(
    trained: Trained,
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]] | None = None,
    **options,
) -> list[list[Parse]]:
    """Returns the trees of each sentence, best first. Options are as for `translator.hypotheses`.

    Args:
      tags: the tags of each sentence's words. Without them a model that writes no tags tags punctuation only.
    """
    config = trained.config
    if options.get('well_formed', config.decode.well_formed):
        tokenizer = trained.codecs['target']
        pieces = tokenizer.pieces(range(tokenizer.size))
        grammar = well_formed.Brackets.of(pieces, config.model.vocab_size, tags=config.data.tags)
        options |= {'grammar': grammar, 'of_grammar': list(map(len, sentences))}
    hypotheses = translator.hypotheses(trained, map(' '.join, sentences), **options)
    results = []
    for i, words in enumerate(sentences):
        given = tags[i] if tags else None if config.data.tags else punctuation_tags(words)
        of_sentence = []
        for text, score in hypotheses[i]:
            written, repairs = trees.to_tree(text, words)
            tags_written = [leaf.label for leaf in trees.leaves(written)]
            tree = trees.to_tree(text, words, given)[0] if given else written
            of_sentence.append(Parse(tree, repairs, score, tags_written))
        results.append(of_sentence)
    return results


def punctuation_tags(words: Sequence[str]) -> list[str]:
    """Tags punctuation, which scorers leave out by its tag. A plain quote opens and closes in turn."""
    tags, opened = [], False
    for word in words:
        if word == '"':
            opened = not opened
            tags.append('``' if opened else "''")
        else:
            tags.append(_PUNCTUATION.get(word, trees.WORD))
    return tags


def parse(
    trained: Trained,
    sentences: Iterable[str],
    *,
    best: int = 1,
    raw: bool = False,
    draw: str | None = None,
    first: int | None = None,
    on_done: generate.OnDone = lambda sentences: None,
    **options,
) -> list[list[Hypothesis]]:
    """Returns the `best` best trees of each sentence as bracketed text, or '' for an empty sentence.

    An output that is no tree over the sentence's words is repaired by the rules of `trees.to_tree`, with a
    warning.

    Args:
      raw: whether to split the sentences into words; else blanks separate words, and a bracket in a word is
        written -LRB- or -RRB-.
      draw: a folder for pictures of the best trees.
      first: the number of the first sentence, by default 0. Without it no repair is a warning.
      on_done: receives the number of further sentences that are parsed.
      options: options of `Decode`, such as beam=1.
    """
    if draw is not None:
        # Before the sentences are parsed, which can take long.
        workdir.check_place(draw)
    sentences = generate.as_texts(sentences, 'sentences')
    words = list(map(split_words if raw else escaped_words, sentences))
    results = []
    found = parses(trained, words, best=best, first=first or 0, on_done=on_done, **options)
    for i, of_sentence in enumerate(found):
        likeliest, number = of_sentence[0], (first or 0) + i + 1
        rules = [f'{name} {count}' for name, count in likeliest.repairs._asdict().items() if count]
        if words[i] and rules and first is not None:
            logging.warning('line %d: repaired: %s', number, ', '.join(rules))
        if words[i] and draw is not None:
            drawing.save(likeliest.tree, epath.Path(draw) / f'tree-{number}')
        texts = [trees.bracketed(one.tree) if words[i] else '' for one in of_sentence]
        results.append([Hypothesis(text, one.score) for text, one in zip(texts, of_sentence, strict=True)])
    return results
