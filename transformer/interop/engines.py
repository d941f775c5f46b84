"""Programs that search in place of ours, each with its own copy of a model in the work directory."""

import functools
import sys
from collections.abc import Callable, Mapping

import jax
from absl import logging
from etils import epath

from transformer import config as configs
from transformer import files, locks, parallel
from transformer.config import ConfigError
from transformer.data import codec
from transformer.interop.ctranslate2 import engine as ctranslate2
from transformer.interop.ctranslate2 import writing
from transformer.runs import restore, workdir
from transformer.runs.hashes import fingerprint, folder_sha256
from transformer.runs.restore import Trained
from transformer.runs.workdir import Run

OURS, CTRANSLATE2 = ENGINES = ('jax', 'ctranslate2')
FORMAT = 1  # the version of the code that writes the copies
RECORD = 'made_of.json'  # in the folder of a copy


def check(
    run: Run, engine: str, quantization: str | None, choice: str, changes: Mapping[str, object]
) -> None:
    """Raises ConfigError, which names the option or flag, if an engine cannot search with a model.

    Args:
      engine: a name in `ENGINES`.
      quantization: the type of the kernels, if it is not float32.
      choice: a checkpoint, as for `restore.load`.
      changes: changes of the work directory's config.
    """
    if engine == OURS:
        if quantization is not None:
            raise ConfigError(f'--quantization={quantization}: needs --engine={CTRANSLATE2}')
        return
    ctranslate2.check(restore.changed(run.config, changes), quantization)
    if ',' in choice:
        raise ConfigError(f'--checkpoint={choice}: --engine={engine} searches with one model, no ensemble')
    if '://' in str(run.folder):
        raise ConfigError(f'--workdir={run.folder}: --engine={engine} needs a local folder')


def load(
    verb: Callable,
    run: Run,
    engine: str,
    quantization: str | None,
    choice: str,
    changes: Mapping[str, object],
) -> Callable:
    """Loads a model into an engine and names both on standard error. Other arguments are as for `check`.

    Args:
      verb: the verb of the model's task that our own engine calls. Other engines call `hypotheses`.

    Returns:
      The verb for this model, called as `(texts, first=, on_done=, **flags)`.
    """
    if engine == OURS:
        return functools.partial(verb, restore.load_and_report(run, choice, changes)[0])
    folder = exported(run, choice, quantization)
    trained = Trained(restore.changed(run.config, changes), None, run.codecs)
    translator = ctranslate2.Translator(trained, folder)
    if parallel.is_primary():
        origin = restore.origin(run, choice)
        print(f'{run.folder}: {origin}, in CTranslate2 with {translator.dtype}', file=sys.stderr)
    return translator.hypotheses


def exported(run: Run, choice: str, quantization: str | None) -> epath.Path:
    """Returns the folder of a checkpoint's copy for CTranslate2, written anew if it is missing or damaged.

    Raises:
      OSError: it must be written, and the work directory is not writable.
    """
    params = restore.params_sha256(run, choice)
    model = {key: value for key, value in configs.flatten(run.config).items() if key.startswith('model.')}
    made_of = {
        'format': FORMAT,
        'params_sha256': params,
        'model_sha256': files.json_sha256(model),
        'tokenizer_sha256': codec.sha256(run.codecs),
        'quantization': quantization,
    }
    folder = run.folder / CTRANSLATE2 / f'{params[:16]}-{quantization or "float32"}'
    if _is_intact(folder, made_of):
        return folder
    workdir.check_writable(run.folder)
    folder.parent.mkdir(exist_ok=True)
    with locks.exclusive(folder.parent):
        # Another process can have written it meanwhile.
        if _is_intact(folder, made_of):
            return folder
        if folder.exists():
            logging.warning('%s: damaged, or made by another version; written anew', folder)
            folder.rmtree()
        trained, _ = restore.load(run, choice)
        with files.new_folder(folder) as unfinished:
            params = jax.device_get(trained.params)
            if fingerprint(params) != made_of['params_sha256']:
                raise ConfigError(
                    f'--checkpoint={choice}: another checkpoint was saved meanwhile; start again'
                )
            writing.write(trained.config, params, trained.codecs, unfinished, quantization)
            files.write_json(unfinished / RECORD, made_of | {'files': folder_sha256(unfinished)})
    return folder


def _is_intact(folder: epath.Path, made_of: Mapping[str, object]) -> bool:
    """Returns whether a folder's files match its record, and the record matches `made_of`."""
    try:
        record = files.read_json(folder / RECORD)
    except (OSError, ConfigError):
        return False
    there = {name: sha256 for name, sha256 in folder_sha256(folder).items() if name != RECORD}
    return record == {**made_of, 'files': there}
