"""The scheduler's account: a thread without a CPU waits, and what a quota takes is not what others take."""

import multiprocessing
import os
import threading
import time

import pytest

from app.machine.scheduler import Threads
from app.training.processor import lost


@pytest.mark.parametrize(
    ("delay", "throttled", "to_others", "to_quota"),
    [
        (0.5, 0.0, 0.5, 0.0),
        (0.5, 0.2, 0.3, 0.2),
        (0.5, 0.9, 0.0, 0.5),  # the kernel sums a quota's time over CPUs
        (0.5, None, 0.5, None),
        (None, 0.2, None, None),
    ],
)
def test_a_delay_is_divided_without_remainder(
    delay: float | None, throttled: float | None, to_others: float | None, to_quota: float | None
) -> None:
    divided = lost(delay, throttled)
    assert divided.to_others == (None if to_others is None else pytest.approx(to_others))
    assert divided.to_quota == to_quota


def spin() -> None:
    while True:
        pass


def test_who_shares_a_core_with_three_others_waits_for_it_longer_than_it_has_it() -> None:
    """However busy the machine is, because that can only make it wait longer."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    others = [multiprocessing.get_context("fork").Process(target=spin, daemon=True) for _ in range(3)]
    try:
        for other in others:
            other.start()  # on the same core
        threads = Threads()
        delayed, used = threads.own_delay(), time.thread_time()
        assert delayed is not None
        while time.thread_time() - used < 0.1:
            pass
        waited = (threads.own_delay() or 0.0) - delayed
        assert waited > 1.5 * (time.thread_time() - used)
        assert threading.get_native_id() in threads.delays()
    finally:
        for other in others:
            other.kill()
            other.join()
        os.sched_setaffinity(0, cores)
