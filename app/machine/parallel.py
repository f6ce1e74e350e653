"""Independent pieces of work on all cores at once, in processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import psutil

BYTES_EACH = 2**30  # of memory that a piece of work may take


def on_all_cores[Item, Found](work: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[Found]:
    """What the work finds for each item, in their order. Both travel between processes.

    The processes begin as copies of this one: what they need of torch is to be there before.
    """
    fit_in_memory = int(psutil.virtual_memory().available // BYTES_EACH)
    processes = min(len(items), len(os.sched_getaffinity(0)), fit_in_memory)
    if processes < 2:
        yield from map(work, items)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"))
    try:
        yield from pool.map(work, items)
    except BaseException:  # an interrupt as well: what is under way is not waited for
        for each in multiprocessing.active_children():
            each.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
