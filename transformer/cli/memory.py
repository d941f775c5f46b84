"""How this process takes memory, and gives it back."""

import atexit
import ctypes
import gc
import os

# Numbers of mallopt(3): M_MMAP_THRESHOLD, M_TRIM_THRESHOLD (-1: never) and M_ARENA_MAX.
MALLOC = {-3: 2**31 - 1, -1: -1, -8: 1}
GARBAGE = (50_000, 20, 100)  # of gc.set_threshold; those of Python 3.11 are (700, 10, 10)


def keep_freed_memory() -> None:
    """Keeps freed memory for the next program, where the C library is glibc and nothing else was asked of it.

    On CPUs an update takes its memory when it begins and frees it when it ends. glibc gives so much back
    to the system at once, and the next update waits while its pages are made anew: up to a third of the
    time of a small model's update. All threads share one heap, because only the first one can be kept.
    """
    if {'GLIBC_TUNABLES', 'MALLOC_ARENA_MAX'} & set(os.environ):
        return
    if change := getattr(ctypes.CDLL(None), 'mallopt', None):
        for parameter, value in MALLOC.items():
            change(parameter, value)


def collect_rarely() -> None:
    """Lets Python look for cycles of garbage less often, and not when it ends.

    Tracing a model keeps so many small objects that by default Python spends a sixth of the time until the
    first result on looking through them, and does so once more at the end.
    """
    gc.set_threshold(*GARBAGE)
    atexit.register(gc.freeze)
