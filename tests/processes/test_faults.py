"""Ranks that die, go silent or are told to stop: the others end in time, and say who it was."""

import json
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cluster.members import Cluster
from app.errors import PeerLostError
from app.modes import MODES
from app.summary import run_records
from tests.processes import group
from tests.processes.group import Ranks, run_group

SYNCHRONISING = [name for name in MODES if name != "none"]
OPERATION = re.compile(
    r" during (barrier|(all-reduce|broadcast|gather|scatter|send|receive) of \d+ bytes.*|ddp's own communication) "
    r"at step \d+: "
)


def step_of(folder: Path, rank: int) -> int:
    """The number of steps that a rank has recorded."""
    path = folder / f"results/latest/rank-{rank}.jsonl"
    return path.read_text().count('"kind": "step"') if path.is_file() else 0


def run_until(ranks: Ranks, step: int) -> None:
    deadline = time.monotonic() + group.PATIENCE_SECONDS
    while step_of(ranks.folder, 0) < step:
        assert time.monotonic() < deadline, "the run did not get going"
        assert all(process.poll() is None for process in ranks.processes.values()), ranks.wait()
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    group.prepare(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mode", SYNCHRONISING)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_by_the_others(folder: Path, mode: str, victim: int) -> None:
    ranks = Ranks(folder, 3, SYNC_MODE=mode, EPOCHS=1_000_000, EVALUATE="never", PEER_TIMEOUT=60)
    ranks.start()
    run_until(ranks, 5)
    ranks.processes[victim].kill()
    outcomes = ranks.wait()
    for rank, (code, output) in outcomes.items():
        if rank != victim:
            assert code == 1, output
            assert f"rank {rank}: lost rank {victim} (" in output
            assert OPERATION.search(output), output
            assert "Traceback" not in output
    if victim != 0:
        assert ranks.summary()["complete"] is False
        assert ranks.summary()["steps"] >= 4  # the ranks beside rank 0 may be a record behind it


@pytest.mark.parametrize("mode", ["ring_all_reduce", "ddp"])
def test_a_silent_rank_is_lost_after_the_peer_timeout(folder: Path, mode: str) -> None:
    ranks = Ranks(folder, 3, SYNC_MODE=mode, EPOCHS=1_000_000, EVALUATE="never", PEER_TIMEOUT=4)
    ranks.start()
    run_until(ranks, 5)
    ranks.processes[1].send_signal(signal.SIGSTOP)
    try:
        for rank in (0, 2):
            code, output = group.wait(ranks.processes[rank])
            assert code == 1, output
            assert "lost rank 1 (" in output
    finally:
        ranks.processes[1].kill()
        ranks.processes[1].communicate()


@pytest.mark.parametrize("full", [[0], [1], [0, 1]])
def test_a_rank_that_cannot_write_says_so_in_a_line_and_what_it_wrote_stays(folder: Path, full: list[int]) -> None:
    """No file may grow any more, as on a full disk."""
    ranks = Ranks(folder, 2, SYNC_MODE="ddp", EPOCHS=1_000_000, EVALUATE="never")
    ranks.start()
    run_until(ranks, 5)
    for rank in full:
        size = (folder / f"results/latest/rank-{rank}.jsonl").stat().st_size + 700  # part of a record fits
        resource.prlimit(ranks.processes[rank].pid or 0, resource.RLIMIT_FSIZE, (size, size))
    told = ranks.wait()
    assert [code for code, _ in told.values()] == [1, 1]
    refusal = re.compile(
        r"error: rank (\d): results/\S+/rank-\1.jsonl cannot be written: File too large. "
        "Raise the limit on the size of files.\n"
    )
    saying = [rank for rank, (_, output) in told.items() if refusal.search(output)]
    assert saying
    assert set(saying) <= set(full)
    for rank, (_, output) in told.items():
        assert "Traceback" not in output, output
        assert ("the report of what was recorded could not be made: " in output) is (rank == 0 and 0 in full)
    assert all(len(rank.steps) >= 4 for rank in run_records.read(folder / "results/latest").ranks)
    assert (folder / "results/latest/report.html").is_file() is (0 not in full)


def lose_rank_0(cluster: Cluster, step: Callable[[Cluster], object]) -> str | None:
    if cluster.rank == 0:
        os._exit(1)
    with pytest.raises(PeerLostError) as lost:
        step(cluster)
    return str(lost.value)


def exchange(cluster: Cluster) -> None:
    cluster.exchange("subject", "value")


def leave(cluster: Cluster) -> None:
    with cluster.until_the_end():
        pass


@pytest.mark.parametrize("step", [exchange, leave])
def test_rank_0_is_missed_by_all_wherever_they_need_it(step: Callable[[Cluster], object]) -> None:
    for rank, message in enumerate(run_group(3, lose_rank_0, step)):
        if rank != 0:
            assert message is not None
            assert f"rank {rank}: lost rank 0 (" in message
            assert "lost rank 0 (" in message.partition("during")[0]


def test_a_rank_that_is_told_to_stop_does_so_at_once_and_keeps_its_records(folder: Path) -> None:
    ranks = Ranks(folder, 2, SYNC_MODE="all_reduce", EPOCHS=1_000_000, EVALUATE="never")
    ranks.start()
    run_until(ranks, 5)
    ranks.processes[1].send_signal(signal.SIGSTOP)  # so that rank 0 waits inside the backend
    ranks.processes[0].terminate()
    code, output = group.wait(ranks.processes[0])
    ranks.processes[1].kill()
    ranks.processes[1].communicate()
    assert code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in output
    assert ranks.summary()["complete"] is False
    for line in (folder / "results/latest/rank-0.jsonl").read_text().splitlines():
        assert json.loads(line)["kind"] in ("clock", "step", "usage")
