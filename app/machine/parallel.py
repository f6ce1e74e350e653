"""Runs independent work on all cores, in processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import psutil

BYTES_EACH = 2**30  # of memory per item


def on_all_cores[Item, Found](work: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[Found]:
    """The result for each item, in order. Items and results must be picklable.

    The processes are forked, so import torch before if they need it.
    """
    fit_in_memory = int(psutil.virtual_memory().available // BYTES_EACH)
    processes = min(len(items), len(os.sched_getaffinity(0)), fit_in_memory)
    if processes < 2:
        yield from map(work, items)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"))
    try:
        yield from pool.map(work, items)
    except BaseException:  # including an interrupt: do not wait for running work
        for each in multiprocessing.active_children():
            each.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
