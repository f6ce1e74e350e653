"""Runs in turn on the same ranks: each ends as it would alone, and what a failure or a signal leaves is told."""

from pathlib import Path
from signal import SIGTERM

import psutil
import pytest

from app.records import series
from app.records.series import PlannedRun
from app.records.summary import is_complete
from tests.processes import group
from tests.processes.group import Ranks, Value, free_port
from tests.processes.program import start, wait
from tests.processes.test_faults import run_until

SOUND = {"MAX_STEPS": "3"}
HOPELESS = {"MAX_STEPS": "3", "LEARNING_RATE": "1e30", "WARMUP_STEPS": "0"}
WRONG = {"MODEL": "lenet5", "DATASET": "cifar10"}


def plan(folder: Path, **runs: dict[str, str]) -> None:
    planned = [PlannedRun(name, f"next: {name}", {"RUN_NAME": name, **own}) for name, own in runs.items()]
    series.plan(folder / "results", planned)


def ended(folder: Path) -> list[tuple[str, int]]:
    return [(each.run, each.exit_code) for each in series.ended(folder / "results")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    group.prepare(tmp_path)
    return tmp_path


def test_the_runs_after_a_failure_wait_for_another_start(folder: Path) -> None:
    plan(folder, first=SOUND, hopeless=HOPELESS, last=SOUND)
    ranks = Ranks(folder, 2, "train --series")
    ranks.start()
    outputs = ranks.wait()
    assert {code for code, _ in outputs.values()} == {1}, outputs
    assert ended(folder) == [("first", 0), ("hopeless", 1)]
    assert is_complete(folder / "results/first")
    assert not (folder / "results/last").exists()
    assert "next: hopeless" in outputs[0][1]
    failed = series.log_of(folder / "results", "hopeless").read_text()
    assert failed.count("[diverged]") == 2, "both ranks say why"

    again = Ranks(folder, 2, "train --series")
    again.start()
    assert {code for code, _ in again.wait().values()} == {0}
    assert ended(folder)[2:] == [("last", 0)]


def test_no_rank_starts_the_next_run_before_rank_0_has_ended_this_one(folder: Path) -> None:
    """Rank 0 writes the report while the others are done. This one never says that it has ended the run."""
    plan(folder, first=SOUND, second=SOUND)
    settings: dict[str, Value] = {"MASTER_PORT": free_port(), "PEER_TIMEOUT": 10, "JOIN_TIMEOUT": 30}
    other = Ranks(folder, 2, "train --series", **settings)
    other.start(1)
    leader = Ranks(folder, 2, "train", **settings, RUN_NAME="first", MAX_STEPS=3)
    leader.start(0)
    assert {code for code, _ in leader.wait().values()} == {0}
    ((code, output),) = other.wait().values()
    assert code == 1
    assert "[join-incomplete] rank 1" in output
    assert "first" in output
    assert not series.log_of(folder / "results", "second").exists()


def test_a_run_that_cannot_start_is_noted_before_any_rank_starts(folder: Path) -> None:
    plan(folder, wrong=WRONG, sound=SOUND)
    code, output = wait(start("prepare --series", folder, MODEL="lenet5", DATASET="digits"))
    assert code == 0, output
    assert ended(folder) == [("wrong", 2)]
    assert "error: [" in series.log_of(folder / "results", "wrong").read_text()
    ranks = Ranks(folder, 1, "train --series")
    ranks.start()
    assert {code for code, _ in ranks.wait().values()} == {0}
    assert ended(folder) == [("wrong", 2), ("sound", 0)]


def test_a_signal_ends_the_run_in_progress_which_then_counts_for_nothing(folder: Path) -> None:
    plan(folder, long={"EPOCHS": "1000", "EVALUATE": "never"}, last=SOUND)
    ranks = Ranks(folder, 1, "train --series")
    ranks.start()
    run_until(ranks, 2)
    (started,) = psutil.Process(ranks.processes[0].pid).children()
    ranks.processes[0].send_signal(SIGTERM)
    assert {code for code, _ in ranks.wait().values()} == {128 + SIGTERM}
    assert ended(folder) == []
    assert not started.is_running()
