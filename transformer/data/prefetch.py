"""Builds the next batches ahead, in a thread."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from transformer.data.batches import Batches
from transformer.tokens import Batch

Placed = TypeVar('Placed')


def prefetch(
    batches: Batches, start: int, stop: int, put: Callable[[Batch], Placed], process: tuple[int, int] = (0, 1)
) -> Iterator[Placed]:
    """Builds the batches of steps [start, stop) in a thread and yields each as `put` places it.

    An error of the thread is raised here; closing the iterator ends the thread.

    Args:
      put: places a batch on the devices; the thread calls it.
      process: (index, count): builds only part `index` of `count` equal parts of each batch's rows.
    """
    ready = queue.Queue(2)  # the most batches that wait
    closed = threading.Event()

    def work():
        try:
            for step in range(start, stop):
                share = batches.rows(step) // process[1]
                part = slice(process[0] * share, (process[0] + 1) * share)
                ready.put((put(batches.batch(step, part)), None))
                if closed.is_set():
                    return
        except BaseException as error:
            # Any error must be passed on, because the reader waits for an item.
            ready.put((None, error))

    thread = threading.Thread(target=work, name='prefetch', daemon=True)
    thread.start()
    try:
        for _ in range(start, stop):
            item, error = ready.get()
            if error:
                raise error
            yield item
    finally:
        closed.set()
        # Empties the queue, because the thread can be waiting to put one more batch.
        while not ready.empty():
            ready.get_nowait()
        thread.join()
