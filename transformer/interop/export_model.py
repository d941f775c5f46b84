"""Writes a trained model as another program's, and compares the results of both."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from etils import epath

from transformer import files
from transformer.config import Config, ConfigError, Decode, has
from transformer.data.codec import Codecs
from transformer.data.sources import text
from transformer.interop.ctranslate2 import engine as ctranslate2_engine
from transformer.interop.ctranslate2 import writing as ctranslate2
from transformer.interop.hugging_face import engine as hugging_face_engine
from transformer.interop.hugging_face import writing as hugging_face
from transformer.nn import models
from transformer.runs import parameters_file, restore, workdir
from transformer.runs.checkpoint import CONFIG
from transformer.runs.restore import Origin, Trained
from transformer.runs.workdir import Run
from transformer.tasks import task_of
from transformer.tasks.translation import bleu


class Format(NamedTuple):
    """A format of models.

    Attributes:
      check: `(config, quantization)`, raises ConfigError if the format has no such model.
      write: `(run, trained, origin, folder, quantization)`, writes the model into an existing folder.
      differences: `(config, codecs) -> lines`, describes how the other program's computation differs.
      engine: `(trained, folder)`, the other program, with `likeliest`, `log_probabilities` and `dtype`.
      libraries: imports what `engine` needs, or raises ConfigError if it is not installed.
    """

    check: Callable[[Config, str | None], None]
    write: Callable[[Run, Trained, Origin, epath.Path, str | None], None]
    differences: Callable[[Config, Codecs], list[str]] = lambda config, codecs: []
    engine: Callable | None = None
    libraries: Callable | None = None


def _write_ctranslate2(
    run: Run, trained: Trained, origin: Origin, folder: epath.Path, quantization: str | None
) -> None:
    del run, origin
    ctranslate2.write(trained.config, trained.params, trained.codecs, folder, quantization)


def _write_huggingface(
    run: Run, trained: Trained, origin: Origin, folder: epath.Path, quantization: str | None
) -> None:
    del quantization
    hugging_face.write(trained.config, trained.params, trained.codecs, folder)
    hugging_face.write_card(run, origin, folder)


def _check_safetensors(config: Config, quantization: str | None) -> None:
    del config
    if quantization is not None:
        raise ConfigError(f'--quantization={quantization}: safetensors holds the parameters as they are')


def _write_safetensors(
    run: Run, trained: Trained, origin: Origin, folder: epath.Path, quantization: str | None
) -> None:
    """Writes our own parameters, with what `transformer.load` needs beside them."""
    del quantization
    meta = {'checkpoint': origin.name, 'averaged': origin.steps, 'tokens': origin.tokens}
    meta |= {CONFIG: dataclasses.asdict(run.config)}
    parameters_file.write(folder, max(origin.steps), trained.params, meta)
    workdir.write_description(folder, run.config, run.codecs, run.manifest)


FORMATS = {
    'ctranslate2': Format(
        ctranslate2.check,
        _write_ctranslate2,
        engine=ctranslate2_engine.model,
        libraries=ctranslate2.load_library,
    ),
    'huggingface': Format(
        hugging_face.check,
        _write_huggingface,
        hugging_face.differences,
        hugging_face_engine.TransformersModel,
        hugging_face_engine.libraries,
    ),
    'safetensors': Format(_check_safetensors, _write_safetensors),
}


def _format(name: str | None) -> Format:
    if name not in FORMATS:
        given = '--format: missing' if name is None else f'--format={name}'
        raise ConfigError(f'{given}; choose one of {", ".join(FORMATS)}')
    return FORMATS[name]


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
    chosen = _format(kind)
    chosen.check(run.config, quantization)
    if ',' in choice:
        raise ConfigError(f'--checkpoint={choice}: one checkpoint can be exported, no ensemble')
    folder = files.check_new(epath.Path(folder))
    trained, origin = restore.load_and_report(run, choice)
    on_host = trained._replace(params=jax.device_get(trained.params))
    with files.new_folder(folder) as unfinished:
        chosen.write(run, on_host, origin, unfinished, quantization)
    return trained


class Check(NamedTuple):
    """Texts on which both programs are compared.

    Attributes:
      texts: sentences to translate, or texts to continue.
      lines: the numbers of their lines in the file.
      references: their translations, for BLEU; none if empty.
      decode: the options of the search.
      left_out: a line about the lines of the file that are not among the texts; empty if all are.
    """

    texts: list[str]
    lines: list[int]
    references: list[str]
    decode: Decode
    left_out: str


def read_check(run: Run, kind: str | None, file: str | None, references: str | None) -> Check | None:
    """Reads the texts of a comparison.

    Returns:
      The texts; None if no file is named.

    Raises:
      ConfigError: the files have no text that fits, or different numbers of lines; a package is missing; or
        models of this task or format cannot be compared.
    """
    config = run.config
    if file is None:
        if references is not None:
            raise ConfigError(f'--reference={references}: needs --check')
        return None
    chosen = _format(kind)
    if not chosen.engine or not {'hypotheses', 'likelihoods'} <= task_of(config).verbs.keys():
        raise ConfigError(
            f'--check={file}: not possible with --format={kind}, train.task={config.train.task}'
        )
    chosen.libraries()
    if references is not None and not has(config, 'pair'):
        raise ConfigError(f'--reference={references}: not with train.task={config.train.task}')
    texts = list(text.lines(epath.Path(file)))
    others = list(text.lines(epath.Path(references))) if references else [''] * len(texts)
    if len(texts) != len(others):
        raise ConfigError(f'--reference={references}: has {len(others)} lines, {file} has {len(texts)}')
    decode = config.decode
    longest = decode.max_source_len
    if not has(config, 'pair'):
        # A text and its continuation must fit into a row.
        decode = dataclasses.replace(decode, extra_len=min(decode.extra_len, config.data.row_len // 2))
        longest = min(longest, config.data.row_len - decode.extra_len)
    filled = [i for i, line in enumerate(texts) if line.strip()]
    lengths = map(len, run.codecs[models.fields(config)[0]].encode_batch([texts[i] for i in filled]))
    # Longer texts are cut here, but not by the other program.
    fitting = [i for i, length in zip(filled, lengths, strict=True) if length <= longest]
    if not fitting:
        raise ConfigError(f'--check={file}: has no line of at most {longest} pieces')
    counts = {'empty': len(texts) - len(filled), f'of more than {longest} pieces': len(filled) - len(fitting)}
    left_out = ', '.join(f'{count} {which}' for which, count in counts.items() if count)
    return Check(
        [texts[i] for i in fitting],
        [i + 1 for i in fitting],
        [others[i] for i in fitting] if references else [],
        decode,
        f'lines left out: {left_out}' if left_out else '',
    )


def compare(trained: Trained, kind: str, folder: epath.PathLike, check: Check) -> Iterator[str]:
    """Yields lines that compare both programs.

    Encoder-decoders search with the beam of their config and score a hypothesis by its log p alone, because
    penalties of its length differ there. Language models continue texts greedily.
    """
    config, sources = dataclasses.replace(trained.config, decode=check.decode), check.texts
    trained, verbs = trained._replace(config=config), task_of(config).verbs
    is_pair = has(config, 'pair')
    other = FORMATS[kind].engine(trained, folder)
    if check.left_out:
        yield check.left_out
    how = {'method': 'beam', 'alpha': 0.0} if is_pair else {'method': 'greedy'}
    texts = [best[0].text for best in verbs['hypotheses'](trained, sources, **how)]
    their_texts = other.likeliest(sources)
    equal = sum(map(str.__eq__, texts, their_texts))
    yield f'{kind} computes in {other.dtype}'
    search = f'beam {config.decode.beam}, alpha 0' if is_pair else 'greedy search'
    yield f'equal outputs of {search}: {equal} of {len(sources)}'
    for line, own, their in zip(check.lines, texts, their_texts, strict=True):
        if own != their:
            yield f'the first that differs, line {line}: here "{own}", there "{their}"'
            break
    if check.references:
        language = config.data.target_language
        scores = [bleu.sacre_bleu(lines, check.references, language) for lines in (texts, their_texts)]
        yield f'sacreBLEU: here {scores[0]:.2f}, there {scores[1]:.2f}'
    pairs = list(zip(sources, texts, strict=True)) if is_pair else [(text,) for text in sources]
    logp = [likelihood.logp for likelihood in verbs['likelihoods'](trained, pairs)]
    theirs = other.log_probabilities(pairs)
    differences = [np.abs(own - one).max() for own, one in zip(logp, theirs, strict=True)]
    what = 'our outputs' if is_pair else 'the texts'
    yield f'largest difference in log p of a piece of {what}: {max(differences):.2e}'
