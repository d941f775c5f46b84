"""What each command of run.py does, in order."""

import contextlib
import dataclasses
import functools
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import jax
from absl import logging
from etils import epath

from transformer import accounting, evaluate, parallel
from transformer import config as configs
from transformer import train as training
from transformer.config import Config, ConfigError
from transformer.data import corpus, lock
from transformer.data.batches import Batches
from transformer.nn import models
from transformer.parallel import is_primary as is_primary
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.restore import average as run_average
from transformer.tasks.translation.translate import Translator
from transformer.train import NonFiniteError as NonFiniteError
from transformer.train import Stopped as Stopped

# Lines that `translate` reads before it writes the first.
CHUNK = 10_000


def start(folder: str, *, distributed: bool) -> epath.Path:
    """Joins the other processes of the run, if any, and lets compiled programs be kept; the folder."""
    if distributed:
        parallel.join_processes()
    jax.config.update('jax_compilation_cache_dir', str(cache_folder() / 'programs'))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
    return epath.Path(folder)


def cache_folder() -> epath.Path:
    """Where corpora and compiled programs are kept: $TRANSFORMER_CACHE, or the user's cache."""
    chosen = os.environ.get('TRANSFORMER_CACHE')
    if chosen:
        return epath.Path(chosen)
    home = os.environ.get('XDG_CACHE_HOME') or epath.Path('~/.cache').expanduser()
    return epath.Path(home) / 'transformer'


def _prepare(config: Config) -> corpus.Prepared:
    """The corpus of a config; the first process shows how far what is missing is made."""
    with metrics.Stages(quiet=not parallel.is_primary()) as stages:
        return corpus.prepare(config, cache_folder() / 'corpora', progress=stages)


def run_preparation(config: Config, lock_file: str) -> list[str]:
    """Makes the corpus that training reads, its dataset downloaded before; what was made, in lines.

    Args:
      lock_file: what is expected of the corpus, if there is such a file.

    Raises:
      ConfigError: bad data, or a dataset that cannot be had.
    """
    expected = lock.expected(lock_file)
    sources.prepare(config.data)
    prepared = _prepare(config)
    report = [*lock.describe(prepared.lock), f'lock file: {prepared.folder / corpus.LOCK}']
    if expected is not None:
        report += lock.differences(prepared.lock, expected, lock_file) or [f'all as {lock_file} says']
    return report


def run_training(config: Config, folder: epath.Path, lock_file: str) -> dict[str, object]:
    """Trains, or resumes, and evaluates; the contents of result.json.

    Args:
      lock_file: as of `run_preparation`; differences are warnings.

    Raises:
      ConfigError: a mistake of the user's; nothing was changed.
      NonFiniteError, Stopped: as `train.train`.
    """
    configs.check_devices(config, parallel.device_count())
    expected = lock.expected(lock_file)
    prepared = _prepare(config)
    if expected is not None and parallel.is_primary():
        for difference in lock.differences(prepared.lock, expected, lock_file):
            logging.warning('%s', difference)
    batches = {
        split: Batches(
            prepared.splits[split],
            config.data,
            config.train.microbatches,
            config.train.seed,
            split == 'train',
        )
        for split in ('train', 'dev')
    }
    if parallel.is_primary():
        workdir.claim(folder, config, prepared.tokenizer, prepared.lock)
    parallel.wait_for_all()
    averaging = (config.train.average_last, config.train.average_every)
    checkpoints = Checkpoints(folder / 'checkpoints', config.train.keep, averaging)
    try:
        with _precision(config), _signals() as stop_signal:
            state, done = training.train(
                config,
                batches['train'],
                checkpoints,
                folder if parallel.is_primary() else None,
                _on_eval(config, prepared, batches['dev']),
                stop_signal,
            )
    finally:
        checkpoints.close()
    if parallel.is_primary():
        _record(config, folder, state.params, done)
    parallel.wait_for_all()
    splits = ['dev', 'test', *(['pronoun'] if 'pronoun' in prepared.splits else [])]
    return run_evaluation(folder, splits, 'average' if config.train.average_last else 'best')


def _record(config: Config, folder: epath.Path, params: models.Params, done: training.Progress) -> None:
    """Averages checkpoints where the config says so, and writes the result without new scores."""
    if config.train.average_last:
        run_average(folder)
    digest = checkpoint.fingerprint(jax.device_get(params))
    # Scores of these parameters stay until the new ones are there.
    old = workdir.read_result(folder)
    result = {
        'params': accounting.parameters(params),
        'params_sha256': digest,
        'steps': done.step,
        'tokens': done.tokens,
        'seconds': round(done.seconds, 1),
        'config': dataclasses.asdict(config),
        **workdir.environment(),
        'scores': old.get('scores', {}) if old.get('params_sha256') == digest else {},
    }
    workdir.write_result(folder, result)


def _on_eval(config: Config, prepared: corpus.Prepared, dev: Batches) -> dict[int, list[Callable]]:
    def dev_likelihood(params: models.Params) -> dict[str, float]:
        scores = evaluate.likelihood(config, params, dev)
        return {f'dev_{name}': value for name, value in scores.items()}

    def dev_bleu(params: models.Params) -> dict[str, float]:
        sources, references = prepared.texts('dev')
        translations = Translator(config, params, prepared.tokenizer).translate(sources)
        return {'dev_bleu': bleu.sacre_bleu(translations, references)}

    due = {config.train.eval_every: [dev_likelihood]}
    if config.train.bleu_every:
        due.setdefault(config.train.bleu_every, []).append(dev_bleu)
    return due


def run_evaluation(
    folder: epath.Path,
    splits: Iterable[str],
    choice: str = 'best',
    changes: dict[str, object] | None = None,
) -> dict[str, object]:
    """Evaluates a checkpoint on splits; saves translations and scores; the contents of result.json.

    Args:
      choice: best, latest, average or a step.
      changes: options of decoding, and data.dir, that differ from the work directory's config.

    Raises:
      ConfigError: a mistake of the user's; nothing was changed.
    """
    config = _changed(workdir.read_config(folder), changes or {})
    configs.check_devices(config, parallel.device_count())
    prepared = _prepare(config)
    workdir.check_same(folder, config, prepared.lock)
    for split in splits:
        if split not in prepared.splits:
            raise ConfigError(f'--split={split}: choose among {", ".join(prepared.splits)}')
    restored = restore.restore_params(config, folder, choice)
    result = workdir.read_result(folder)
    with _precision(config):
        for split in splits:
            scores, translations = _score(config, restored.params, prepared, split)
            result.setdefault('scores', {})[split] = {
                'checkpoint': choice,
                'steps': restored.steps,
                'tokens': restored.tokens,
                **scores,
            }
            if parallel.is_primary():
                workdir.write_translations(folder, split, choice, translations)
                workdir.write_result(folder, result)
    return result


def _score(
    config: Config, params: models.Params, prepared: corpus.Prepared, split: str
) -> tuple[dict[str, object], list[str]]:
    """Scores and translations of a split; greedy ones of the pronoun set, whatever the config says."""
    pairs = Batches(prepared.splits[split], config.data, config.train.microbatches, config.train.seed, False)
    sources, references = prepared.texts(split)
    decode = dataclasses.asdict(config.decode) | ({'method': 'greedy'} if split == 'pronoun' else {})
    translator = Translator(config, params, prepared.tokenizer, functools.partial(_warn_of_cut, 0))
    translations = translator.translate(sources, **decode)
    scores = {
        'decode': decode,
        **evaluate.likelihood(config, params, pairs),
        'bleu': bleu.score_all(translations, references, _languages(config)),
    }
    if split == 'pronoun':
        scores['pronoun_accuracy'] = evaluate.pronoun_accuracy(translations)
    return scores, translations


def _languages(config: Config) -> tuple[str, str]:
    return config.data.source_language, config.data.target_language


def run_scoring(
    hypotheses: str, references: str, languages: str, *, tokenized: bool
) -> dict[str, dict[str, object]]:
    """The scores of a file of translations against a file of references, as `bleu.score_all`.

    Args:
      languages: as en-de.

    Raises:
      ConfigError: a file is missing, no UTF-8 or empty, or their lines are not equally many.
    """
    pair = tuple(languages.split('-'))
    if len(pair) != 2 or not all(pair):
        raise ConfigError(f'--languages={languages}: expected source and target, as en-de')
    sides = []
    for flag, file in (('hypotheses', hypotheses), ('references', references)):
        if not file:
            raise ConfigError(f'--{flag}: missing; score needs the file')
        sides.append(list(sources.lines(epath.Path(file))))
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        raise ConfigError(f'{hypotheses} has {len(sides[0])} lines, {references} has {len(sides[1])}')
    if not tokenized and all(bleu.looks_tokenized(side) for side in sides):
        logging.warning('both files look tokenized; then say so with --tokenized')
    return bleu.score_all(*sides, pair, tokenized=tokenized)


def run_diagnosis(
    folder: epath.Path, split: str, changes: dict[str, object] | None = None
) -> list[diagnose.Finding]:
    """What `diagnose.findings` finds in the last evaluation of a split; arguments as of `run_evaluation`.

    Raises:
      ConfigError: a mistake of the user's, or the split was not evaluated.
    """
    config = _changed(workdir.read_config(folder), changes or {})
    result = workdir.read_result(folder)
    if split not in result.get('scores', {}):
        raise ConfigError(f'--split={split}: {folder} has no scores of it; run evaluate first')
    scores = result['scores'][split]
    prepared = _prepare(config)
    workdir.check_same(folder, config, prepared.lock)
    translations = workdir.read_translations(folder, split, scores['checkpoint'])
    texts = (*prepared.texts(split), translations)
    return diagnose.findings(diagnose.Evidence(config, split, scores, *texts, prepared.tokenizer))


def references(folder: epath.Path, split: str) -> list[str]:
    """The references of a split of a work directory.

    Raises:
      ConfigError: as of `run_preparation`.
    """
    return _prepare(workdir.read_config(folder)).texts(split)[1]


def first_sources(folder: epath.Path, count: int) -> list[str]:
    """The first sentences of the test split of a work directory."""
    prepared = _prepare(workdir.read_config(folder))
    return prepared.texts('test')[0][:count]


def load(
    folder: epath.PathLike,
    choice: str = 'best',
    changes: dict[str, object] | None = None,
    on_cut: Callable[[int, int], None] = lambda index, length: None,
) -> Translator:
    """The translator of a work directory; arguments as of `run_evaluation` and `Translator`.

    Raises:
      ConfigError: it is no work directory, or holds no such checkpoint.
    """
    folder = epath.Path(folder)
    config = _changed(workdir.read_config(folder), changes or {})
    restored = restore.restore_params(config, folder, choice)
    return Translator(config, restored.params, workdir.read_tokenizer(folder), on_cut)


def run_translation(
    folder: epath.Path,
    lines: BinaryIO,
    output: BinaryIO,
    *,
    choice: str = 'best',
    changes: dict[str, object] | None = None,
    best: int = 1,
    scores: bool = False,
) -> None:
    """Writes the translation of every line: exactly as many lines, in order.

    With `best` above 1 a line has that many, each behind the line's number, from 0, and a tab. With
    `scores` a tab and the score follow.

    Raises:
      ConfigError: a mistake of the user's.
    """
    translator = load(folder, choice, changes)
    first = 0
    for chunk in _chunks(lines):
        translator.on_cut = functools.partial(_warn_of_cut, first)
        for i, found in enumerate(translator.hypotheses(chunk, best=best), start=first):
            for hypothesis in found:
                number = f'{i}\t' if best > 1 else ''
                score = f'\t{hypothesis.score:.4f}' if scores else ''
                output.write(f'{number}{hypothesis.text}{score}\n'.encode())
        output.flush()
        first += len(chunk)


def _chunks(lines: BinaryIO) -> Iterator[list[str]]:
    """Lines as text; what is no UTF-8 becomes U+FFFD. Only a newline ends a line."""
    chunk = []
    for line in lines:
        chunk.append(line.removesuffix(b'\n').removesuffix(b'\r').decode('utf-8', 'replace'))
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _warn_of_cut(first: int, index: int, length: int) -> None:
    logging.warning('line %d: cut, its %d pieces exceed decode.max_source_len', first + index + 1, length)


def _changed(config: Config, changes: dict[str, object]) -> Config:
    """The config with changes of what may differ from training."""
    trained = configs.flatten(config)
    for key, value in changes.items():
        if not configs.OPTIONS[key].metadata['free'] and trained[key] != value:
            raise ConfigError(f'{key}={value!r}: the model was trained with {trained[key]!r}')
    return configs.replace(config, changes)


def _precision(config: Config) -> contextlib.AbstractContextManager:
    return jax.default_matmul_precision(config.train.matmul_precision)


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], int | None]]:
    """Notes the first SIGTERM or SIGINT, so that the training can save; a second SIGINT acts as ever.

    A second SIGTERM does not: schedulers repeat theirs, and who cannot wait has SIGKILL.
    """
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def note(number, frame):
        del frame
        received.append(number)
        if number == signal.SIGINT:
            signal.signal(number, before[number])

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: received[0] if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
