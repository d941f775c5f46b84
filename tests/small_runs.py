"""Options of a run that takes seconds, a wait for its progress, and a mark for tests that need SLURM."""

import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

SMALL = {
    'data.pieces': 300, 'model.vocab_size': 300, 'model.N': 1, 'model.d_model': 16, 'model.d_ff': 32,
    'data.batch_tokens': 512, 'train.steps': 4, 'train.eval_every': 2, 'train.log_every': 1,
    'decode.extra_len': 2,
}  # fmt: skip


def until(true: Callable[[], bool], seconds: float = 600) -> None:
    """Waits until a condition is true, and fails if it does not become true in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, 'it does not come to that'
        time.sleep(0.1)


def has_slurm() -> bool:
    return (
        shutil.which('sinfo') is not None and subprocess.run(['sinfo'], capture_output=True).returncode == 0
    )


needs_slurm = pytest.mark.skipif(not has_slurm(), reason='needs a SLURM that answers sinfo')
