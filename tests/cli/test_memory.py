"""Freed memory stays with the process, and garbage is collected rarely."""

import os
import platform
import resource
import subprocess
import sys

import pytest

CHILD = """
import resource
import numpy as np
from transformer.cli import memory
memory.keep_freed_memory()
np.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='only glibc has mallopt')
@pytest.mark.parametrize(('asked', 'kept'), [({}, True), ({'MALLOC_ARENA_MAX': '8'}, False)])
def test_freed_memory_is_kept(asked, kept):
    environment = {k: v for k, v in os.environ.items() if k not in ('GLIBC_TUNABLES', 'MALLOC_ARENA_MAX')}
    found = subprocess.run(
        [sys.executable, '-c', CHILD], env=environment | asked, capture_output=True, text=True, check=True
    )
    pages = 8 * 2**24 // resource.getpagesize()
    # With huge pages of the system's own choice, a page is 512 of these.
    assert (int(found.stdout) < pages // 1024) == kept


def test_garbage_is_looked_for_rarely_and_not_at_the_end():
    program = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 1000))
from transformer.cli import memory
memory.collect_rarely()
print(gc.get_threshold() == memory.GARBAGE, gc.isenabled())
"""
    found = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert found.stdout == 'True True\nTrue\n'
