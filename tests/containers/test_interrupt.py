"""Ctrl-C at any moment of a start: the script ends soon, and leaves nothing behind."""

import os
import random
import signal
import time

import pytest

from tests.containers.cluster import Clone

LATEST_SECONDS = 15.0
PATIENCE_SECONDS = 30  # the law is 10; a loaded machine gets more
FEW, MANY = 2, 50


def interrupt(clone: Clone, moment: float) -> None:
    process = clone.start("scripts/up", MODEL="lenet5", EPOCHS="1000000", EVALUATE="never", LINK_CHECK="off")
    time.sleep(moment)  # the moment is what is tried
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    print(f"after {moment:.2f} s: {time.monotonic() - began:.1f} s")
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "canceled" not in output
    assert clone.containers("--all") == []
    assert clone.networks() == []
    results = clone.folder / "results"
    assert not [run for run in results.glob("2*") if not any(run.iterdir())]
    assert not list(results.glob(".claim*"))


@pytest.mark.parametrize("half", range(FEW))
def test_ctrl_c_in_each_half_of_a_start_leaves_nothing_behind(used_clone: Clone, half: int) -> None:
    interrupt(used_clone, LATEST_SECONDS * (half + random.random()) / FEW)  # noqa: S311


@pytest.mark.long
def test_ctrl_c_at_fifty_moments_leaves_nothing_behind(clone: Clone) -> None:
    moments = random.Random(1)  # noqa: S311
    for _ in range(MANY):
        interrupt(clone, LATEST_SECONDS * moments.random())
