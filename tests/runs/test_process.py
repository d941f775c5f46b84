"""A run's process: signals, caches, precision, versions and hardware."""

import concurrent.futures
import io
import os
import pathlib
import platform
import signal
import subprocess
import sys

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from transformer import config as configs
from transformer import parallel
from transformer.cli import main
from transformer.config import ConfigError
from transformer.runs import process


@pytest.fixture
def handlers():
    """Yields the handlers of signals before the test, and restores them after it."""
    numbers = signal.SIGTERM, signal.SIGHUP, signal.SIGINT
    before = {number: signal.getsignal(number) for number in numbers}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signals_are_noted_and_handlers_put_back(handlers):
    with process.stop_signals() as received:
        assert received() is None
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert received() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)
        assert received() == signal.SIGTERM
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_handler_in_c_stays(handlers, monkeypatch):
    """Python does not know a handler that another program installed before it began."""
    monkeypatch.setattr(signal, 'getsignal', dict.fromkeys(handlers, None).get)
    with process.stop_signals() as received:
        pass
    monkeypatch.undo()
    assert received() is None
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_second_interrupt_has_its_usual_effect(handlers):
    with process.stop_signals() as received:
        os.kill(os.getpid(), signal.SIGINT)
        assert received() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_a_closed_terminal_stops_a_training_unless_nohup_started_it(handlers):
    with process.stop_signals() as received:
        os.kill(os.getpid(), signal.SIGHUP)
        assert received() == signal.SIGHUP
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with process.stop_signals() as received:
        os.kill(os.getpid(), signal.SIGHUP)
        assert received() is None


def test_in_another_thread_there_are_no_handlers(handlers):
    def record() -> int | None:
        with process.stop_signals() as received:
            assert {number: signal.getsignal(number) for number in handlers} == handlers
            return received()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert pool.submit(record).result() is None


@pytest.mark.parametrize(
    ('ours', 'general', 'expected'),
    [
        ('/ours', '/general', '/ours'),
        ('gs://bucket/ours', None, 'gs://bucket/ours'),
        ('~/ours', None, '/home/somebody/ours'),
        (None, '/general', '/general/transformer'),
        (None, '~/general', '/home/somebody/general/transformer'),
        ('', '', '/home/somebody/.cache/transformer'),
        (None, None, '/home/somebody/.cache/transformer'),
    ],
)
def test_cache_folder(monkeypatch, ours, general, expected):
    for name, value in {
        'TRANSFORMER_CACHE': ours,
        'XDG_CACHE_HOME': general,
        'HOME': '/home/somebody',
    }.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert str(process.cache_folder()) == expected


def test_cache_folder_without_a_home(monkeypatch):
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.setattr(os.path, 'expanduser', lambda path: path)  # as if nobody had this number
    for chosen in ('', '~/ours'):
        monkeypatch.setenv('TRANSFORMER_CACHE', chosen)
        with pytest.raises(ConfigError, match='TRANSFORMER_CACHE'):
            process.cache_folder()


def test_a_home_that_cannot_be_written_keeps_no_programs(tmp_path, monkeypatch, caplog):
    (tmp_path / 'file').touch()
    monkeypatch.setenv('TRANSFORMER_CACHE', str(tmp_path / 'file'))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update('jax_compilation_cache_dir', None)
        process.keep_programs()
        assert jax.config.jax_compilation_cache_dir is None
        assert str(tmp_path / 'file' / 'programs') in caplog.text
    finally:
        jax.config.update('jax_compilation_cache_dir', before)


@pytest.mark.parametrize('error', [AssertionError(), RuntimeError("Backend 'gpus' is not known")])
def test_a_platform_that_jax_lacks(monkeypatch, error):
    def devices():
        raise error

    monkeypatch.setattr(jax, 'devices', devices)
    with pytest.raises(ConfigError, match=f'JAX cannot start.*{error}'):
        process.start('run', distributed=False)


def test_start_turns_on_the_compilation_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('TRANSFORMER_CACHE', str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update('jax_compilation_cache_dir', None)
        folder = process.start(str(tmp_path / 'run'), distributed=False)
        assert folder == tmp_path / 'run' and not folder.exists()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / 'programs')
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
        # Also where something was compiled before; and a cache that the caller chose stays.
        jax.jit(lambda x: x + 1)(jax.numpy.arange(7))
        assert list((tmp_path / 'programs').iterdir())
        jax.config.update('jax_compilation_cache_dir', str(tmp_path / 'other'))
        process.keep_programs()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / 'other')
    finally:
        jax.config.update('jax_compilation_cache_dir', before)
        compilation_cache.reset_cache()


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Returns a function that lets a host seem to have so many GPUs, and unsets CUDA_VISIBLE_DEVICES."""

    def make(count: int) -> None:
        names = [f'nvidia{number}' for number in range(count)]
        for name in [*names, 'nvidiactl', 'nvidia-uvm', 'null']:
            (tmp_path / 'dev' / name).touch()

    (tmp_path / 'dev').mkdir()
    monkeypatch.setattr(process, 'DEV', tmp_path / 'dev')
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    return make


@pytest.mark.parametrize(
    ('visible', 'platforms', 'warned'),
    [(1, None, '0 of 1'), (8, None, '0 of 8'), (8, 'cpu', None), (0, None, None)],
)
def test_gpus_that_this_jax_cannot_use_are_a_warning(gpus, tmp_path, caplog, visible, platforms, warned):
    gpus(visible)
    before = jax.config.jax_platforms
    try:
        jax.config.update('jax_platforms', platforms)
        process.start(str(tmp_path / 'run'), distributed=False)
    finally:
        jax.config.update('jax_platforms', before)
    assert ('.[cuda]' in caplog.text) == (warned is not None)
    assert warned is None or warned in caplog.text


@pytest.mark.parametrize(
    ('used', 'visible', 'distributed', 'said'),
    [
        (0, 0, False, []),
        (0, 1, False, ['0 of 1', '.[cuda]']),
        (0, 8, True, ['0 of 8', '.[cuda]']),
        (8, 8, False, []),
        (8, 8, True, []),
        (1, 8, True, ['1 of 8', '--ntasks-per-node=8', 'CUDA_VISIBLE_DEVICES']),
        (3, 4, True, ['3 of 4', '--ntasks-per-node=4']),
        # Each of eight processes sees only its own.
        (8, 1, True, []),
        # Not distributed, a process uses all that it gets.
        (1, 8, False, []),
    ],
)
def test_idle_gpus(used, visible, distributed, said):
    line = process.idle_gpus(used, visible, distributed)
    assert (line is None) == (not said)
    assert all(part in line for part in said)


@pytest.mark.parametrize(
    ('named', 'visible'),
    [
        (None, 4), ('', 0), ('-1', 0), ('NoDevFiles', 0), ('2', 1), ('0,3', 2), ('0, 3', 2), ('1,-1,2', 1),
        ('GPU-8932f937,GPU-d2a1', 2), ('MIG-3f3c', 1), ('0,1,2,3,4,5', 4), ('10', 1),
    ],
)  # fmt: skip
def test_gpus_that_a_process_sees(gpus, monkeypatch, named, visible):
    gpus(4)
    if named is not None:
        monkeypatch.setenv('CUDA_VISIBLE_DEVICES', named)
    assert process.visible_gpus() == visible


@pytest.mark.parametrize(
    ('named', 'here', 'primary', 'warned'),
    [(None, 1, True, '1 of 8'), (None, 3, True, '3 of 8'), (None, 8, True, None), ('5', 1, True, None),
     (None, 1, False, None)],
)  # fmt: skip
def test_processes_that_leave_gpus_idle(gpus, tmp_path, monkeypatch, caplog, named, here, primary, warned):
    """One GPU for each process of the host, as under SLURM; one line of the whole run tells of it."""
    gpus(8)
    if named is not None:
        monkeypatch.setenv('CUDA_VISIBLE_DEVICES', named)
    for name, value in {
        'join_processes': None, 'platform': 'gpu', 'local_device_count': 1, 'processes_here': here,
        'is_primary': primary,
    }.items():  # fmt: skip
        monkeypatch.setattr(parallel, name, lambda value=value: value)
    process.start(str(tmp_path / 'run'), distributed=True)
    assert len(caplog.records) == (warned is not None)
    assert warned is None or warned in caplog.text


@pytest.mark.parametrize(('processes', 'kept'), [(2, True), (4, False)])
def test_gpus_of_several_hosts_keep_no_programs_of_their_own(gpus, tmp_path, monkeypatch, processes, kept):
    """A host whose cache has a program would not compile it, for which the others wait."""
    gpus(2)
    for name, value in {
        'join_processes': None, 'platform': 'gpu', 'local_device_count': 1, 'processes_here': 2,
        'process': (0, processes),
    }.items():  # fmt: skip
        monkeypatch.setattr(parallel, name, lambda value=value: value)
    called = []
    monkeypatch.setattr(process, 'keep_programs', lambda: called.append(True))
    process.start(str(tmp_path / 'run'), distributed=True)
    assert bool(called) == kept


@pytest.mark.parametrize('precision', ['high', 'highest'])
def test_precision(precision):
    config = configs.resolve(configs.config_dict({'train.matmul_precision': precision}))
    before = jax.config.jax_default_matmul_precision
    with process.precision(config):
        assert jax.config.jax_default_matmul_precision == precision
    assert jax.config.jax_default_matmul_precision == before


def test_environment(monkeypatch):
    # A run may have a part of the machine's cores.
    monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(os.cpu_count() + 3)))
    monkeypatch.setattr(process, 'PACKAGES', ('jax', 'an-extra-that-is-not-installed'))
    found = process.environment()
    assert found['versions']['python'] == platform.python_version()
    assert found['versions']['jax'] == jax.__version__
    assert 'an-extra-that-is-not-installed' not in found['versions']
    assert found['hardware']['platform'] == 'cpu' and found['hardware']['devices'] == 8
    assert found['hardware']['processes'] == 1 and found['hardware']['cpus'] == os.cpu_count() + 3


def git(folder: pathlib.Path, *words: str) -> str:
    return subprocess.check_output(('git', '-C', str(folder), *words), text=True).strip()


def test_the_commit_tells_of_changes_and_is_none_elsewhere(tmp_path, monkeypatch):
    package = tmp_path / 'transformer' / 'runs'
    package.mkdir(parents=True)
    file = package / 'process.py'
    file.write_text('')
    monkeypatch.setattr(process, '__file__', str(file))
    revision = lambda: process.environment()['versions']['git']
    assert revision() is None
    git(tmp_path, 'init', '-q')
    git(tmp_path, 'add', '.')
    git(tmp_path, '-c', 'user.name=A', '-c', 'user.email=a@b', 'commit', '-qm', 'first')
    commit = git(tmp_path, 'rev-parse', 'HEAD')
    assert revision() == commit
    (tmp_path / 'untracked').write_text('')
    assert revision() == commit
    # The index, whose times of files are old, is not written.
    os.utime(file, (1, 1))
    index = (tmp_path / '.git' / 'index').read_bytes()
    assert revision() == commit and (tmp_path / '.git' / 'index').read_bytes() == index
    file.write_text('changed')
    assert revision() == commit + '+'
    # Installed inside of the checkout of another project.
    installed = tmp_path / '.venv' / 'transformer' / 'runs' / 'process.py'
    installed.parent.mkdir(parents=True)
    installed.write_text('')
    monkeypatch.setattr(process, '__file__', str(installed))
    assert revision() is None


def test_what_an_encoding_lacks_is_printed_all_the_same(monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(output, encoding='ascii'))
    assert main.main(['run.py', 'config']) == 0
    assert rb'# \xa7' in output.getvalue()
