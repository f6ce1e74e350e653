"""Ranks that something else than Compose starts: by hand, mpirun, a list of nodes; on disks of their own."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.processes.group import free_port, wait
from tests.processes.program import PATIENCE_SECONDS, Process, Value, environment_with, start

RUN: dict[str, Value] = {
    "MODEL": "lenet5",
    "DATASET": "digits",
    "MAX_STEPS": 3,
    "LINK_CHECK": "off",
    "JOIN_TIMEOUT": 60,
}


def machine(folder: Path) -> Path:
    """The working directory of a node, where nothing has been prepared."""
    for part in ("results", "prepared", "data"):
        (folder / part).mkdir(parents=True)
    return folder


def results_of(processes: Iterable[Process]) -> list[tuple[int, str]]:
    return [wait(process) for process in processes]


def assert_whole(folder: Path, world_size: int) -> Path:
    """Rank 0's folder holds the whole run; the run's name is given back."""
    run = (folder / "results/latest").resolve()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["complete"]
    assert summary["world_size"] == world_size
    assert len(list(run.glob("rank-*.jsonl"))) == world_size
    assert (run / "report.html").is_file()
    assert not list(run.glob(".*"))
    return run


def test_ranks_started_by_hand_bring_their_records_to_rank_0(tmp_path: Path) -> None:
    port = free_port()
    folders = [machine(tmp_path / f"node{rank}") for rank in range(3)]
    ended = results_of(
        [
            start(f"train --master-ip 127.0.0.1 --num-nodes 3 --rank {rank} --master-port {port}", folder, **RUN)
            for rank, folder in enumerate(folders)
        ]
    )
    assert [code for code, _ in ended] == [0, 0, 0], ended
    run = assert_whole(folders[0], world_size=3)
    for rank, folder in enumerate(folders):
        own = folder / "results" / run.name / f"rank-{rank}.jsonl"
        assert own.read_bytes() == (run / own.name).read_bytes()
    assert "accuracy" in (run / "rank-2.jsonl").read_text()


def test_a_run_never_overwrites_one_of_the_same_name(tmp_path: Path) -> None:
    folder = machine(tmp_path)
    settings = RUN | {"RUN_NAME": "mine", "RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    assert wait(start("train", folder, **settings))[0] == 0
    first = (folder / "results/mine/rank-0.jsonl").read_bytes()
    code, output = wait(start("train", folder, **settings))
    assert code == 2
    assert "[run-exists] RUN_NAME=mine: results/mine " in output
    assert (folder / "results/mine/rank-0.jsonl").read_bytes() == first


def test_mpirun_starts_ranks_that_also_talk_by_mpi(tmp_path: Path) -> None:
    folder = machine(tmp_path)
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    ended = subprocess.run(
        [*mpirun, sys.executable, "-m", "app", "train"],
        cwd=folder,
        env=environment_with(RUN | {"BACKEND": "mpi"}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert_whole(folder, world_size=2)


def test_nodes_find_their_ranks_in_the_list_of_all(tmp_path: Path) -> None:
    nodes: dict[str, Value] = {"NODES": "alpha,beta", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), **RUN}
    folders = {name: machine(tmp_path / name) for name in ("alpha", "beta")}
    ended = results_of([start("train", folder, NODE=name, **nodes) for name, folder in folders.items()])
    assert [code for code, _ in ended] == [0, 0], ended
    assert_whole(folders["alpha"], world_size=2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"NODES": "a,b,a", "NODE": "a"}, "NODES=a,b,a names a node twice"),
        ({"NODES": "a,b", "NODE": "c"}, "NODE=c is not one of NODES=a,b"),
        ({"NODES": "a,b", "WORLD_SIZE": 3}, "WORLD_SIZE=3, but NODES=a,b names 2"),
        ({"NODES": "203.0.113.1,203.0.113.2"}, "NODES=203.0.113.1,203.0.113.2 has 0 "),
        ({"NODES": "a,b", "NODE": "b", "RANK": 0, "WORLD_SIZE": 2}, "RANK=0, but this machine is b, which is rank 1"),
        ({"NODES": "a,,b"}, "separated by commas"),
    ],
)
def test_a_list_of_nodes_that_gives_no_rank_is_refused(tmp_path: Path, settings: dict[str, Value], told: str) -> None:
    code, output = wait(start("train", machine(tmp_path), **RUN | settings))
    assert code == 2
    assert told in output
    assert not list((tmp_path / "results").iterdir())
