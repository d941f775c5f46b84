"""The commands that only translation has: scores of two files, and what is wrong with a BLEU."""

from absl import logging
from etils import epath

from transformer.config import ConfigError
from transformer.data.dataset import Dataset
from transformer.data.sources import text
from transformer.runs import restore, workdir
from transformer.tasks.translation import bleu, diagnose


def run_scoring(
    hypotheses: str, references: str, languages: str, *, tokenized: bool
) -> dict[str, dict[str, object]]:
    """The scores of a file of translations against a file of references, as `bleu.score_all`.

    Args:
      languages: source and target, such as en-de.

    Raises:
      ConfigError: a file is missing, empty or not UTF-8, or the files differ in their number of lines.
    """
    pair = tuple(languages.split('-'))
    if len(pair) != 2 or not all(pair):
        raise ConfigError(f'--languages={languages}: expected source and target, for example en-de')
    sides = []
    for flag, file in (('hypotheses', hypotheses), ('references', references)):
        if not file:
            raise ConfigError(f'--{flag}: missing; score needs the file')
        sides.append(list(text.lines(epath.Path(file))))
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        raise ConfigError(f'{hypotheses} has {len(sides[0])} lines, {references} has {len(sides[1])}')
    if not tokenized and all(bleu.looks_tokenized(side) for side in sides):
        logging.warning('both files look tokenized; if they are, add --tokenized')
    return bleu.score_all(*sides, pair, tokenized=tokenized)


def run_diagnosis(
    folder: epath.Path, dataset: Dataset, split: str, changes: dict[str, object] | None = None
) -> list[diagnose.Finding]:
    """What `diagnose.findings` finds in what the training scored of a split, else in its last evaluation.

    Args:
      dataset: the data of the work directory.
      changes: as for `scoring.run_evaluation`.

    Raises:
      ConfigError: a mistake of the user's, or the split was not evaluated.
    """
    config = restore.changed(workdir.read_config(folder), changes or {})
    result = workdir.read_result(folder)
    later = result.get('evaluations', {}).items()
    named = [(name, found) for name, found in later if found.get('split') == split]
    if split in result.get('scores', {}):
        found = result['scores'][split]
        named.append((f'{split}.{found["checkpoint"]}', found))
    if not named:
        raise ConfigError(f'--split={split}: {folder} has no scores of it; run evaluate first')
    name, scores = named[-1]
    workdir.check_same(folder, config, dataset.manifest)
    translations = workdir.read_lines(folder, name)
    texts = dataset.texts(split)
    sides = (texts['source'], texts['target'], translations)
    return diagnose.findings(diagnose.Evidence(config, split, scores, *sides, dataset.codec))
