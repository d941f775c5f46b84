"""Sets up a run's process (compilation cache, precision, signals), and records versions and hardware."""

import contextlib
import importlib.metadata
import itertools
import os
import pathlib
import platform
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator

import jax
from absl import logging
from etils import epath
from jax.experimental.compilation_cache import compilation_cache

from transformer import parallel
from transformer.config import Config, ConfigError
from transformer.config.extras import install

DEV = pathlib.Path('/dev')
# Packages whose versions can change the numbers.
PACKAGES = (
    'jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'tensorflow-datasets', 'ml-collections',
    'numpy', 'sentencepiece', 'sacrebleu', 'rouge-score',
)  # fmt: skip


def start(folder: str, *, distributed: bool) -> epath.Path:
    """Joins the run's other processes if it is distributed, and turns on the compilation cache.

    GPUs of several hosts get no cache but one that JAX_COMPILATION_CACHE_DIR names.

    Returns:
      The work directory as a path, local or remote.

    Raises:
      ConfigError: JAX cannot start its devices, or the processes do not fit together.
    """
    if distributed:
        parallel.join_processes()
    # The hosts of a run compile a GPU's program together. One that has it in a cache of its own would leave
    # the others waiting.
    if parallel.platform() != 'gpu' or parallel.processes_here() == parallel.process()[1]:
        keep_programs()
    _warn_of_idle_gpus(distributed)
    return epath.Path(folder)


def _warn_of_idle_gpus(distributed: bool) -> None:
    """Prints a line if GPUs stay idle on the first process's host. All processes must call this."""
    on_gpus = parallel.platform() == 'gpu'
    used = parallel.processes_here() * parallel.local_device_count() if on_gpus else 0
    # JAX_PLATFORMS=cpu is the user's choice.
    chosen = jax.config.jax_platforms and not on_gpus
    if parallel.is_primary() and not chosen and (line := idle_gpus(used, visible_gpus(), distributed)):
        logging.warning('%s', line)


def idle_gpus(used: int, visible: int, distributed: bool) -> str | None:
    """Returns a warning of the GPUs that a run sees on a host and does not use, or None.

    Under SLURM and Open MPI, JAX gives each process one of the GPUs that it sees. A run that is not
    distributed takes all GPUs, except those that its user or the system keeps from it.
    """
    if visible and not used:
        return f'0 of {visible} GPUs are used: this JAX computes on CPUs only; {install("cuda")}'
    if distributed and used < visible:
        return (
            f'{used} of {visible} GPUs of this host are used, one by each process; start as many processes '
            f'as GPUs (srun --ntasks-per-node={visible}), or choose GPUs with CUDA_VISIBLE_DEVICES'
        )
    return None


def visible_gpus() -> int:
    """Counts this host's NVIDIA GPUs, at most as many as CUDA_VISIBLE_DEVICES names if it is set."""
    present = len(list(DEV.glob('nvidia[0-9]*')))
    named = os.environ.get('CUDA_VISIBLE_DEVICES')
    if named is None:
        return present
    # CUDA ignores the first name that is not a GPU's, such as -1, and all names after it.
    names = itertools.takewhile(re.compile(r' *(\d|GPU-|MIG-)').match, named.split(','))
    return min(present, len(list(names)))


def keep_programs() -> None:
    """Turns on the compilation cache, unless the caller has one already."""
    if jax.config.jax_compilation_cache_dir is None:
        try:
            folder = cache_folder() / 'programs'
            folder.mkdir(parents=True, exist_ok=True)
        except (ConfigError, OSError) as error:
            logging.warning('compiled programs are not kept: %s', error)
            return
        jax.config.update('jax_compilation_cache_dir', str(folder))
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
        # JAX reads the setting at its first compilation, which can be before this call.
        compilation_cache.reset_cache()


def cache_folder() -> epath.Path:
    """Returns the folder for corpora and programs: $TRANSFORMER_CACHE, or one in the user's cache.

    Raises:
      ConfigError: the user has no home folder.
    """
    chosen = os.environ.get('TRANSFORMER_CACHE')
    folder = os.path.expanduser(chosen or os.environ.get('XDG_CACHE_HOME') or '~/.cache')
    if folder.startswith('~'):
        raise ConfigError(f'{folder}: no such home folder; set TRANSFORMER_CACHE to a full path')
    return epath.Path(folder) if chosen else epath.Path(folder) / 'transformer'


def precision(config: Config) -> contextlib.AbstractContextManager:
    """Returns a context in which matrix products use the precision `train.matmul_precision`."""
    return jax.default_matmul_precision(config.train.matmul_precision)


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], int | None]]:
    """Records SIGTERM, SIGHUP and SIGINT instead of ending the process, so that a training can save first.

    A second SIGINT ends the process as usual. A second SIGTERM has no effect, because schedulers repeat it.
    SIGKILL ends the process at once. Threads other than the main one record no signal.

    Yields:
      A function that returns the number of the first signal received, or None.
    """
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    # Python could not put back the handler in C of a program around it, for which it has None.
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not None}
    if before.get(signal.SIGHUP) == signal.SIG_IGN:  # nohup: the training outlives its terminal
        del before[signal.SIGHUP]
    if threading.current_thread() is not threading.main_thread():  # Python allows no handlers there
        before.clear()

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
    """Returns the versions of Python, this code and its packages, and the hardware."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # an extra that is not installed
            versions[name] = importlib.metadata.version(name)
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
    """Counts the CPU cores that this process can use, because parallel runs can share the machine's cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()


def _revision() -> str | None:
    """Returns this code's commit, with a + if tracked files differ, or None outside a git checkout."""
    folder = pathlib.Path(__file__).parent

    def git(*words: str) -> str:
        # Without the index's lock, which a kill would leave, and which would stop a commit at the same time.
        call = ('git', '--no-optional-locks', '-C', str(folder), *words)
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Fails if the code is installed inside another project's checkout.
        git('ls-files', '--error-unmatch', __file__)
        changed = git('status', '--porcelain', '--untracked-files=no')
        return git('rev-parse', 'HEAD') + ('+' if changed else '')
    except (OSError, subprocess.CalledProcessError):
        return None
