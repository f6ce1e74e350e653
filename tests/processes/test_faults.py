"""Ranks that die, go silent or are told to stop: the others end in time, and say who it was."""

import json
import os
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.analysis import run_records
from app.cluster.failure_detector import FailureDetector, listen
from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.errors import PeerLostError
from app.machine.interrupt import end_on_signal
from app.modes import MODES
from app.settings.settings import Settings
from app.tools.faults import sayings
from tests.processes import group
from tests.processes.group import Ranks, run_group
from tests.processes.program import processes

# These run their rounds as ring_all_reduce does (app/sync/rounds.py).
AS_THE_RING = {
    "tree",
    "recursive_doubling",
    "halving_doubling",
    "hierarchical",
    "parameter_server",
    "gathered_all_reduce",
}
OPERATION = re.compile(
    r" during (barrier|(all-reduce|broadcast|gather|scatter|send|receive) of \d+ bytes.*|training with \w+) "
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


@pytest.mark.parametrize(
    ("mode", "victims"),
    [
        ("gather_scatter", [0, 2]),
        ("send_recv", [3]),
        ("all_reduce", [1, 2]),
        ("flat_all_reduce", [1]),
        ("ring_all_reduce", [0]),
        ("ring_all_reduce", [2]),
        ("bucketed_all_reduce", [1, 2]),
        ("ddp", [0, 3]),
        ("ddp", [2]),
    ],
)
def test_killed_ranks_are_named_by_all_others(folder: Path, mode: str, victims: list[int]) -> None:
    ranks = Ranks(folder, 4, SYNC_MODE=mode, EPOCHS=1_000_000, EVALUATE="never", PEER_TIMEOUT=60)
    ranks.start()
    run_until(ranks, 5)
    for victim in victims:
        ranks.processes[victim].kill()
    for rank, (code, output) in ranks.wait().items():
        if rank not in victims:
            assert code == 1, output
            assert named_by(rank, output) == victims, output
            assert OPERATION.search(output), output
            assert "Traceback" not in output
    if 0 not in victims:
        assert ranks.summary()["complete"] is False
        assert ranks.summary()["steps"] >= 4  # the ranks beside rank 0 may be a record behind it


def test_every_mode_that_synchronises_is_tried() -> None:
    (mark,) = test_killed_ranks_are_named_by_all_others.pytestmark  # type: ignore[attr-defined]
    assert {mode for mode, _ in mark.args[1]} == set(MODES) - {"none"} - AS_THE_RING


def named_by(rank: int, output: str) -> list[int]:
    """The ranks that a rank says it has lost."""
    found = re.search(rf"^error: \[rank-lost\] rank {rank}: lost ((rank \d+ \([^)]*\)(, )?)+)", output, re.MULTILINE)
    return [int(each) for each in re.findall(r"rank (\d+) \(", found[1])] if found else []


@pytest.mark.parametrize(("mode", "sleeper"), [("none", 2), ("ring_all_reduce", 0), ("ddp", 1)])
def test_a_silent_rank_is_lost_after_the_peer_timeout_and_says_so_when_it_wakes(
    folder: Path, mode: str, sleeper: int
) -> None:
    """Rank 0 as well, without which there is no store and no report."""
    ranks = Ranks(folder, 3, SYNC_MODE=mode, EPOCHS=1_000_000, EVALUATE="never", PEER_TIMEOUT=4)
    ranks.start()
    run_until(ranks, 5)
    ranks.processes[sleeper].send_signal(signal.SIGSTOP)
    try:
        for rank in {0, 1, 2} - {sleeper}:
            code, output = group.wait(ranks.processes[rank])
            assert code == 1, output
            assert named_by(rank, output) == [sleeper], output
            assert "Traceback" not in output
        ranks.processes[sleeper].send_signal(signal.SIGCONT)
        code, output = group.wait(ranks.processes[sleeper])
        assert code == 1, output
        assert f"error: [rank-lost] rank {sleeper}: the other ranks {sayings.LATE}" in output
        assert "lost rank" not in output
    finally:
        ranks.processes[sleeper].kill()


def unheard_above_1023(cluster: Cluster) -> list[list[int]]:
    """By two failure detectors whose descriptors are beyond what select() takes."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(1024):
        os.open(os.devnull, os.O_RDONLY)
    sockets = [listen("127.0.0.1") for _ in range(2)]
    addresses = [each.getsockname() for each in sockets]
    calls = [FailureDetector(each, rank, addresses, "password", 60) for rank, each in enumerate(sockets)]
    for each in calls:
        each.start(lambda _: None)
    return [each.unheard(time.monotonic() + group.PATIENCE_SECONDS / 2) for each in calls]


def test_a_failure_detector_hears_others_in_a_process_with_a_thousand_open_files() -> None:
    assert run_group(1, unheard_above_1023) == [[[], []]]


def hang(cluster: Cluster, outputs: Path) -> None:
    """A training that never comes to an operation in which it could notice anything."""
    os.dup2(os.open(outputs / str(cluster.rank), os.O_WRONLY | os.O_CREAT), 2)
    if cluster.rank == 1:
        cluster.detector.give_up("the disk is full")
        os._exit(1)
    with cluster.watching("a long wait", lambda: "at step 5"):
        time.sleep(group.PATIENCE_SECONDS)


def test_a_rank_that_hangs_for_another_reason_is_ended_after_a_loss_and_says_where_it_was(tmp_path: Path) -> None:
    assert run_group(3, hang, tmp_path) == [None, None, None]
    for rank in (0, 2):
        told = (tmp_path / str(rank)).read_text()
        assert re.match(
            rf"error: \[rank-lost\] rank {rank}: lost rank 1 \(.*\) during a long wait at step 5: it ended: ", told
        ), told


def be_stopped_after_a_loss(rank: int, port: int, output: Path) -> None:
    """As long as nothing else ends it, this rank hangs, and would be ended by the failure detector a little later."""
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 2)
    clean_ups = end_on_signal()
    settings = Settings.of(rank=rank, world_size=3, master_addr="127.0.0.1", master_port=port, join_timeout=60)
    cluster = join(settings, identify(settings.place), lambda _: None, clean_ups)
    if rank == 1:
        cluster.detector.give_up("the disk is full")
        os._exit(1)
    while cluster.detector.loss is None:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(group.PATIENCE_SECONDS)


def test_a_rank_that_is_stopped_after_a_loss_names_it(tmp_path: Path) -> None:
    """Whoever started the ranks stops all as soon as one of them has failed."""
    port = group.free_port()
    ranks = [
        processes.Process(target=be_stopped_after_a_loss, args=(rank, port, tmp_path / str(rank)), daemon=True)
        for rank in range(3)
    ]
    for each in ranks:
        each.start()
    for number, each in enumerate(ranks):
        each.join(group.PATIENCE_SECONDS)
        assert each.exitcode == 1
        if number != 1:
            told = (tmp_path / str(number)).read_text()
            assert re.fullmatch(
                rf"error: \[rank-lost\] rank {number}: lost rank 1 .*: it ended: the disk is full\n.*\n", told
            ), told


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
    refusal = re.compile(r"error: \[cannot-write\] rank (\d): .*results/\S+/rank-\1.jsonl.*File too large.*\n")
    saying = [rank for rank, (_, output) in told.items() if refusal.search(output)]
    assert saying
    assert set(saying) <= set(full)
    for rank, (_, output) in told.items():
        assert "Traceback" not in output, output
        assert ("no report was written: " in output) is (rank == 0 and 0 in full)
        if rank not in full:
            assert named_by(rank, output) == full
            assert re.search(rf"it ended: rank {full[0]}: .*results/", output)  # and not only that it is gone
    assert all(len(rank.steps) >= 4 for rank in run_records.read(folder / "results/latest").ranks)
    assert (folder / "results/latest/report.html").is_file() is (0 not in full)


def test_a_run_whose_folder_is_removed_ends_and_says_so(folder: Path) -> None:
    ranks = Ranks(folder, 2, SYNC_MODE="ddp", EPOCHS=1_000_000, EVALUATE="never")
    ranks.start()
    run_until(ranks, 5)
    shutil.rmtree(folder / "results")
    for rank, (code, output) in ranks.wait().items():
        assert code == 1, output
        assert "Traceback" not in output, output
        assert f"rank-{rank}.jsonl was removed" in output or named_by(rank, output), output


def test_a_run_whose_folder_is_renamed_does_not_succeed_without_a_report(folder: Path) -> None:
    ranks = Ranks(folder, 2, SYNC_MODE="all_reduce", MAX_STEPS=40, EPOCHS=10, EVALUATE="never", LOG_EVERY=1)
    ranks.start()
    run_until(ranks, 5)
    run = (folder / "results/latest").resolve()
    run.rename(folder / "results/mine")
    outcomes = ranks.wait()
    assert outcomes[0][0] == 1, outcomes
    assert f"error: [cannot-write] rank 0: results/{run.name} and its records were" in outcomes[0][1]


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


def test_a_rank_that_saves_nothing_stops_at_once_when_told_to_and_keeps_its_records(folder: Path) -> None:
    ranks = Ranks(folder, 2, SYNC_MODE="all_reduce", EPOCHS=1_000_000, EVALUATE="never", CHECKPOINT_EVERY=0)
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
