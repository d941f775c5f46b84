"""Checkpoints: their retention, the remains of a crash, and that damage is never restored."""

import hashlib
import json
import logging as python_logging
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import tracemalloc

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from absl import logging

from transformer.config import ConfigError
from transformer.runs import restore
from transformer.runs.checkpoint import Checkpoints, DamagedCheckpoint
from transformer.runs.hashes import fingerprint

ROOT = pathlib.Path(__file__).parents[2]


def arrays(seed: int = 0, size: int = 48):
    # Larger than the kilobyte that OCDBT keeps inside its own checksummed files.
    kernel = jax.random.normal(jax.random.key(seed), (size, size))
    params = {'decoder': {'layer_0': {'kernel': kernel, 'bias': jnp.ones(3, jnp.bfloat16)}}}
    return params, optax.adam(1e-3).init(params)


def abstract(params, optimizer):
    return jax.eval_shape(lambda: {'params': params, 'optimizer': optimizer})


LIKE = abstract(*arrays())


def filled(tmp_path: pathlib.Path, *steps: int, keep: int = 3) -> pathlib.Path:
    folder = tmp_path / 'checkpoints'
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(step, *arrays(step), {'tokens': 10 * step})
    checkpoints.close()
    return folder


@pytest.fixture
def opened():
    """Opens checkpoints and closes them after the test."""
    held = []

    def open_folder(folder, keep: int = 3, **options) -> Checkpoints:
        held.append(Checkpoints(folder, keep, **options))
        return held[-1]

    yield open_folder
    for checkpoints in held:
        checkpoints.close()


@pytest.fixture
def warnings():
    """Yields the list of absl's warnings and errors."""
    lines = []
    handler = python_logging.Handler(python_logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.get_absl_logger().addHandler(handler)
    yield lines
    logging.get_absl_logger().removeHandler(handler)


def flip(path: pathlib.Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data))


def files(step_folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in step_folder.rglob('*') if path.is_file())


def assert_step(saved, step: int) -> None:
    params, optimizer = arrays(step)
    assert saved.step == step and saved.meta == {'tokens': 10 * step}
    assert jax.tree.structure((saved.params, saved.optimizer)) == jax.tree.structure((params, optimizer))
    jax.tree.map(np.testing.assert_array_equal, saved.params, params)
    jax.tree.map(np.testing.assert_array_equal, saved.optimizer, optimizer)


def test_fingerprint():
    tree = {
        'b': [np.array([1, 258], np.int32)],
        'a': {'y': jnp.full((1, 2), 1.5, jnp.bfloat16), 'x': jnp.float32(-2)},
    }
    expected = hashlib.sha256(
        b'a/x float32 ()\n\x00\x00\x00\xc0'
        b'a/y bfloat16 (1, 2)\n\xc0\x3f\xc0\x3f'
        b'b/0 int32 (2,)\n\x01\x00\x00\x00\x02\x01\x00\x00'
    ).hexdigest()
    assert fingerprint(tree) == expected
    assert fingerprint({'b': np.array([1, 258], '>i4')}) == fingerprint({'b': tree['b'][0]})


@pytest.mark.parametrize(
    'change',
    [
        {'w': np.zeros((3, 2), np.float32)},
        {'w': np.zeros((2, 3), np.int32)},
        {'w': np.zeros((2, 3), ml_dtypes.bfloat16)},
        {'v': np.zeros((2, 3), np.float32)},
        {'w': np.full((2, 3), -0.0, np.float32)},
    ],
)
def test_fingerprint_sees(change):
    assert fingerprint(change) != fingerprint({'w': np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize(
    ('keep', 'losses', 'kept', 'best'),
    [
        (2, [1.0, 9.0, None, 8.0, 1.0], [1, 4, 5], 1),
        (1, [None, None, None], [3], None),
        (1, [float('nan'), 7.0, float('inf')], [2, 3], 2),
    ],
)
def test_what_remains(tmp_path, opened, keep, losses, kept, best):
    folder = tmp_path / 'checkpoints'
    # Half of them by a second run, which knows the losses of the first from disk alone.
    half = len(losses) // 2
    for part in (losses[:half], losses[half:]):
        checkpoints = opened(folder, keep)
        for loss in part:
            step = max(checkpoints.steps(), default=0) + 1
            checkpoints.save(step, {'w': np.ones(2)}, {'w': np.ones(2)}, {}, loss)
        checkpoints.wait()
    assert (checkpoints.steps(), checkpoints.best()) == (kept, best)
    assert sorted(path.name for path in folder.iterdir()) == [str(step) for step in kept]


def test_a_checkpoint_that_cannot_be_read_for_a_moment_remains(tmp_path, opened, warnings, monkeypatch):
    """It may be the best, and is again once it can be read."""
    checkpoints, content = opened(tmp_path / 'checkpoints', 1), Checkpoints._content

    def unreadable(self, step):
        if step == 1:
            raise DamagedCheckpoint(1, 'meta: unreadable (OSError)')
        return content(self, step)

    def save(step, loss):
        checkpoints.save(step, {'w': np.ones(2)}, {'w': np.ones(2)}, {}, loss)
        checkpoints.wait()

    save(1, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, '_content', unreadable)
        for step in (2, 3):
            save(step, 2.0)
        assert checkpoints.steps() == [1, 2, 3]
    assert len(warnings) == 1 and 'checkpoint 1 ' in warnings[0]
    save(4, 2.0)
    assert (checkpoints.steps(), checkpoints.best()) == ([1, 4], 1)


def test_the_best_of_checkpoints_that_name_their_dev_loss(tmp_path, opened, monkeypatch):
    """As they were written before a checkpoint could be the best by another score."""
    checkpoints = opened(tmp_path / 'checkpoints', 1)
    write = checkpoints._write

    def write_as_before(step, items, content):
        write(step, items, {'dev_loss' if key == 'cost' else key: value for key, value in content.items()})

    monkeypatch.setattr(checkpoints, '_write', write_as_before)
    for step, loss in enumerate((3.0, 2.0, 4.0), 1):
        checkpoints.save(step, *arrays(step), {'tokens': 10 * step}, loss)
    assert (checkpoints.content(2)['dev_loss'], checkpoints.best()) == (2.0, 2)
    monkeypatch.undo()
    checkpoints.save(4, *arrays(4), {'tokens': 40}, 2.5)
    assert (checkpoints.steps(), checkpoints.best()) == ([2, 4], 2)
    assert_step(checkpoints.restore(2, LIKE), 2)
    checkpoints.save(5, *arrays(5), {'tokens': 50}, 1.5)
    assert (checkpoints.steps(), checkpoints.best()) == ([5], 5)


def test_what_averaging_needs_remains(tmp_path, opened):
    checkpoints = opened(tmp_path / 'checkpoints', 2, average=(3, 2))
    for step in range(1, 10):
        checkpoints.save(step, {'w': np.ones(2)}, {'w': np.ones(2)}, {})
    assert checkpoints.steps() == [4, 6, 8, 9]


def test_average_is_numpys_mean(tmp_path, opened):
    checkpoints = opened(tmp_path / 'checkpoints', 9)
    draw = np.random.default_rng(0)
    normal = lambda *shape: draw.normal(size=shape).astype(np.float32)
    trees = [{'a': normal(3), 'b': {str(i): normal(100, 1000) for i in range(5)}} for _ in range(5)]
    for step, params in enumerate(trees, 1):
        checkpoints.save(step, params, {'mu': params}, {})
    checkpoints.wait()
    tracemalloc.start()
    found = restore.mean(checkpoints, range(1, 6), jax.eval_shape(lambda: trees[0]))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(trees[0]))
    # The mean, and one array at a time twice: as it is read, and as it is hashed.
    assert tracemalloc.get_traced_memory()[1] < 1.7 * size
    tracemalloc.stop()
    expected = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *trees)
    jax.tree.map(np.testing.assert_array_equal, found.params, expected)
    assert found.step == 5 and found.meta['averaged'] == [1, 2, 3, 4, 5]
    assert found.meta['params_sha256'] == {str(i): fingerprint(t) for i, t in enumerate(trees, 1)}
    # Step 3's intact files in step 2, without the hashes of files that would show it.
    folder = tmp_path / 'checkpoints' / '2'
    (folder / 'files.json').unlink()
    shutil.rmtree(folder / 'params')
    shutil.copytree(tmp_path / 'checkpoints' / '3' / 'params', folder / 'params')
    with pytest.raises(DamagedCheckpoint, match='checkpoint 2 '):
        restore.mean(checkpoints, [1, 2], jax.eval_shape(lambda: trees[0]))
    with pytest.raises(DamagedCheckpoint):
        restore.mean(checkpoints, [1, 6], jax.eval_shape(lambda: trees[0]))


def test_restores_what_was_saved(tmp_path, opened, capfd):
    folder = filled(tmp_path, 1, 2)
    for options in ({}, {'read_only': True}):
        checkpoints = opened(folder, **options)
        assert_step(checkpoints.restore(1, LIKE), 1)
        assert_step(checkpoints.restore_newest(LIKE), 2)
        only = checkpoints.restore(1, {'params': LIKE['params']})
        assert only.optimizer is None and only.meta == {'tokens': 10}
        assert fingerprint(only.params) == fingerprint(arrays(1)[0])
    captured = capfd.readouterr()
    assert captured.out + captured.err == ''


def test_a_moving_average_stands_beside_the_parameters(tmp_path, opened):
    checkpoints = opened(tmp_path / 'checkpoints')
    (params, optimizer), (ema, _) = arrays(1), arrays(2)
    checkpoints.save(1, params, optimizer, {'tokens': 10}, ema=ema)
    saved = checkpoints.restore(1, {**LIKE, 'ema': LIKE['params']})
    assert_step(saved, 1)
    assert fingerprint(saved.ema) == fingerprint(ema)
    assert fingerprint(checkpoints.restore(1, {'params': LIKE['params']}).params) == fingerprint(params)
    assert fingerprint(checkpoints.restore(1, {'ema': LIKE['params']}).ema) == fingerprint(ema)
    # One that was saved without.
    checkpoints.save(2, *arrays(2), {'tokens': 20})
    with pytest.raises(DamagedCheckpoint):
        checkpoints.restore(2, {'ema': LIKE['params']})


def test_no_checkpoint(tmp_path, opened):
    for options in ({'read_only': True}, {}):
        checkpoints = opened(tmp_path / 'checkpoints', **options)
        assert checkpoints.steps() == []
        assert (checkpoints.steps(), checkpoints.best()) == ([], None)
        assert checkpoints.restore_newest(LIKE) is None
        assert (tmp_path / 'checkpoints').exists() == (options == {})


def test_read_only_leaves_the_folder_alone(tmp_path, opened, warnings):
    folder = filled(tmp_path, 1, 2)
    flip(folder / '2' / 'meta' / 'metadata', 80)
    (folder / '3.orbax-checkpoint-tmp').mkdir()
    before = {path: path.read_bytes() for path in files(tmp_path)}
    checkpoints = opened(folder, 1, read_only=True)
    checkpoints.save(9, *arrays(), {})
    checkpoints.wait()
    assert_step(checkpoints.restore_newest(LIKE), 1)
    assert before == {path: path.read_bytes() for path in files(tmp_path)}
    assert (folder / '3.orbax-checkpoint-tmp').exists() and len(warnings) == 1


def test_arrays_may_be_given_away_after_save(tmp_path, opened):
    params, optimizer = arrays(1, size=1024)
    expected = fingerprint(params), fingerprint(optimizer)
    like = abstract(params, optimizer)
    host = {'w': np.zeros(1000, np.float32)}
    doubled = jax.pmap(
        lambda tree, _: jax.tree.map(lambda leaf: 2 * leaf + 1, tree),
        in_axes=(None, 0),
        out_axes=None,
        donate_argnums=0,
    )
    device = np.zeros(jax.local_device_count(), np.float32)
    checkpoints = opened(tmp_path / 'checkpoints')
    checkpoints.save(1, params, optimizer, {})
    state = doubled((params, optimizer), device)
    for _ in range(3):
        state = doubled(state, device)
    restored = checkpoints.restore(1, like)
    assert (fingerprint(restored.params), fingerprint(restored.optimizer)) == expected
    # What a mapped step returned, replicated on all devices, is saved as well and comes back.
    expected = fingerprint(state[0])
    checkpoints.save(2, *state, {})
    doubled(state, device)
    restored = checkpoints.restore(2, like)
    assert fingerprint(restored.params) == expected
    # A step takes what was restored, and leaves it as it is: nothing shares its memory.
    doubled(doubled((restored.params, restored.optimizer), device), device)
    assert fingerprint(restored.params) == expected
    checkpoints.save(3, host, host, {})
    host['w'] += 1
    restored = checkpoints.restore(3, {'params': jax.eval_shape(lambda: {'w': jnp.zeros(1000)})})
    assert not restored.params['w'].any()


def test_a_flipped_bit_is_noticed_in_every_file(tmp_path, opened, capfd):
    folder = filled(tmp_path, 1)
    checkpoints = opened(folder)
    random = np.random.default_rng(0)
    noticed = set()
    for path in files(folder / '1'):
        content = path.read_bytes()
        for bit in random.integers(8 * len(content), size=3):
            flip(path, int(bit))
            try:
                assert_step(checkpoints.restore(1, LIKE), 1)
            except DamagedCheckpoint as error:
                assert error.step == 1 and '\n' not in str(error)
                noticed.add(path.relative_to(folder / '1').parts[0])
            path.write_bytes(content)
    assert noticed >= {'params', 'optimizer', 'meta'}
    assert_step(checkpoints.restore(1, LIKE), 1)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ''


def test_item_hashes_stand_without_the_hashes_of_files(tmp_path, opened):
    """As after a kill before files.json is written: Orbax has no checksum in the data files."""
    folder = filled(tmp_path, 1)
    checkpoints = opened(folder)
    (folder / '1' / 'files.json').unlink()
    assert_step(checkpoints.restore(1, LIKE), 1)
    largest = max(files(folder / '1' / 'params'), key=lambda path: path.stat().st_size)
    flip(largest, 8 * (largest.stat().st_size // 2))
    with pytest.raises(DamagedCheckpoint, match='1 .*: params'):
        checkpoints.restore(1, LIKE)
    meta = folder / '1' / 'meta' / 'metadata'
    meta.write_text(meta.read_text().replace('"tokens": 10', '"tokens": 11'))
    with pytest.raises(DamagedCheckpoint, match='1 .*: meta'):
        checkpoints.restore(1, {'params': LIKE['params']})


@pytest.mark.parametrize('damage', ['missing', 'truncated', 'empty'])
def test_broken_files(tmp_path, opened, damage):
    folder = filled(tmp_path, 1)
    checkpoints = opened(folder)
    for item in ('params', 'optimizer', 'meta'):
        for path in files(folder / '1' / item):
            content = path.read_bytes()
            path.unlink()
            if damage != 'missing':
                path.write_bytes(content[: len(content) // 2] if damage == 'truncated' else b'')
            with pytest.raises(DamagedCheckpoint, match=item):
                checkpoints.restore(1, LIKE)
            path.write_bytes(content)
        shutil.move(folder / '1' / item, tmp_path / 'away')
        with pytest.raises(DamagedCheckpoint, match=item):
            checkpoints.restore(1, LIKE)
        shutil.move(tmp_path / 'away', folder / '1' / item)
    with pytest.raises(DamagedCheckpoint, match='checkpoint 2 '):
        checkpoints.restore(2, LIKE)
    # Whole, but under the number of another step.
    shutil.copytree(folder / '1', folder / '2')
    with pytest.raises(DamagedCheckpoint, match='checkpoint 2 .*: meta'):
        checkpoints.restore(2, LIKE)


@pytest.mark.parametrize(
    'change',
    [
        lambda layer: layer | {'kernel': jax.ShapeDtypeStruct((48, 47), jnp.float32)},
        lambda layer: layer | {'kernel': jax.ShapeDtypeStruct((48, 48), jnp.bfloat16)},
        lambda layer: layer | {'scale': jax.ShapeDtypeStruct((3,), jnp.float32)},
        lambda layer: {'kernel': layer['kernel']},
    ],
    ids=['shape', 'dtype', 'more', 'fewer'],
)
def test_other_structure(tmp_path, opened, change):
    checkpoints = opened(filled(tmp_path, 1))
    other = {'decoder': {'layer_0': change(LIKE['params']['decoder']['layer_0'])}}
    with pytest.raises(DamagedCheckpoint, match='params'):
        checkpoints.restore(1, {'params': other})
    with pytest.raises(DamagedCheckpoint, match='params'):
        list(checkpoints.stream_params(1, other))


def test_falls_back_and_moves_aside(tmp_path, opened, warnings):
    folder = filled(tmp_path, 1, 2, 3)
    flip(folder / '2' / 'params' / 'manifest.ocdbt', 99)
    flip(folder / '3' / 'meta' / 'metadata', 99)
    damaged = {path.name: path.read_bytes() for path in files(folder / '3')}
    checkpoints = opened(folder)
    assert_step(checkpoints.restore_newest(LIKE), 1)
    assert 'checkpoint 3' in warnings[0] and 'checkpoint 2' in warnings[1]
    assert len(warnings) == 2 and not any('\n' in line for line in warnings)
    assert checkpoints.steps() == [1]
    assert damaged == {path.name: path.read_bytes() for path in files(tmp_path / 'damaged' / '3')}
    # Training continues, and its new checkpoint 2 is damaged, too.
    checkpoints.save(2, *arrays(2), {'tokens': 20})
    assert_step(checkpoints.restore_newest(LIKE), 2)
    flip(folder / '2' / 'params' / 'manifest.ocdbt', 99)
    assert_step(opened(folder).restore_newest(LIKE), 1)
    assert sorted(path.name for path in (tmp_path / 'damaged').iterdir()) == ['2', '2.1', '3']


def test_all_damaged(tmp_path, opened, warnings):
    folder = filled(tmp_path, 1, 2)
    for step in ('1', '2'):
        flip(folder / step / 'meta' / 'metadata', 99)
    for _ in range(2):
        with pytest.raises(ConfigError, match=f'{folder}: checkpoint 2 ') as caught:
            opened(folder).restore_newest(LIKE)
        assert '\n' not in str(caught.value) and 'checkpoint 1 ' in str(caught.value)
    assert not warnings


def test_saves_a_step_again(tmp_path, opened):
    folder = filled(tmp_path, 1, 2)
    checkpoints = opened(folder)
    # What an earlier failure left goes too.
    (folder / '2.orbax-checkpoint-tmp' / 'params').mkdir(parents=True)
    (folder / '9.orbax-checkpoint-tmp').mkdir()
    checkpoints.save(2, *arrays(7), {'tokens': 70}, 0.5)
    assert (checkpoints.steps(), checkpoints.best()) == ([1, 2], 2)
    saved = checkpoints.restore(2, LIKE)
    assert saved.meta == {'tokens': 70}
    assert fingerprint(saved.params) == fingerprint(arrays(7)[0])
    assert sorted(path.name for path in folder.iterdir()) == ['1', '2']


def test_deletes_under_another_name(tmp_path, monkeypatch):
    """So that a kill while files are deleted leaves no half step."""
    monkeypatch.setattr(Checkpoints, '_recover', lambda self: None)
    folder = filled(tmp_path, 1, 2, keep=1)
    assert {path.name for path in folder.iterdir()} == {'2', 'deleted'}
    old = folder / 'deleted' / '1'
    hashes = json.loads((old / 'files.json').read_text())
    assert all((old / item / name).exists() for item, names in hashes.items() for name in names)


def test_disk_full(tmp_path, opened, monkeypatch, capfd):
    folder = filled(tmp_path, 1, 2)
    checkpoints = opened(folder)
    monkeypatch.setattr(shutil, 'disk_usage', lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    checkpoints.save(2, *arrays(7), {})
    with pytest.raises(OSError, match=f'{folder}: checkpoint 2 .* No space left on device'):
        checkpoints.wait()
    checkpoints.save(3, *arrays(3), {'tokens': 30})
    with pytest.raises(OSError, match='checkpoint 3'):
        checkpoints.save(4, *arrays(4), {})
    monkeypatch.undo()
    assert_step(checkpoints.restore_newest(LIKE), 2)
    checkpoints.save(3, *arrays(3), {'tokens': 30})
    assert_step(checkpoints.restore_newest(LIKE), 3)
    assert 'Traceback' not in capfd.readouterr().err


def test_a_failing_write_loses_nothing(tmp_path):
    """A file size limit stands for a full disk met in the middle of a file."""
    folder = filled(tmp_path, 1, 2)
    checkpoints = Checkpoints(folder, 3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = {'w': jax.random.normal(jax.random.key(0), (300, 300))}
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        for step in (2, 3):
            checkpoints.save(step, large, large, {})
            with pytest.raises(OSError, match=f'{folder}: checkpoint {step} .* File too large'):
                checkpoints.wait()
            # The old step 2 is back.
            assert checkpoints.steps() == [1, 2]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_step(checkpoints.restore_newest(LIKE), 2)
    checkpoints.save(3, *arrays(3), {'tokens': 30})
    assert_step(checkpoints.restore_newest(LIKE), 3)
    checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == ['1', '2', '3']


FAILING = """
import pathlib, resource, sys
import numpy as np
from transformer.runs.checkpoint import Checkpoints

folder = pathlib.Path(sys.argv[1])
arrays = {f'w{i}': np.random.default_rng(i).normal(size=(300, 300)) for i in range(20)}
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
checkpoints = Checkpoints(folder, 1)
checkpoints.save(1, arrays, None, {})
try:
    checkpoints.wait()
except OSError as error:
    print(error)
"""


def test_a_failing_write_prints_no_traceback(tmp_path):
    """TensorStore still writes the other arrays when the first one fails."""
    done = subprocess.run([sys.executable, '-c', FAILING, tmp_path], capture_output=True, text=True, cwd=ROOT)
    assert 'File too large' in done.stdout and done.stderr == ''


def test_folder_that_cannot_be(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(OSError, match=str(tmp_path / 'file')):
        Checkpoints(tmp_path / 'file' / 'checkpoints', 2)


KILLED = """
import os, pathlib, signal, sys, threading
import orbax.checkpoint as ocp
sys.path.insert(0, 'tests/runs')
from test_checkpoint import arrays
from transformer.runs.checkpoint import Checkpoints

folder, moment = pathlib.Path(sys.argv[1]), sys.argv[2]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
checkpoints = Checkpoints(folder, 2)
for step in (1, 2):
    checkpoints.save(step, *arrays(step), {'tokens': 10 * step})
checkpoints.wait()
save = ocp.CheckpointManager.save

def watch():
    while not any(folder.glob('*tmp*/params*/ocdbt*/d/*')):
        pass
    die()

def dying(*args, **kwargs):
    if moment == 'replaced':
        die()
    save(*args, **kwargs)
    die()

if moment == 'writing':
    threading.Thread(target=watch, daemon=True).start()
else:
    ocp.CheckpointManager.save = dying
step = 2 if moment == 'replaced' else 3
checkpoints.save(step, *arrays(step), {'tokens': 10 * step})
checkpoints.wait()
"""


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])
    return os.environ | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': path} | more


def test_kill_in_a_save(tmp_path, opened):
    """Killed while writing, when the old step is put away, and when the new step is finished."""
    moments = {'writing': 2, 'replaced': 2, 'finished': 3}
    running = [
        subprocess.Popen(
            [sys.executable, '-c', KILLED, tmp_path / moment / 'checkpoints', moment],
            cwd=ROOT,
            env=environment(),
        )
        for moment in moments
    ]
    assert [process.wait(60) for process in running] == [-signal.SIGKILL] * 3
    for moment, newest in moments.items():
        folder = tmp_path / moment / 'checkpoints'
        left = {path.name for path in folder.iterdir()}
        assert left - {'1', '2', '3'}, moment
        checkpoints = opened(folder, 2)
        assert_step(checkpoints.restore_newest(LIKE), newest)
        assert all(path.name.isdigit() for path in folder.iterdir()), moment
        checkpoints.save(3, *arrays(3), {'tokens': 30})
        assert checkpoints.steps() == [2, 3]
        assert_step(checkpoints.restore(3, LIKE), 3)


TWO_PROCESSES = """
import sys
import jax
jax.config.update('jax_cpu_collectives_implementation', 'gloo')
rank, port, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.distributed.initialize(f'127.0.0.1:{port}', 2, rank)
import numpy as np
from jax.experimental import multihost_utils
from transformer.runs.checkpoint import Checkpoints
from transformer.runs.hashes import fingerprint

def update(state, batch):
    return state + jax.lax.psum(batch.sum(), 'data')

update = jax.pmap(update, axis_name='data', in_axes=(None, 0), out_axes=None, donate_argnums=0)
batch = np.full((2, 3), 1.0 + rank, np.float32)
state = np.zeros((64, 64), np.float32)
checkpoints = Checkpoints(folder, 1)
like = {'params': jax.ShapeDtypeStruct((64, 64), np.float32)}
assert checkpoints.restore_newest(like) is None
for step in (1, 2):
    state = update(state, batch)
    checkpoints.save(step, state, state, {'rank': rank}, 1.0)
    if rank == 0:
        checkpoints.wait()
    multihost_utils.sync_global_devices('saved')
saved = checkpoints.restore_newest(like)
assert (saved.step, saved.meta, checkpoints.steps()) == (2, {'rank': 0}, [1, 2]), saved
assert float(update(saved.params, batch)[0, 0]) == 54.0
checkpoints.close()
print(fingerprint(saved.params))
"""


def test_two_processes(tmp_path):
    """Process 0 writes, both restore, and neither waits for the other in the checkpoint module."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = str(free.getsockname()[1])
    flags = {'XLA_FLAGS': '--xla_force_host_platform_device_count=2'}
    running = [
        subprocess.Popen(
            [sys.executable, '-c', textwrap.dedent(TWO_PROCESSES), rank, port, tmp_path / 'c'],
            cwd=ROOT,
            env=environment(**flags),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in '01'
    ]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    # Gloo prints to the same place.
    expected = fingerprint(np.full((64, 64), 36, np.float32))
    assert [output.split()[-1] for output in outputs] == [expected] * 2


def test_a_relative_folder(tmp_path, opened, monkeypatch):
    monkeypatch.chdir(tmp_path)
    filled(pathlib.Path('w'), 1)
    assert_step(opened(pathlib.Path('w', 'checkpoints')).restore_newest(LIKE), 1)
