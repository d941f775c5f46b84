"""The command `score`: scores of a file of translations against a file of references."""

import sys

from absl import logging
from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.data.sources import text
from transformer.tasks.translation import bleu


def main(
    words: tuple[str, ...],
    *,
    hypotheses: str | None,
    references: str | None,
    languages: str,
    tokenized: bool,
    lowercase: bool,
    ter: bool,
    verbose: bool,
    json: bool,
) -> None:
    """Prints the scores of a file of translations against a file of references."""
    del words
    pair = tuple(languages.split('-'))
    if len(pair) != 2 or not all(pair):
        raise ConfigError(f'--languages={languages}: expected source and target, for example en-de')
    sides = []
    for flag, name in (('hypotheses', hypotheses), ('references', references)):
        if not name:
            raise ConfigError(f'--{flag}: missing; score needs the file')
        sides.append(list(text.lines(epath.Path(name))))
    counts = list(map(len, sides))
    if not any(counts):
        raise ConfigError(f'{hypotheses} and {references}: both files are empty')
    if counts[0] != counts[1]:
        raise ConfigError(f'{hypotheses} has {counts[0]} lines, {references} has {counts[1]}')
    if not tokenized and all(map(bleu.looks_tokenized, sides)):
        logging.warning('both files look tokenized; if they are, add --tokenized')
    scores = bleu.score_all(*sides, pair, tokenized=tokenized, lowercase=lowercase, ter=ter)
    lines = bleu.describe(scores, verbose=verbose)
    # They decide how words are cut.
    print(f'languages: {languages}', file=sys.stderr)
    print(files.json_text(scores, indent=2) if json else '\n'.join(lines))
