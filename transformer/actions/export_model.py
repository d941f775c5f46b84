"""Writes a trained model as another program's, and compares what both compute."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np
from etils import epath

from transformer import files
from transformer.config import Config, ConfigError
from transformer.data.sources import text
from transformer.export.ctranslate2 import engine, writing
from transformer.runs import restore
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of

# The formats, each with its check of a config, and its writer.
FORMATS = {'ctranslate2': (writing.check, writing.write)}


def export_model(
    run: Run, choice: str, folder: epath.PathLike, kind: str | None, quantization: str | None = None
) -> Trained:
    """Writes a checkpoint into a new folder, and returns the model.

    Args:
      choice: scored, best, latest, average or a step.
      kind: a name in `FORMATS`.

    Raises:
      ConfigError: the format has no such model; no file was written.
      FileExistsError: `folder` is not empty.
    """
    if kind not in FORMATS:
        given = '--format: missing' if kind is None else f'--format={kind}'
        raise ConfigError(f'{given}; choose one of {", ".join(FORMATS)}')
    check, write = FORMATS[kind]
    check(run.config, quantization)
    if ',' in choice:
        raise ConfigError(f'--checkpoint={choice}: one checkpoint can be exported, no ensemble')
    folder = files.check_new(epath.Path(folder))
    trained, _ = restore.load_and_report(run, choice)
    with files.new_folder(folder) as unfinished:
        write(trained.config, jax.device_get(trained.params), trained.codec, unfinished, quantization)
    return trained


def check_comparison(config: Config, file: str | None) -> list[str]:
    """Reads the sentences to compare; ConfigError if there are none, or the task has no such comparison."""
    if file is None:
        return []
    needed = {'hypotheses', 'likelihoods'}
    if not needed <= task_of(config).verbs.keys():
        raise ConfigError(f'--check={file}: not possible with train.task={config.train.task}')
    if not (sentences := [line for line in text.lines(epath.Path(file)) if line.strip()]):
        raise ConfigError(f'--check={file}: has no sentences')
    return sentences


def compare(trained: Trained, folder: epath.PathLike, sentences: Sequence[str]) -> Iterator[str]:
    """Yields lines that compare both programs on sentences.

    Both search with the beam of the model's config and score a hypothesis by its log p alone, because other
    penalties of its length are not the same there.
    """
    beam, longest = trained.config.decode.beam, trained.config.decode.max_source_len
    sources = trained.codec.of('source').encode_batch(sentences)
    # A longer one is cut here alone.
    short = [s for s, row in zip(sentences, sources, strict=True) if len(row) <= longest]
    if long := len(sentences) - len(short):
        yield f'left out, because they have more than decode.max_source_len={longest} pieces: {long}'
    if not (sentences := short):
        return
    verbs, other = task_of(trained.config).verbs, engine.Translator(trained, folder)
    ours = verbs['hypotheses'](trained, sentences, method='beam', alpha=0.0)
    texts = [best[0].text for best in ours]
    their_texts = [best[0].text for best in other.hypotheses(sentences, method='beam', alpha=0.0)]
    equal = sum(map(str.__eq__, texts, their_texts))
    yield f'CTranslate2 computes in {other.dtype}'
    yield f'equal outputs of beam {beam}, alpha 0: {equal} of {len(sentences)}'
    for number, (own, their) in enumerate(zip(texts, their_texts, strict=True), 1):
        if own != their:
            yield f'the first that differs, sentence {number}: here "{own}", there "{their}"'
            break
    pairs = list(zip(sentences, texts, strict=True))
    logp = [likelihood.logp for likelihood in verbs['likelihoods'](trained, pairs)]
    theirs = other.log_probabilities(pairs)
    differences = [np.abs(own - one).max() for own, one in zip(logp, theirs, strict=True)]
    yield f'largest difference in log p of a piece of our outputs: {max(differences):.2e}'
