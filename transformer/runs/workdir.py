"""The work directory: what it holds, whom it belongs to, and what made it."""

import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess

import jax
from etils import epath

from transformer import config as configs
from transformer.config import Config, ConfigError
from transformer.data.tokenizer import Tokenizer

PACKAGES = (
    'jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'tensorflow-datasets', 'ml-collections',
    'numpy', 'sentencepiece', 'sacrebleu',
)  # fmt: skip


# What `claim` writes before config.json; a kill may leave them alone.
_FIRST = ('tokenizer.model', 'data.lock.json', 'environment.json')


def write_text(file: epath.Path, text: str) -> None:
    """Writes a file whole or not at all."""
    write_bytes(file, text.encode())


def write_bytes(file: epath.Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    temporary = file.parent / f'.{file.name}.{os.getpid()}'
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def claim(workdir: epath.Path, config: Config, tokenizer: Tokenizer, lock: dict[str, object]) -> None:
    """Makes the work directory of a config, or checks that it is one.

    Raises:
      ConfigError: it was made by a config or from data that learns something else, or it is no work
        directory at all.
      OSError: it cannot be written.
    """
    if (workdir / 'config.json').exists():
        check_same(workdir, config, lock)
    elif workdir.exists() and any(p.name[0] != '.' and p.name not in _FIRST for p in workdir.iterdir()):
        raise ConfigError(f'{workdir}: not empty and holds no config.json; choose another --workdir')
    workdir.mkdir(parents=True, exist_ok=True)
    write_bytes(workdir / 'tokenizer.model', tokenizer.model)
    write_text(workdir / 'data.lock.json', json.dumps(lock, indent=2, ensure_ascii=False) + '\n')
    write_text(workdir / 'environment.json', json.dumps(environment(), indent=2) + '\n')
    # Last: a folder with a config.json is complete.
    write_text(workdir / 'config.json', configs.to_json(config))


def check_same(workdir: epath.Path, config: Config, lock: dict[str, object]) -> None:
    """Raises ConfigError where a work directory's config or data would learn something else."""
    changed = configs.differences(read_config(workdir), config, free=False)
    if changed:
        shown = ', '.join(f'{key} is {old!r} there and {new!r} now' for key, (old, new) in changed.items())
        raise ConfigError(f'{workdir}: made by a different config: {shown}')
    old = read_lock(workdir)
    for name, digest in lock['checksums'].items():
        if name.endswith('.bin') and old['checksums'].get(name) != digest:
            split = name.partition('.')[0]
            raise ConfigError(f'{workdir}: made from other {split} data; data.lock.json tells which')


def read_lock(workdir: epath.Path) -> dict[str, object]:
    """What the corpus of a work directory was made of."""
    try:
        return json.loads((workdir / 'data.lock.json').read_text())
    except (OSError, ValueError):
        raise ConfigError(f'{workdir}: data.lock.json is missing or damaged') from None


def read_config(workdir: epath.Path) -> Config:
    """The config of a work directory.

    Raises:
      ConfigError: it is none.
    """
    if not (workdir / 'config.json').exists():
        raise ConfigError(f'{workdir}: not a work directory (it holds no config.json)')
    try:
        return configs.from_json((workdir / 'config.json').read_text())
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f'{workdir}: {error}') from None


def read_tokenizer(workdir: epath.Path) -> Tokenizer:
    """The tokenizer of a work directory.

    Raises:
      ConfigError: it is missing or not the one that the lock file names.
    """
    try:
        tokenizer = Tokenizer((workdir / 'tokenizer.model').read_bytes())
    except (OSError, RuntimeError):
        raise ConfigError(f'{workdir}: tokenizer.model is missing or damaged') from None
    if tokenizer.sha256 != read_lock(workdir)['tokenizer_sha256']:
        raise ConfigError(f'{workdir}: tokenizer.model is not the one of data.lock.json')
    return tokenizer


def read_result(workdir: epath.Path) -> dict[str, object]:
    """The contents of result.json; empty where there is none."""
    file = workdir / 'result.json'
    return json.loads(file.read_text()) if file.exists() else {}


def write_result(workdir: epath.Path, result: dict[str, object]) -> None:
    """Writes result.json."""
    write_text(workdir / 'result.json', json.dumps(result, indent=2, ensure_ascii=False) + '\n')


def write_translations(workdir: epath.Path, split: str, checkpoint: str, lines: list[str]) -> None:
    """Writes translations/<split>.<checkpoint>.txt, a translation a line."""
    (workdir / 'translations').mkdir(exist_ok=True)
    text = ''.join(line + '\n' for line in lines)
    write_text(workdir / 'translations' / f'{split}.{checkpoint}.txt', text)


def read_translations(workdir: epath.Path, split: str, checkpoint: str) -> list[str]:
    """The lines that `write_translations` wrote.

    Raises:
      OSError: there are none.
    """
    # As bytes: a carriage return inside a translation ends no line.
    return (workdir / 'translations' / f'{split}.{checkpoint}.txt').read_bytes().decode().split('\n')[:-1]


def environment() -> dict[str, dict[str, object]]:
    """The versions of what computes, and what it runs on."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    device = jax.devices()[0]
    return {
        'versions': {'python': platform.python_version(), 'git': _revision(), **versions},
        'hardware': {
            'platform': device.platform,
            'device': device.device_kind,
            'devices': jax.device_count(),
            'processes': jax.process_count(),
            'cpus': os.cpu_count(),
        },
    }


def _revision() -> str | None:
    """The commit of this code, with a + where files differ from it; None outside a git checkout."""
    root = pathlib.Path(__file__).parent.parent

    def git(*words: str) -> str:
        done = subprocess.run(('git', '-C', str(root), *words), capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git('status', '--porcelain', '--untracked-files=no')
        return git('rev-parse', 'HEAD') + ('+' if changed else '')
    except (OSError, subprocess.CalledProcessError):
        return None
