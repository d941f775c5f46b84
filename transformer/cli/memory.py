"""Tunes malloc and the garbage collector for JAX (CPU only)."""

import atexit
import ctypes
import gc
import os

# The parameters M_MMAP_THRESHOLD, M_TRIM_THRESHOLD (-1: never) and M_ARENA_MAX of mallopt(3).
MALLOC = {-3: 2**31 - 1, -1: -1, -8: 1}
GARBAGE = (50_000, 20, 100)  # for gc.set_threshold; the default of Python 3.11 is (700, 10, 10)


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory, unless the environment configures malloc.

    On CPUs an update allocates its memory when it begins and frees it when it ends. By default glibc returns
    the memory to the system, and the next update waits for new pages, up to a third of its time for a small
    model. All threads share one heap, because glibc keeps freed memory only in the first heap.
    """
    if {'GLIBC_TUNABLES', 'MALLOC_ARENA_MAX'} & set(os.environ):
        return
    if change := getattr(ctypes.CDLL(None), 'mallopt', None):
        for parameter, value in MALLOC.items():
            change(parameter, value)


def collect_rarely() -> None:
    """Makes Python look for cyclic garbage less often, and not at exit.

    Tracing a model creates so many small objects that by default Python spends a sixth of the time until the
    first result on checking them, and checks all of them again at exit.
    """
    gc.set_threshold(*GARBAGE)
    atexit.register(gc.freeze)
