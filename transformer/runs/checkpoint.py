"""Checkpoints: saved in the background, verified by hash when read, never lost by a crash.

A step is a folder `<workdir>/checkpoints/<step>` with three Orbax items: `params`, `optimizer` and
`meta` (JSON). `meta` holds the hashes of the other two and one of itself, because Orbax restores a
flipped bit silently; `files.json` holds those of all files, because Orbax prints tracebacks of its
threads when it reads a damaged one. Orbax gives a step its number for a name when it is complete.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from transformer.config import ConfigError

# Orbax logs warnings in normal use (a read-only folder) and tracebacks of what is raised anyway.
logging.get_absl_logger().addFilter(lambda record: not record.pathname.startswith(ocp.__path__[0]))


class DamagedCheckpoint(ConfigError):
    """A checkpoint that cannot be read or is not what was saved; one line names step and reason."""

    def __init__(self, step: int, reason: str):
        super().__init__(f'checkpoint {step} is damaged: {reason}')
        self.step, self.reason = step, reason


class Saved(NamedTuple):
    """What a checkpoint holds; `optimizer` is None where only the parameters were asked for."""

    step: int
    params: Any
    optimizer: Any
    meta: dict[str, Any]


def fingerprint(tree) -> str:
    """The SHA-256 of a tree of arrays: of every leaf, sorted by path, its header and its bytes.

    The header is the line `<path> <dtype> <shape>`, as `decoder/layer_0/ffn/kernel float32 (4, 8)`;
    the bytes are little-endian in row-major order. The containers of the tree do not count.
    """
    digest = hashlib.sha256()
    for name, leaf in sorted(_named(tree).items()):
        _digest(digest, name, np.asarray(leaf))
    return digest.hexdigest()


def _named(tree) -> dict[str, Any]:
    """The leaves of a tree by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator='/'): leaf for path, leaf in leaves}


def _digest(digest, name: str, array: np.ndarray) -> None:
    digest.update(f'{name} {array.dtype.name} {array.shape}\n'.encode())
    digest.update(array.astype(array.dtype.newbyteorder('<'), copy=False).tobytes())


class Checkpoints:
    """The checkpoints of one run: the latest `keep`, the best by dev loss, and those to be averaged.

    Process 0 writes; in the others, and when `read_only`, nothing does and `save` returns at once.

    Args:
      folder: `<workdir>/checkpoints`, created where missing.
      keep: how many of the latest steps remain, at least 1.
      average: (last, every): the latest `last` steps that `every` divides remain too.
      read_only: whether to leave the folder untouched.

    Raises:
      OSError: the folder cannot be created.
    """

    def __init__(
        self,
        folder: epath.PathLike,
        keep: int,
        average: tuple[int, int] = (0, 1),
        *,
        read_only: bool = False,
    ):
        here = jax.process_index()
        # Orbax refuses relative paths.
        self._folder = epath.Path(folder).resolve()
        self._keep, self._average = keep, average
        self._writes = not read_only and here == 0
        self._writer = concurrent.futures.ThreadPoolExecutor(1, 'checkpoint')
        self._pending: concurrent.futures.Future | None = None
        if self._writes:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._recover()
        options = ocp.CheckpointManagerOptions(
            create=False,
            read_only=not self._writes,
            cleanup_tmp_directories=self._writes,
            # Deletion takes many steps: under another name, a kill leaves no half step.
            todelete_subdir='deleted' if self._writes else None,
            # The whole save runs in our thread, hashing included.
            enable_async_checkpointing=False,
            # Orbax's BestN reads losses from a file that no hash protects.
            preservation_policy=types.SimpleNamespace(should_preserve=self._should_preserve),
            # Every process works alone: no barrier, so none can wait for another.
            multiprocessing_options=ocp.options.MultiprocessingOptions(here, {here}, f'{here}'),
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    def save(self, step: int, params, optimizer, meta: dict, dev_loss: float | None = None) -> None:
        """Saves a step in the background; the arrays may be donated as soon as this returns.

        A step that exists is replaced. A save in progress is waited for first.

        Args:
          optimizer: None for parameters alone.
          meta: JSON values to come back with the arrays.
          dev_loss: the lowest is the best step's; without a finite one a step cannot be the best.

        Raises:
          OSError: the save before this one failed.
        """
        if not self._writes:
            return
        self.wait()
        # A copy: `device_get` gives views of arrays on the CPU, and numpy arrays themselves.
        items = {'params': params} | ({} if optimizer is None else {'optimizer': optimizer})
        arrays = jax.tree.map(np.array, jax.device_get(items))
        loss = float(dev_loss) if dev_loss is not None and math.isfinite(dev_loss) else None
        content = json.loads(json.dumps({'step': int(step), 'dev_loss': loss, 'meta': meta}))
        self._pending = self._writer.submit(self._write, int(step), arrays, content)

    def wait(self) -> None:
        """Returns when everything is on disk.

        Raises:
          OSError: the last save failed; the message names the folder and the cause.
        """
        error = self._pending and self._pending.exception()
        self._pending = None
        if error:
            raise error

    def steps(self) -> list[int]:
        """The finished steps, ascending, after waiting for a save in progress."""
        self.wait()
        self._manager.reload()
        return sorted(self._manager.all_steps())

    def latest(self) -> int | None:
        """The newest step."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step of the lowest dev loss (the first, of equals), where any has one."""
        return self._lowest_loss(self.steps())

    def restore(self, step: int, like: dict[str, Any]) -> Saved:
        """Reads and verifies a step; its arrays are numpy's, fit for jit and pmap with donation.

        Args:
          like: `{'params': ..., 'optimizer': ...}`, trees of shapes and types (ShapeDtypeStruct).

        Raises:
          DamagedCheckpoint: it cannot be read, or is not what was saved, or not like `like`.
        """
        self.wait()
        content = self._content(step)
        trees = {item: self._item(step, item, like[item], content) for item in like}
        return Saved(step, trees['params'], trees.get('optimizer'), content['meta'])

    def restore_params(self, step: int, like_params) -> Saved:
        """Reads and verifies the parameters of a step alone; raises as `restore`."""
        return self.restore(step, {'params': like_params})

    def restore_newest(self, like: dict[str, Any]) -> Saved | None:
        """Reads the newest undamaged step; None where there is no step at all.

        Damaged ones on the way are named in a warning each and moved to `<workdir>/damaged`.

        Raises:
          ConfigError: there are steps and all are damaged; then they stay where they are.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                saved = self.restore(step, like)
            except DamagedCheckpoint as error:
                damaged.append(error)
                continue
            for bad in damaged:
                logging.warning('%s: %s; %d is used', self._folder, bad, step)
                if self._writes:
                    self._move(bad.step, self._folder.parent / 'damaged')
            return saved
        if damaged:
            raise ConfigError(f'{self._folder}: {"; ".join(map(str, damaged))}; none is left')
        return None

    def average(self, steps: Sequence[int], like_params) -> Saved:
        """The mean of the parameters of steps (§6.1), in float32 as `numpy.mean` adds them.

        One array of one checkpoint is in memory at a time, beside the mean. `meta` is the last
        step's and the recipe: the steps, and the fingerprint of the parameters of each. Raises as `restore`.
        """
        self.wait()
        hashes = {step: self._content(step)['params'] for step in steps}
        digests = {step: hashlib.sha256() for step in steps}
        for step in steps:
            with self._reading(step, 'params'):
                self._check_files(step, 'params')
        means = {}
        for name, like in sorted(_named(like_params).items()):
            total = np.zeros(like.shape, like.dtype)
            for step in steps:
                array = self._array(step, name, like)
                _digest(digests[step], name, array)
                total += array
            total /= len(steps)
            means[name] = total
        for step in steps:
            if digests[step].hexdigest() != hashes[step]:
                raise DamagedCheckpoint(step, 'params: not what was saved or asked for')
        leaves = [means[name] for name in _named(like_params)]
        mean = jax.tree.unflatten(jax.tree.structure(like_params), leaves)
        recipe = {'averaged': list(steps), 'params_sha256': {str(step): hashes[step] for step in steps}}
        last = max(steps)
        return Saved(last, mean, None, {**self._content(last)['meta'], **recipe})

    def close(self) -> None:
        """Waits as `wait` and lets go of the threads."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()
            self._manager.close()

    def _write(self, step: int, arrays: dict[str, Any], content: dict[str, Any]) -> None:
        content |= {item: fingerprint(tree) for item, tree in arrays.items()}
        meta = ocp.args.JsonSave({'content': content, 'sha256': _hash_json(content)})
        trees = {item: ocp.args.StandardSave(tree) for item, tree in arrays.items()}
        items = ocp.args.Composite(meta=meta, **trees)
        try:
            self._recover()
            if os.path.isdir(self._folder):
                # Found here, since Orbax's threads print tracebacks. It writes about this much.
                size = sum(array.nbytes for array in jax.tree.leaves(arrays))
                if size > shutil.disk_usage(self._folder).free:
                    raise OSError(f'No space left on device for {size:,} bytes')
            if (self._folder / str(step)).exists():
                self._move(step, self._folder / 'replaced')
            self._manager.save(step, args=items, force=True)
            folder = self._folder / str(step)
            hashes = {item: _hash_files(folder / item) for item in (*arrays, 'meta')}
            (folder / 'files.tmp').write_text(json.dumps(hashes, indent=1))
            (folder / 'files.tmp').rename(folder / 'files.json')
            self._recover()
        except Exception as error:
            # TensorStore may still be writing into the folder that is removed here.
            with contextlib.suppress(OSError):
                self._recover()
            # TensorStore's ValueError ends as `...: <path>: No space left on device [...]`.
            reason = getattr(error, 'strerror', None) or str(error).rsplit(': ', 1)[-1]
            raise OSError(f'{self._folder}: checkpoint {step} was not written: {reason}') from error

    def _recover(self) -> None:
        """Puts back what an unfinished save was about to replace, and removes leftovers."""
        for old in list((self._folder / 'replaced').glob('*')):
            if not (self._folder / old.name).exists():
                old.rename(self._folder / old.name)
        for path in list(self._folder.glob('*')):
            if path.name in ('replaced', 'deleted') or ocp.utils.TMP_DIR_SUFFIX in path.name:
                path.rmtree()

    def _move(self, step: int, folder: epath.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        names = (f'{step}.{n}' if n else str(step) for n in itertools.count())
        free = next(name for name in names if not (folder / name).exists())
        (self._folder / str(step)).rename(folder / free)
        self._manager.reload()

    def _read(self, step: int, item: str, args):
        with self._reading(step, item):
            self._check_files(step, item)
            return self._manager.restore(step, args=ocp.args.Composite(**{item: args}))[item]

    def _array(self, step: int, name: str, like) -> np.ndarray:
        """One array of a step's parameters, by the path of `fingerprint`."""
        tree = like
        for key in reversed(name.split('/')):
            tree = {key: tree}
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        args = ocp.args.PyTreeRestore(item=tree, restore_args=as_numpy, partial_restore=True)
        with self._reading(step, 'params'):
            restored = ocp.PyTreeCheckpointHandler().restore(self._folder / str(step) / 'params', args=args)
            return jax.tree.leaves(restored)[0]

    def _check_files(self, step: int, item: str) -> None:
        hashes = self._folder / str(step) / 'files.json'
        # After a kill before it was written there is none; the hash in `meta` still counts.
        saved = json.loads(hashes.read_text())[item] if hashes.exists() else {}
        if not saved.items() <= _hash_files(hashes.parent / item).items():
            raise DamagedCheckpoint(step, f'{item}: a file is missing or changed')

    @contextlib.contextmanager
    def _reading(self, step: int, item: str) -> Iterator[None]:
        try:
            yield
        except DamagedCheckpoint:
            raise
        # Orbax, TensorStore and JSON raise a dozen kinds: KeyError, ValueError, UnicodeError, ...
        except Exception as error:
            raise DamagedCheckpoint(step, f'{item}: unreadable ({type(error).__name__})') from error

    def _content(self, step: int) -> dict[str, Any]:
        stored = self._read(step, 'meta', ocp.args.JsonRestore())
        content = stored.get('content')
        if _hash_json(content) != stored.get('sha256') or content['step'] != step:
            raise DamagedCheckpoint(step, 'meta: not what was saved')
        return content

    def _item(self, step: int, item: str, like, content: dict[str, Any]):
        # Without a sharding Orbax returns numpy arrays, of the saved shape whatever `like` says.
        shapes = _shapes(like)
        tree = self._read(step, item, ocp.args.StandardRestore(shapes))
        if fingerprint(tree) != content[item] or _shapes(tree) != shapes:
            raise DamagedCheckpoint(step, f'{item}: not what was saved or asked for')
        return tree

    def _should_preserve(self, checkpoints, *, context) -> list[bool]:
        steps = [checkpoint.step for checkpoint in checkpoints]
        last, every = self._average
        averaged = sorted(step for step in steps if step % every == 0)[-last:] if last else []
        kept = {*sorted(steps)[-self._keep :], *averaged, self._lowest_loss(steps)}
        return [step in kept for step in steps]

    def _lowest_loss(self, steps: list[int]) -> int | None:
        losses = {}
        for step in steps:
            with contextlib.suppress(DamagedCheckpoint):
                losses[step] = self._content(step)['dev_loss']
        losses = {step: loss for step, loss in losses.items() if loss is not None}
        return min(losses, key=losses.get, default=None)


def _shapes(tree):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _hash_files(folder: epath.Path) -> dict[str, str]:
    files = (root / name for root, _, names in folder.walk() for name in names)
    return {str(path.relative_to(folder)): _hash_file(path) for path in files}


def _hash_file(path: epath.Path) -> str:
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def _hash_json(content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
