"""scripts/faults, as users call it: real ranks, real faults, and a verdict on each."""

import json
import os
import re
import signal
from random import SystemRandom

import pytest

from tests.containers.cluster import Clone, until

SWEEP_SECONDS = 3 * 3600


def verdicts(clone: Clone) -> list[str]:
    """By trial, of the newest sweep."""
    newest = max((clone.folder / "results/faults").iterdir())
    return [json.loads(path.read_text())["verdict"] for path in sorted(newest.glob("*-seen/verdict.json"))]


def test_each_trial_of_the_page_ends_as_promised(used_clone: Clone) -> None:
    """Rank 0 is killed while another rank is paused; then a stranger comes at the end of a run."""
    code, output = used_clone.run("scripts/faults", "--trials", "2", "--seed", "297")
    assert code == 0, output
    assert verdicts(used_clone) == ["ok", "ok"]
    assert "Seed 297: 2 trials" in output
    assert "2 ok" in output
    assert used_clone.containers("--all") == []


def test_runs_recover_from_the_kills_of_the_page(used_clone: Clone) -> None:
    """All ranks in an evaluation, rank 0 in the farewell, and rank 0 and a worker while they save."""
    process = used_clone.start("scripts/faults", *["--kills", "3", "--seed", "33", "--modes", "ring_all_reduce"])
    output, _ = process.communicate(timeout=SWEEP_SECONDS)
    assert process.returncode == 0, output
    assert "3 kills: 3 ok. Recovery: p50 " in output
    assert re.search(r"ranks 0, 3 .*\bsav\w+, recovered in [0-9.]+ s: ok", output), output
    assert used_clone.containers("--all") == []


def test_ctrl_c_during_a_trial_leaves_no_container(used_clone: Clone) -> None:
    before = len(list((used_clone.folder / "results/faults").glob("*/*/rank-0.jsonl")))
    # This seed's first trial takes steps; one that pauses a rank in the join leaves no records, and lasts a minute.
    process = used_clone.start("scripts/faults", "--faults", "pause", "--seed", "2", EPOCHS="1000000")
    records = (used_clone.folder / "results/faults").glob
    until(lambda: len(list(records("*/*/rank-0.jsonl"))) > before, "the first trial")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert used_clone.containers("--all") == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("--trials 0", "[invalid-argument]"),
        ("--trials many", "--trials"),
        ("--kills 0", "[invalid-argument]"),
        ("--seed", "[missing-argument]"),
        ("--faults kil", "[unknown-name]"),
        ("--fast", "[unknown-option]"),
        ("MAX_STEP=3", "[unknown-setting]"),
    ],
)
def test_a_wrong_argument_ends_with_2_before_anything_starts(used_clone: Clone, wrong: str, told: str) -> None:
    code, output = used_clone.run("scripts/faults", *wrong.split())
    assert code == 2, output
    assert told in output
    assert used_clone.containers("--all") == []


@pytest.mark.long
def test_a_hundred_trials_of_a_seed_that_nobody_has_chosen(clone: Clone) -> None:
    process = clone.start("scripts/faults", "--trials", "100", "--seed", str(SystemRandom().randrange(1 << 30)))
    output, _ = process.communicate(timeout=SWEEP_SECONDS)
    assert process.returncode == 0, output
    assert len(verdicts(clone)) == 100
    assert clone.containers("--all") == []


@pytest.mark.long
def test_runs_recover_from_fifty_kills_of_a_seed_that_nobody_has_chosen(clone: Clone) -> None:
    process = clone.start("scripts/faults", "--kills", "50", "--seed", str(SystemRandom().randrange(1 << 30)))
    output, _ = process.communicate(timeout=SWEEP_SECONDS)
    assert process.returncode == 0, output
    assert "50 kills: 50 ok. Recovery: p50 " in output
    assert clone.containers("--all") == []
