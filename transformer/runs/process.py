"""What a process sets up around a run, and what it runs on."""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import signal
import subprocess
from collections.abc import Callable, Iterator

import jax
from etils import epath
from jax.experimental.compilation_cache import compilation_cache

from transformer import parallel
from transformer.config import Config

# Packages whose versions may change the numbers.
PACKAGES = (
    'jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'tensorflow-datasets', 'ml-collections',
    'numpy', 'sentencepiece', 'sacrebleu',
)  # fmt: skip


def start(folder: str, *, distributed: bool) -> epath.Path:
    """Joins the other processes of the run, if any, and turns on the compilation cache.

    Args:
      folder: the work directory.
      distributed: whether the run has other processes.

    Returns:
      The work directory as a path, local or remote.

    Raises:
      ConfigError: the other processes cannot be joined.
    """
    if distributed:
        parallel.join_processes()
    keep_programs()
    return epath.Path(folder)


def keep_programs() -> None:
    """Turns on the compilation cache, unless whoever calls from Python has turned on one."""
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update('jax_compilation_cache_dir', str(cache_folder() / 'programs'))
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
        # JAX decides at its first compilation, which may be over, whether there is a cache.
        compilation_cache.reset_cache()


def cache_folder() -> epath.Path:
    """Where corpora and compiled programs are kept: $TRANSFORMER_CACHE, or the user's cache."""
    chosen = os.environ.get('TRANSFORMER_CACHE')
    if chosen:
        return epath.Path(chosen)
    home = os.environ.get('XDG_CACHE_HOME') or epath.Path('~/.cache').expanduser()
    return epath.Path(home) / 'transformer'


def precision(config: Config) -> contextlib.AbstractContextManager:
    """Within this context, products of matrices have the precision of `train.matmul_precision`."""
    return jax.default_matmul_precision(config.train.matmul_precision)


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], int | None]]:
    """Within this context, SIGTERM and SIGINT are noted instead of ending the process.

    The training can then save first. A second SIGINT has its usual effect. A second SIGTERM has none:
    schedulers repeat theirs, and whoever cannot wait has SIGKILL.

    Yields:
      A function that returns the number of the first signal received, or None.
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


def environment() -> dict[str, dict[str, object]]:
    """The versions of Python, this code and its packages, and the hardware."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    device = jax.devices()[0]
    return {
        'versions': {'python': platform.python_version(), 'git': _revision(), **versions},
        'hardware': {
            'platform': device.platform,
            'device': device.device_kind,
            'devices': jax.device_count(),
            'processes': jax.process_count(),
            'cpus': _cores(),
        },
    }


def _cores() -> int | None:
    """The CPU cores that this process may use, which are not all where runs share them out."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()


def _revision() -> str | None:
    """The commit of this code, followed by + if files were changed since; None outside a git checkout."""
    here = pathlib.Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(('git', '-C', str(here), *words), capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        # Installed inside of another project's checkout, it is not that project's.
        git('ls-files', '--error-unmatch', __file__)
        changed = git('status', '--porcelain', '--untracked-files=no')
        return git('rev-parse', 'HEAD') + ('+' if changed else '')
    except (OSError, subprocess.CalledProcessError):
        return None
