"""The files of a work directory: the config and data that it belongs to, and what came of them."""

import hashlib
import json
import re
from collections.abc import Callable

from etils import epath

from transformer import config as configs
from transformer import files
from transformer.config import Config, ConfigError
from transformer.data import cache as corpus_cache
from transformer.data import text_input
from transformer.data import tokenizer as tokenizers
from transformer.data.dataset import Dataset
from transformer.data.tokenizer import AnyTokenizer
from transformer.runs import owner, process

# What `claim` writes before config.json; if it is killed, these files may be there without one.
_FIRST = ('tokenizer.model', 'data.lock.json', 'environment.json', 'init_from.json')
# The folder that holds the text and pieces of dev and test.
_DATA = 'data'


def claim(
    workdir: epath.Path,
    config: Config,
    tokenizer: AnyTokenizer,
    lock: dict[str, object],
    init_from: dict[str, object] | None = None,
) -> None:
    """Makes the work directory of a config; one that exists must be of the same config, data and start.

    Args:
      init_from: the other run whose parameters the training starts from, as `warm.Start.record`.

    Raises:
      ConfigError: its config, data or start would learn something else, or the folder holds other files.
      OSError: it cannot be written.
    """
    check_claim(workdir, config, lock, init_from)
    workdir.mkdir(parents=True, exist_ok=True)
    files.write_bytes(workdir / 'tokenizer.model', tokenizer.model)
    files.write_json(workdir / 'data.lock.json', lock)
    files.write_json(workdir / 'environment.json', process.environment())
    if init_from:
        files.write_json(workdir / 'init_from.json', init_from)
    else:
        (workdir / 'init_from.json').unlink(missing_ok=True)
    # Last, so that a folder with a config.json is complete.
    files.write_text(workdir / 'config.json', configs.to_json(config))


def check_claim(
    workdir: epath.Path, config: Config, lock: dict[str, object], init_from: dict[str, object] | None
) -> None:
    """Raises ConfigError where `claim` would; changes nothing."""
    if (workdir / 'config.json').exists():
        check_same(workdir, config, lock)
        check_start(workdir, init_from)
    elif workdir.exists() and any(p.name[0] != '.' and p.name not in _FIRST for p in workdir.iterdir()):
        raise ConfigError(f'{workdir}: not empty and holds no config.json; choose another --workdir')


def check_same(workdir: epath.Path, config: Config, lock: dict[str, object]) -> None:
    """Checks that a work directory's config and data learn the same as these.

    Raises:
      ConfigError: an option that changes what is learned differs, or the arrays of a split do.
    """
    changed = configs.differences(read_config(workdir), config, free=False)
    if changed:
        shown = ', '.join(f'{key} is {old!r} there and {new!r} now' for key, (old, new) in changed.items())
        raise ConfigError(f'{workdir}: made by a different config: {shown}; choose another --workdir')
    old = read_lock(workdir)
    for name, digest in lock['checksums'].items():
        if name.endswith('.bin') and old['checksums'].get(name) != digest:
            split = name.partition('.')[0]
            raise ConfigError(
                f'{workdir}: made from other {split} data, which its data.lock.json names; choose another '
                '--workdir'
            )


def check_start(workdir: epath.Path, init_from: dict[str, object] | None) -> None:
    """Checks that the training of a work directory started from these parameters.

    Raises:
      ConfigError: it started from others.
    """
    old = read_start(workdir)
    if (old and old['params_sha256']) != (init_from and init_from['params_sha256']):
        there, now = (
            f'{start["workdir"]} ({start["params_sha256"][:8]})'
            if start
            else 'parameters drawn by train.seed'
            for start in (old, init_from)
        )
        raise ConfigError(f'{workdir}: started from {there}, not from {now}; choose another --workdir')


def read_start(workdir: epath.Path) -> dict[str, object] | None:
    """The other run whose parameters a training started from; None where they were drawn by the seed.

    Raises:
      ConfigError: init_from.json is damaged.
    """
    file = workdir / 'init_from.json'
    try:
        return json.loads(file.read_text()) if file.exists() else None
    except ValueError:
        raise ConfigError(f'{workdir}: init_from.json is damaged') from None


def read_lock(workdir: epath.Path) -> dict[str, object]:
    """What the corpus of a work directory was made of.

    Raises:
      ConfigError: data.lock.json is missing or damaged.
    """
    try:
        return json.loads((workdir / 'data.lock.json').read_text())
    except (OSError, ValueError):
        raise ConfigError(f'{workdir}: data.lock.json is missing or damaged') from None


def read_config(workdir: epath.Path) -> Config:
    """The config of a work directory.

    Raises:
      ConfigError: the folder is not a work directory, or its config is damaged.
    """
    if not (workdir / 'config.json').exists():
        raise ConfigError(f'{workdir}: not a work directory (it holds no config.json)')
    try:
        return configs.from_json((workdir / 'config.json').read_text())
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f'{workdir}: {error}') from None


def read_tokenizer(workdir: epath.Path) -> AnyTokenizer:
    """The tokenizer of a work directory.

    Raises:
      ConfigError: it is missing, damaged, or not the one that data.lock.json names.
    """
    try:
        tokenizer = tokenizers.read((workdir / 'tokenizer.model').read_bytes())
    except (OSError, RuntimeError):
        raise ConfigError(f'{workdir}: tokenizer.model is missing or damaged') from None
    if tokenizer.sha256 != read_lock(workdir)['tokenizer_sha256']:
        raise ConfigError(f'{workdir}: tokenizer.model is not the one of data.lock.json')
    return tokenizer


def given_tokenizer(workdir: epath.Path) -> AnyTokenizer | None:
    """The tokenizer of a work directory that was given to its corpus, not learned from it."""
    return read_tokenizer(workdir) if corpus_cache.GIVEN in read_lock(workdir) else None


def keep_data(workdir: epath.Path, dataset: Dataset) -> None:
    """Copies what an evaluation reads of the data: every split but train."""
    text_input.keep(workdir / _DATA, dataset)


def read_data(workdir: epath.Path) -> Dataset | None:
    """The work directory's own copy of every split but train; None where it has none or it is damaged.

    Raises:
      ConfigError: as `read_tokenizer`.
    """
    return text_input.kept(workdir / _DATA, read_lock(workdir), read_tokenizer(workdir))


def read_result(workdir: epath.Path) -> dict[str, object]:
    """The contents of result.json; empty if there is none yet.

    Raises:
      ConfigError: result.json is damaged.
    """
    file = workdir / 'result.json'
    try:
        return json.loads(file.read_text()) if file.exists() else {}
    except ValueError:
        raise ConfigError(f'{workdir}: result.json is damaged') from None


def update_result(
    workdir: epath.Path, change: Callable[[dict[str, object]], dict[str, object]]
) -> dict[str, object]:
    """Replaces result.json by `change` of its contents, which it returns.

    Processes do so one after the other, so that none loses what another one adds.
    """
    with owner.alone(workdir / '.result.lock'):
        result = change(read_result(workdir))
        files.write_json(workdir / 'result.json', result)
    return result


def evaluation_name(workdir: epath.Path, config: Config, of: str, entry: dict[str, object]) -> str:
    """The name of an evaluation in result.json and in translations/: what was scored, and how.

    That is the split or file, the checkpoint, and every option in which it differs from how the training
    itself scores.

    Args:
      config: that of the evaluation.
      of: a split, or the name of a file.
      entry: what result.json is to say of it.
    """
    result = read_result(workdir)
    trained = configs.from_json(json.dumps(result['config'])) if 'config' in result else read_config(workdir)
    own = result.get('scores', {}).get(of, {})
    usual = vars(trained.decode) | own.get('decode', {}) | {'stride': trained.data.stride}
    name = _named(of, config, entry, usual)
    if name == f'{of}.{own.get("checkpoint")}':
        # The lines of the training's own evaluation stay.
        name = f'{name}.evaluated'
    before = result.get('evaluations', {}).get(name, entry)
    alike = all(before.get(key) == entry.get(key) for key in ('decode', 'context'))
    # One made when the training scored in another way stays too.
    return name if alike else _named(of, config, entry, {})


def _named(of: str, config: Config, entry: dict[str, object], usual: dict[str, object]) -> str:
    """A name that shows the options that are not the usual ones."""
    options = entry['decode'] | {'stride': config.data.stride}
    changed = [f'{key}={value}' for key, value in options.items() if value != usual.get(key)]
    name = re.sub(r'[^\w.=+-]', '_', '.'.join([of[:80], entry['checkpoint'], *changed]))
    # It names a file, and an ensemble's checkpoints name folders.
    return name if len(name) <= 180 else f'{name[:160]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}'


def write_evaluation(workdir: epath.Path, name: str, evaluation: dict[str, object], lines: list[str]) -> None:
    """Records an evaluation after the training: its scores in result.json, its lines in translations/.

    What the training scored stays; an earlier evaluation of the same name is replaced.
    """
    write_lines(workdir, name, lines)

    def added(result: dict[str, object]) -> dict[str, object]:
        # As the last one, also where it was there before.
        others = {key: old for key, old in result.get('evaluations', {}).items() if key != name}
        return result | {'evaluations': {**others, name: evaluation}}

    update_result(workdir, added)


def write_lines(workdir: epath.Path, name: str, lines: list[str]) -> None:
    """Writes a model's output, such as translations, to translations/<name>.txt.

    Args:
      name: of an evaluation; `<split>.<checkpoint>` for the training's own.
      lines: without newlines.
    """
    (workdir / 'translations').mkdir(exist_ok=True)
    files.write_text(_lines_file(workdir, name), ''.join(line + '\n' for line in lines))


def read_lines(workdir: epath.Path, name: str) -> list[str]:
    """The lines that `write_lines` wrote.

    Raises:
      OSError: there are none.
    """
    # As bytes, because a carriage return inside a line does not end it.
    return _lines_file(workdir, name).read_bytes().decode().split('\n')[:-1]


def _lines_file(workdir: epath.Path, name: str) -> epath.Path:
    return workdir / 'translations' / f'{name}.txt'
