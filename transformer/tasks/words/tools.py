"""The commands on word vectors: neighbours, analogy, similarity, vectors and picture."""

from collections.abc import Sequence

from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.config.extras import needing
from transformer.data import word_vectors
from transformer.tasks.words import vectors

COUNT = 10  # the words that are printed by default


def neighbours(words: Sequence[str], *, most: int | None, count: int | None) -> None:
    """Prints the nearest words of each word, with their cosines."""
    name, *asked = _split(words, 2, 'neighbours', 'words')
    table = vectors.load(name, most)
    table.places(asked)
    for word in asked:
        for other, cosine in table.neighbours([word], count or COUNT):
            print(f'{word}\t{other}\t{cosine:.4f}')


def analogy(
    words: Sequence[str],
    *,
    most: int | None,
    count: int | None,
    method: str,
    questions: str | None,
    lowercase: bool,
) -> None:
    """Prints the answers to one question, or the share of right answers to a file of questions."""
    name, *asked = _split(words, 1, 'analogy', 'words')
    if (questions is None) != (len(asked) == 3) or (questions is not None and asked):
        raise ConfigError('analogy: needs three words or --questions=FILE')
    if questions is not None and count is not None:
        raise ConfigError(f'--count={count}: --questions counts only the best answer')
    kinds = vectors.read_questions(questions) if questions is not None else {}
    table, change = vectors.load(name, most), str.lower if lowercase else str
    if questions is None:
        for word, score in table.analogy([*map(change, asked)], count or COUNT, method):
            print(f'{word}\t{score:.4f}')
        return
    total = vectors.Answered(0, 0, 0)
    for kind, of_kind in kinds.items():
        one = table.answer([[*map(change, question)] for question in of_kind], method)
        total = vectors.Answered(*map(sum, zip(total, one, strict=True)))
        print(_share(kind, one))
    print(_share('all', total))


def _share(kind: str, answered: vectors.Answered) -> str:
    right, known, total = answered
    share = f'{100 * right / known:.2f} %' if known else 'none'
    return f'{kind}\t{share}\t{right} of {known} whose words are known, of {total}'


def similarity(words: Sequence[str], *, most: int | None, lowercase: bool) -> None:
    """Prints Spearman's correlation of cosines and people's judgements, for each file."""
    name, *paths = _split(words, 2, 'similarity', 'files')
    change = str.lower if lowercase else str
    sets = {path: vectors.read_pairs(path) for path in paths}
    table = vectors.load(name, most)
    for path, pairs in sets.items():
        correlation, known = table.similarity([(change(a), change(b), score) for a, b, score in pairs])
        shown = 'none' if correlation is None else f'{correlation:.4f}'
        print(f'{path}\t{shown}\t{known} of {len(pairs)} pairs whose words are known')


def convert(words: Sequence[str], *, most: int | None, layout: word_vectors.Layout) -> None:
    """Writes vectors as a file."""
    name, path = words
    table = vectors.load(name, most)
    word_vectors.write(path, word_vectors.WordRows(table.words, table.vectors), layout)
    print(f'{path}: {len(table.words)} words, {table.vectors.shape[1]} numbers each')


def picture(words: Sequence[str], *, most: int | None) -> None:
    """Draws words in two dimensions."""
    name, path, *asked = _split(words, 5, 'picture', 'an image file and at least three words')
    table = vectors.load(name, most)
    with needing('picture', 'figures'):
        figure = vectors.picture(table, asked)
    files.write_figure(epath.Path(path), figure, dpi=120)
    print(path)


def _split(words: Sequence[str], least: int, command: str, what: str) -> Sequence[str]:
    if len(words) < least:
        raise ConfigError(f'{command}: needs a file of vectors or a work directory, and {what}')
    return words
