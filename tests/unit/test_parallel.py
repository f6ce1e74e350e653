"""Work on all cores: the same as one after another, and an end for whatever goes wrong."""

import multiprocessing
import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest

from app.machine.parallel import on_all_cores

BEGUN = multiprocessing.get_context("fork").Event()


def squared(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def refused(number: int) -> int:
    if number == 3:
        raise ValueError("not three")
    return number


def refused_while_another_waits(number: int) -> int:
    if number == 0:
        BEGUN.set()
        signal.pause()
    BEGUN.wait(60)
    raise ValueError("no more")


def killed(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_what_is_found_comes_in_the_order_of_the_items() -> None:
    found = list(on_all_cores(squared, list(range(50))))
    assert [number for number, _ in found] == [number * number for number in range(50)]
    alone = len(os.sched_getaffinity(0)) == 1
    assert (os.getpid() in {process for _, process in found}) is alone


def test_nothing_and_one_thing_need_no_process() -> None:
    assert list(on_all_cores(squared, [])) == []
    assert list(on_all_cores(squared, [3])) == [(9, os.getpid())]


def test_an_error_in_the_work_is_raised_here() -> None:
    with pytest.raises(ValueError, match="not three"):
        list(on_all_cores(refused, list(range(10))))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one core: no process is started")
def test_after_an_error_nothing_is_waited_for() -> None:
    work = on_all_cores(refused_while_another_waits, [1, 0])
    with pytest.raises(ValueError, match="no more"):
        next(work)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one core: no process is started")
def test_a_process_that_is_killed_is_noticed() -> None:
    with pytest.raises(BrokenProcessPool):
        list(on_all_cores(killed, list(range(4))))
