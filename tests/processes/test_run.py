"""Whole runs on real processes: what they compute, what they leave behind."""

import json
import re
from pathlib import Path

import pytest

from app.analysis import run_records
from tests.processes import group


def test_without_synchronisation_the_replicas_drift(tmp_path: Path) -> None:
    run = group.run(tmp_path, 2, SYNC_MODE="none", MAX_STEPS=3)
    assert run["complete"]
    assert run["replicas_identical"] is False
    assert run["run"]["bytes_sent_per_step"] == 0
    assert run["run"]["sync_seconds"] is None


def test_a_rank_without_samples_still_takes_part(tmp_path: Path) -> None:
    """1,437 samples in batches of 359 on 3 ranks: two of them have none of the last batch."""
    run = group.run(tmp_path, 3, SYNC_MODE="ddp", GLOBAL_BATCH_SIZE=359, EVALUATE="every_rank")
    ranks = run_records.read(tmp_path / "results/latest").ranks
    last = [rank.steps[-1] for rank in ranks]
    assert [(each.samples, each.loss is None) for each in last] == [(1, False), (0, True), (0, True)]
    assert run["steps"] == 5
    assert run["complete"]


def test_a_run_that_its_epochs_end_too_early_says_how_many_it_needs(tmp_path: Path) -> None:
    asked: dict[str, group.Value] = {
        "SYNC_MODE": "all_reduce",
        "GLOBAL_BATCH_SIZE": 359,
        "MAX_STEPS": 8,
        "EVALUATE": "never",
    }
    short = group.run(tmp_path, 1, **asked)
    assert short["steps"] == 5
    [warning] = [each for each in short["warnings"] if "MAX_STEPS" in each]
    assert "EPOCHS=1 ends it after 5 steps" in warning
    [epochs] = re.findall(r"set EPOCHS=(\d+)", warning)
    enough = group.run(tmp_path, 1, **asked, EPOCHS=epochs)
    assert enough["steps"] == 8
    assert not [each for each in enough["warnings"] if "MAX_STEPS" in each]


def test_sharded_evaluation_gives_the_figures_of_the_whole_set(tmp_path: Path) -> None:
    whole, sharded = (tmp_path / name for name in ("whole", "sharded"))
    whole.mkdir()
    sharded.mkdir()
    expected = group.run(whole, 1, MAX_STEPS=4, SYNC_MODE="all_reduce")["run"]
    run = group.run(sharded, 3, MAX_STEPS=4, SYNC_MODE="all_reduce")
    assert [rank["accuracy"] for rank in run["ranks"]] == [expected["accuracy"]] * 3
    assert [rank["test_loss"] for rank in run["ranks"]] == pytest.approx([expected["test_loss"]] * 3, rel=1e-5)


def test_what_a_run_leaves_behind(tmp_path: Path) -> None:
    run = group.run(tmp_path, 2, SYNC_MODE="all_reduce", MAX_STEPS=3, RUN_NAME="mine", THREADS_PER_RANK=1)
    assert (tmp_path / "results/latest").readlink() == Path("mine")
    assert {path.name for path in (tmp_path / "results/mine").iterdir()} == {
        "manifest.json",
        "summary.json",
        "report.html",
        "trace.json",
        "tables",
        "figures",
        "rank-0.jsonl",
        "rank-1.jsonl",
        "attempts.jsonl",
        "clock.json",
        "checkpoint",
    }
    manifest = json.loads((tmp_path / "results/mine/manifest.json").read_text())
    assert manifest["settings"]["dataset"] == "digits"
    assert manifest["parameters"] == 61_706
    assert [rank["threads"] for rank in manifest["ranks"]] == [1, 1]
    for rank in (0, 1):
        lines = [json.loads(line) for line in (tmp_path / f"results/mine/rank-{rank}.jsonl").read_text().splitlines()]
        kinds = [line["kind"] for line in lines]
        assert [kind for kind in kinds if kind != "usage"] == ["clock"] + ["step"] * 3 + [
            "evaluation",
            "checkpoint",
            "clock",
            "finished",
        ]
        assert "usage" in kinds
        others = [line for line in lines if line["kind"] != "usage"]
        clock, *_, last_step, evaluation, saved, last_clock, finished = others
        assert clock["process_at_seconds"] < clock["links_at_seconds"] < 0
        assert last_clock["process_at_seconds"] is None
        assert last_clock["at_seconds"] < finished["at_seconds"]
        assert last_step["at_seconds"] + last_step["seconds"] <= evaluation["at_seconds"]
        assert 0 < evaluation["seconds"] <= saved["at_seconds"] - evaluation["at_seconds"]
        assert 0 < saved["seconds"] <= last_clock["at_seconds"] - saved["at_seconds"]
        assert saved["step"] == 3
        assert saved["bytes"] > 2 * 61_706 * 4  # parameters and their momenta, and random states
        for line in [line for line in lines if line["kind"] == "step"]:
            phases = [line[f"{name}_seconds"] for name in ("data", "forward", "backward", "wait", "sync", "optimiser")]
            assert sum(phases) == pytest.approx(line["seconds"], rel=0.01)
            assert line["bytes_sent"] == 61_706 * 4
    assert run["run"]["formula_bytes_sent_per_step"] == 61_706 * 4
    whole = run["wall_clock"].pop("seconds")
    assert sum(run["wall_clock"].values()) == whole
    assert run["wall_clock"].pop("gaps_seconds") >= 0  # one rank's steps may lie over all of the other's gaps
    assert run["wall_clock"].pop("lost_seconds") == 0
    assert all(run["wall_clock"].values())
    for figures in run["ranks"]:  # the kernel sums up its counts of pages now and then, so the two may differ a little
        assert figures["peak_memory_bytes"] >= 0.95 * figures["usage"]["most_memory_bytes"]


def test_a_name_is_never_written_over(tmp_path: Path) -> None:
    group.prepare(tmp_path, RUN_NAME="mine")
    code, output = group.wait(group.start("prepare", tmp_path, MODEL="lenet5", DATASET="digits", RUN_NAME="mine"))
    assert code == 2
    assert "[run-exists] RUN_NAME=mine: results/mine " in output


def test_two_starts_in_the_same_second_get_two_folders(tmp_path: Path) -> None:
    group.prepare(tmp_path)
    both = [group.start("prepare", tmp_path, MODEL="lenet5", DATASET="digits") for _ in range(2)]
    assert [group.wait(each)[0] for each in both] == [0, 0]
    assert len([path for path in (tmp_path / "results").iterdir() if not path.is_symlink()]) == 3


def test_the_course_knows_the_lines(tmp_path: Path) -> None:
    group.prepare(tmp_path)
    code, output = group.wait(
        group.start("train", tmp_path, MODEL="lenet5", DATASET="digits", LOG_EVERY=2, MAX_STEPS=5)
    )
    assert code == 0, output
    lines = output.splitlines()
    assert [line.split()[0] for line in lines if " loss: " in line and " elapsed time: " in line] == ["0", "2", "4"]
    assert any(line.startswith("Test set: Average loss: ") for line in lines)


def test_training_ends_where_the_loss_is_no_number(tmp_path: Path) -> None:
    group.prepare(tmp_path)
    code, output = group.wait(
        group.start("train", tmp_path, MODEL="lenet5", DATASET="digits", LEARNING_RATE=1e30, EPOCHS=5)
    )
    assert code == 1
    assert re.search(r"error: \[diverged\] rank 0: .*step \d+.*loss.*LEARNING_RATE", output), output
