"""Checkpoints: saved in the background, verified by hash when read; a crash loses none that was finished.

A step is a folder `<workdir>/checkpoints/<step>` with the Orbax items `params`, `optimizer`, `meta` (JSON),
`ema` if there is a moving average of the parameters, and `carried` if the next batch continues states of the
model. `meta` contains the hashes of all items, its own included, because Orbax restores a flipped bit without
an error. `files.json` has the hash of each file, verified before Orbax reads it, because its threads print
tracebacks at a damaged file. Orbax gives the folder its final name only when the step is complete.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from transformer import files
from transformer.config import ConfigError
from transformer.runs import retention
from transformer.runs.hashes import add_leaf, fingerprint, folder_sha256, named_leaves

# Hides Orbax's log: it warns about read-only folders, and logs tracebacks of exceptions that it also raises.
logging.get_absl_logger().addFilter(lambda record: not record.pathname.startswith(ocp.__path__[0]))


# The key in `meta` of the config that made a checkpoint. Checkpoints of earlier versions lack it.
CONFIG = 'config'


class DamagedCheckpoint(ConfigError):
    """A checkpoint cannot be read or differs from the saved arrays and JSON."""

    def __init__(self, step: int, reason: str):
        super().__init__(f'checkpoint {step} is damaged: {reason}')
        self.step = step


class Saved(NamedTuple):
    """The content of a checkpoint. Items that were not read are None."""

    step: int
    meta: dict[str, Any]
    params: Any = None
    optimizer: Any = None
    ema: Any = None
    carried: Any = None


class Checkpoints:
    """The checkpoints of one run: the latest `keep`, the best, and those to be averaged.

    Only process 0 writes. In other processes, and with `read_only`, `save` has no effect.

    Args:
      folder: `<workdir>/checkpoints`, created if it is missing.
      keep: the number of latest steps to keep, at least 1.
      average: (last, every): also keeps the latest `last` multiples of `every`.
      read_only: whether to leave the folder untouched.
    """

    def __init__(
        self, folder: epath.PathLike, keep: int, average: tuple[int, int] = (0, 1), *, read_only: bool = False
    ):
        index = jax.process_index()
        # Orbax refuses relative paths.
        self._folder = epath.Path(folder).resolve()
        self._keep, self._average = keep, average
        self._writes = not read_only and index == 0
        self._writer = concurrent.futures.ThreadPoolExecutor(1, 'checkpoint')
        self._pending: concurrent.futures.Future | None = None
        self._unreadable: set[int] = set()
        if self._writes:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._recover()
        options = ocp.CheckpointManagerOptions(
            create=False,
            read_only=not self._writes,
            # Deletion is not atomic: steps are renamed first, so that a kill leaves no incomplete step.
            todelete_subdir='deleted' if self._writes else None,
            # Our own thread does the whole save, including the hashes.
            enable_async_checkpointing=False,
            # Orbax's BestN reads costs from a file that no hash protects.
            preservation_policy=self,
            # Each process works alone: without barriers, no process can wait for another.
            multiprocessing_options=ocp.options.MultiprocessingOptions(index, {index}, f'{index}'),
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    def save(
        self,
        step: int,
        params,
        optimizer,
        meta: dict,
        cost: float | None = None,
        ema=None,
        carried=None,
        *,
        provisional: bool = False,
    ) -> None:
        """Saves a step in the background, replacing it if it exists, after waiting for a save in progress.

        The arrays can be donated as soon as this returns.

        Args:
          meta: JSON values to save with the arrays.
          cost: a number such as the dev loss. The step with the lowest finite cost is the best.
          provisional: whether the cost counts only until a later step is saved, as for a last step between
            two evaluations: a continued training must choose as if it had not stopped.

        Raises:
          OSError: the save in progress failed.
        """
        if not self._writes:
            return
        self.wait()
        # Copies, because `device_get` returns views of CPU arrays, and returns numpy arrays unchanged.
        items = {'params': params, 'optimizer': optimizer, 'ema': ema, 'carried': carried}
        items = {item: tree for item, tree in items.items() if tree is not None}
        arrays = jax.tree.map(np.array, jax.device_get(items))
        cost = float(cost) if cost is not None and math.isfinite(cost) else None
        content = {'step': int(step), 'cost': cost, 'provisional': provisional, 'meta': meta}
        content = json.loads(json.dumps(content))
        self._pending = self._writer.submit(self._write, int(step), arrays, content)

    def wait(self) -> None:
        """Waits until the last save is on disk. Raises OSError if it failed."""
        error = self._pending and self._pending.exception()
        self._pending = None
        if error:
            raise error

    def steps(self) -> list[int]:
        """Waits for a save in progress, and returns the finished steps in ascending order."""
        self.wait()
        self._manager.reload()
        return sorted(self._manager.all_steps())

    def best(self, steps: Sequence[int] | None = None) -> int | None:
        """Returns the step with the lowest cost, the earliest of equals, or None if no step has a cost.

        Args:
          steps: an earlier result of `steps()`, or None for the present one.
        """
        steps = self.steps() if steps is None else steps
        return retention.best_step(retention.costs(self._contents(steps), max(steps, default=None)))

    def restore(self, step: int, like: dict[str, Any]) -> Saved:
        """Reads and verifies items of a step as numpy arrays, which jit and pmap can donate.

        Args:
          like: a tree of shapes and types (ShapeDtypeStruct) for each item: `params`, `optimizer`, `ema` or
            `carried`.

        Raises:
          DamagedCheckpoint: the step is unreadable, or differs from the saved step or from `like`.
        """
        content = self.content(step)
        trees = {}
        for item, its_like in like.items():
            # Without a sharding, Orbax ignores `like` and returns numpy arrays of the saved shapes.
            shapes = _shapes(its_like)
            trees[item] = self._read(step, item, ocp.args.StandardRestore(shapes))
            if fingerprint(trees[item]) != content.get(item) or _shapes(trees[item]) != shapes:
                raise DamagedCheckpoint(step, f'{item}: not what was saved or asked for')
        return Saved(step, content['meta'], **trees)

    def restore_newest(self, like: dict[str, Any]) -> Saved | None:
        """Reads the newest undamaged step, or returns None if there is no step.

        A warning names newer, damaged steps; a process that writes moves them to `<workdir>/damaged`.

        Raises:
          ConfigError: all steps are damaged, so none is moved.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                saved = self.restore(step, like)
            except DamagedCheckpoint as error:
                damaged.append(error)
                continue
            for bad in damaged:
                logging.warning('%s: %s; using %d', self._folder, bad, step)
                if self._writes:
                    self._move(bad.step, self._folder.parent / 'damaged')
            return saved
        if damaged:
            raise ConfigError(f'{self._folder}: {"; ".join(map(str, damaged))}; none is left')
        return None

    def content(self, step: int) -> dict[str, Any]:
        """Reads and verifies the JSON of a step.

        It contains `step`, `cost` (`dev_loss` in older files), `meta`, and the fingerprints of items by name.

        Raises:
          DamagedCheckpoint: as in `restore`.
        """
        self.wait()
        return self._content(step)

    def stream_params(self, step: int, like_params) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the parameters of a step one array at a time, sorted by path.

        The hash is verified after the last array, so results must not be used before then.

        Raises:
          DamagedCheckpoint: as in `restore`.
        """
        saved_hash, digest = self.content(step)['params'], hashlib.sha256()
        with self._reading(step, 'params'):
            self._check_files(step, 'params')
        for name, like in sorted(named_leaves(like_params).items()):
            array = self._array(step, name, like)
            add_leaf(digest, name, array)
            yield name, array
        if digest.hexdigest() != saved_hash:
            raise DamagedCheckpoint(step, 'params: not what was saved or asked for')

    def close(self) -> None:
        """Waits for a save in progress, and ends the threads."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()
            self._manager.close()

    def _write(self, step: int, arrays: dict[str, Any], content: dict[str, Any]) -> None:
        content |= {item: fingerprint(tree) for item, tree in arrays.items()}
        meta = ocp.args.JsonSave({'content': content, 'sha256': files.json_sha256(content)})
        trees = {item: ocp.args.StandardSave(tree) for item, tree in arrays.items()}
        items = ocp.args.Composite(meta=meta, **trees)
        try:
            self._recover()
            if os.path.isdir(self._folder):
                # Checked here because Orbax's threads print tracebacks. Orbax writes about this many bytes.
                size = sum(array.nbytes for array in jax.tree.leaves(arrays))
                if size > shutil.disk_usage(self._folder).free:
                    raise OSError(f'No space left on device for {size:,} bytes')
            if (self._folder / str(step)).exists():
                self._move(step, self._folder / 'replaced')
            with _no_late_tracebacks():
                self._manager.save(step, args=items, force=True)
            folder = self._folder / str(step)
            hashes = {item: folder_sha256(folder / item) for item in (*arrays, 'meta')}
            files.write_text(folder / 'files.json', json.dumps(hashes, indent=1))
            self._recover()
        except Exception as error:
            # TensorStore can still be writing into the folder that is removed here.
            with contextlib.suppress(OSError):
                self._recover()
            # TensorStore's ValueError ends as `...: <path>: No space left on device [...]`.
            reason = getattr(error, 'strerror', None) or str(error).rsplit(': ', 1)[-1]
            raise OSError(f'{self._folder}: checkpoint {step} was not written: {reason}') from error

    def _recover(self) -> None:
        """Restores steps that an unfinished save was replacing, and removes leftovers."""
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
        """Reads one array of a step's parameters, by its path in `named_leaves`."""
        tree = like
        for key in reversed(name.split('/')):
            tree = {key: tree}
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        args = ocp.args.PyTreeRestore(item=tree, restore_args=as_numpy, partial_restore=True)
        with self._reading(step, 'params'):
            restored = ocp.PyTreeCheckpointHandler().restore(self._folder / str(step) / 'params', args=args)
            array = jax.tree.leaves(restored)[0]
            # A missing array is returned as `like` itself.
            if array is like or _shapes(array) != _shapes(like):
                raise DamagedCheckpoint(step, 'params: not what was saved or asked for')
            return array

    def _check_files(self, step: int, item: str) -> None:
        hashes = self._folder / str(step) / 'files.json'
        # A killed save can leave a step without this file. The hash in `meta` is still checked.
        saved = files.read_json(hashes, {'*': {'*': str}})[item] if hashes.exists() else {}
        if not saved.items() <= folder_sha256(hashes.parent / item).items():
            raise DamagedCheckpoint(step, f'{item}: a file is missing or changed')

    @contextlib.contextmanager
    def _reading(self, step: int, item: str) -> Iterator[None]:
        try:
            yield
        except DamagedCheckpoint:
            raise
        # Orbax, TensorStore and JSON raise many kinds of errors: KeyError, ValueError, UnicodeError, ...
        except Exception as error:
            raise DamagedCheckpoint(step, f'{item}: unreadable ({type(error).__name__})') from error

    def _content(self, step: int) -> dict[str, Any]:
        stored = self._read(step, 'meta', ocp.args.JsonRestore())
        content = stored.get('content') if isinstance(stored, dict) else None
        if (
            not isinstance(content, dict)
            or files.json_sha256(content) != stored.get('sha256')
            or content['step'] != step
        ):
            raise DamagedCheckpoint(step, 'meta: not what was saved')
        return content

    def should_preserve(self, checkpoints, *, context) -> list[bool]:
        """Returns whether to keep each step: Orbax's interface of a preservation policy."""
        del context
        steps = [checkpoint.step for checkpoint in checkpoints]
        contents = self._contents(steps)
        # A step that cannot be read now may be the best.
        retained = set(steps) - contents.keys()
        for step in retained - self._unreadable:
            logging.warning('%s: checkpoint %d cannot be read, and is kept', self._folder, step)
        self._unreadable = retained.copy()
        # Keeps the best now, and the best once a later step is saved.
        for newest in (max(steps), None):
            costs = retention.costs(contents, newest)
            retained |= retention.retained_steps(steps, costs, self._keep, self._average)
        return [step in retained for step in steps]

    def _contents(self, steps: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Reads the JSON of each step that can be read. A damaged checkpoint cannot be the best."""
        contents = {}
        for step in steps:
            with contextlib.suppress(DamagedCheckpoint):
                contents[step] = self._content(step)
        return contents


@contextlib.contextmanager
def _no_late_tracebacks() -> Iterator[None]:
    """Hides the tracebacks of operations that end after a failed save, which TensorStore prints."""
    before = sys.unraisablehook

    def report(unraisable) -> None:
        if str(unraisable.exc_value) != 'Event loop is closed':
            before(unraisable)

    sys.unraisablehook = report
    yield
    # Not after an error, because other operations can end later.
    sys.unraisablehook = before


def _shapes(tree):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
