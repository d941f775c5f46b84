"""Functions in processes of their own, so that what they are compared with does not slow them."""

import concurrent.futures
import contextlib
import multiprocessing
import signal
from collections.abc import Callable

from transformer.cli import memory

_function: Callable | None = None  # what this process calls, if `start` began it


def start(
    stack: contextlib.ExitStack, make: Callable[..., Callable], *arguments, keeps_memory: bool = True
) -> Callable:
    """The function that `make(*arguments)` gives, in a process of its own, which lives as long as the stack.

    What goes wrong there is raised here.

    Args:
      keeps_memory: whether freed memory is kept there, as it is in our programs (heap.py).
    """
    # At Ctrl-C it ends without a traceback.
    begin = signal.signal, (signal.SIGINT, signal.SIG_DFL)
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn'), *begin)
    stack.callback(pool.shutdown)
    pool.submit(_begin, keeps_memory, make, *arguments).result()
    return lambda *given: pool.submit(_call, *given).result()


def _begin(keeps_memory: bool, make: Callable[..., Callable], *arguments) -> None:
    global _function
    if keeps_memory:
        memory.keep_freed_memory()
    _function = make(*arguments)


def _call(*given) -> object:
    return _function(*given)
