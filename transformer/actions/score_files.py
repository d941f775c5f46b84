"""Scores a file of translations against a file of references."""

from collections.abc import Sequence

from absl import logging
from etils import epath

from transformer.config import ConfigError
from transformer.data.sources import text
from transformer.tasks.translation import bleu


def score_files(
    hypotheses: str, references: str, languages: str, *, tokenized: bool
) -> dict[str, dict[str, object]]:
    """The scores of two files with as many lines, as `bleu.score_all`.

    Args:
      languages: source and target, such as en-de.
    """
    pair = tuple(languages.split('-'))
    if len(pair) != 2 or not all(pair):
        raise ConfigError(f'--languages={languages}: expected source and target, for example en-de')
    sides: list[Sequence[str]] = []
    for flag, file in (('hypotheses', hypotheses), ('references', references)):
        if not file:
            raise ConfigError(f'--{flag}: missing; score needs the file')
        sides.append(list(text.lines(epath.Path(file))))
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        raise ConfigError(f'{hypotheses} has {len(sides[0])} lines, {references} has {len(sides[1])}')
    if not tokenized and all(bleu.looks_tokenized(side) for side in sides):
        logging.warning('both files look tokenized; if they are, add --tokenized')
    return bleu.score_all(*sides, pair, tokenized=tokenized)
