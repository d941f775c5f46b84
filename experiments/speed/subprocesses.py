"""Runs a function in its own process, so that compared functions do not slow each other."""

import concurrent.futures
import contextlib
import multiprocessing
import signal
from collections.abc import Callable

from transformer.cli import memory

_function: Callable | None = None  # set in the process that `start` starts


def start(
    stack: contextlib.ExitStack, make: Callable[..., Callable], *arguments, keeps_memory: bool = True
) -> Callable:
    """Makes a function in a process that ends with the stack, and returns a function that calls it there.

    Args:
      keeps_memory: whether the process keeps freed memory, as our programs do (`cli/memory.py`).
    """
    # On Ctrl-C the process ends without a traceback.
    begin = signal.signal, (signal.SIGINT, signal.SIG_DFL)
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn'), *begin)
    stack.callback(pool.shutdown)
    pool.submit(_begin, keeps_memory, make, *arguments).result()
    return lambda *values: pool.submit(_call, *values).result()


def _begin(keeps_memory: bool, make: Callable[..., Callable], *arguments) -> None:
    global _function
    if keeps_memory:
        memory.keep_freed_memory()
    _function = make(*arguments)


def _call(*values) -> object:
    return _function(*values)
