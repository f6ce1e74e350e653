"""An experiment as a user runs it: interrupted, gone on with, and read off its page."""

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from tests.containers.cluster import PATIENCE_SECONDS, Clone, owners, until
from tests.containers.conftest import MakeClone
from tests.solutions import on_the_page

# A loss that is no number ends a run; the other cell has nothing wrong with it.
HALF_BROKEN = """\
title = "Half of it fails"
question = "Does the rest go on?"

[settings]
MODEL = "lenet5"
DATASET = "digits"
MAX_STEPS = 3
WORKERS = 1
LINK_CHECK = "off"
EVALUATE = "never"

[[grid]]
label = "hopeless"
LEARNING_RATE = 1e30
WARMUP_STEPS = 0

[[grid]]
label = "sound"
SYNC_MODE = "my_mode"

[[view]]
kind = "bar"
measure = "seconds"
title = "Time per step"
"""


def rows(page: Path, table: str) -> list[dict[str, str]]:
    with (page / "tables" / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


def runs_in(folder: Path, file: str) -> list[Path]:
    """Runs that have such a file; `latest` is another name of one of them."""
    return [path.parent for path in folder.glob(f"*/{file}") if not path.parent.is_symlink()]


def losses_of_rank_0(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "rank-0.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "step"]


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [
        pytest.param(["WORKERS=1", "EPOCHS=30"], 2, id="smaller"),
        pytest.param([], 4, marks=pytest.mark.long, id="as typed"),
    ],
)
def test_an_experiment_of_the_documents_from_end_to_end_with_an_interruption(
    clone: Clone, settings: list[str], ranks: int
) -> None:
    """What was finished before Ctrl-C is not run again; the tables are what the records say."""
    page = clone.folder / "results/experiments/ring"
    process = clone.start("scripts/experiment", "ring", "--quick", *settings)
    until(lambda: len(runs_in(page / "quick", "rank-0.jsonl")) == 2, "the second run")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "The same command resumes" in output
    assert clone.containers("--all") == []
    ended = runs_in(page / "quick", "summary.json")
    done = [folder for folder in ended if json.loads((folder / "summary.json").read_text())["complete"]]
    assert 1 <= len(done) <= 2
    started = {folder: (folder / "manifest.json").stat().st_mtime_ns for folder in done}

    code, output = clone.run("scripts/experiment", "ring", "--quick", *settings)
    assert code == 0, output
    assert f"{len(done)} of " in output
    assert clone.containers("--all") == []
    assert {folder: (folder / "manifest.json").stat().st_mtime_ns for folder in done} == started

    planned = json.loads((page / "quick/plan.json").read_text())
    summaries = {
        trial["name"]: json.loads((page / "quick" / trial["name"] / "summary.json").read_text()) for trial in planned
    }
    assert all(summary["complete"] and summary["world_size"] == ranks for summary in summaries.values())
    cells = list(dict.fromkeys(trial["cell"] for trial in planned))
    for row in rows(page, "table-training_loss"):
        first = next(trial["name"] for trial in planned if trial["cell"] == row["cell"])
        summary = summaries[first]
        party = summary["run"] if row["rank"] == "all" else summary["ranks"][int(row["rank"])]
        assert float(row["training_loss"]) == party["epochs"][-1]["training_loss"]
        assert float(row["training_accuracy"]) == party["epochs"][-1]["training_accuracy"]
        if row["rank"] != "all":
            last = (page / "quick" / first / f"rank-{row['rank']}.jsonl").read_text().splitlines()[-1]
            assert float(row["training_seconds"]) == json.loads(last)["seconds"]
    assert [row["cell"] for row in rows(page, "table-training_loss") if row["rank"] == "all"] == cells
    for row in rows(page, "curve-loss-2"):
        for cell in cells:
            shown = row["loss_" + "_".join(filter(None, "".join(c if c.isalnum() else "_" for c in cell).split("_")))]
            losses = losses_of_rank_0(page / "quick" / next(each["name"] for each in planned if each["cell"] == cell))
            step = int(row["step"])
            assert (float(shown) if shown else None) == (losses[step] if step < len(losses) else None)
    assert "Within rounding of all_reduce" in (page / "report.html").read_text()
    for path in ("report.html", "../index.html", "figures/curve-training_loss-training_loss.svg"):
        assert (page / path).is_file()

    code, output = clone.run("scripts/experiment", "ring", "--quick", "--report", *settings)
    assert code == 0, output
    assert "Report: results/experiments/ring/report.html" in output


def test_a_failed_run_is_reported_and_the_rest_goes_on(make_clone: MakeClone) -> None:
    """Run by whoever may become another user as another user."""
    caller = (12345, 23456) if os.geteuid() == 0 else None
    clone = make_clone(caller)
    (clone.folder / "scripts/experiments/broken.toml").write_text(HALF_BROKEN)
    (clone.folder / "extensions/my_mode.py").write_text(on_the_page()["my_mode"])
    process = clone.start("scripts/experiment", "broken", MODEL="vgg11")
    until((clone.folder / "results/experiments/broken/full/hopeless-1.log").is_file, "the first run")
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, output
    assert "MODEL is ignored" in output
    assert "failed with exit code 1. Its output: results/experiments/broken/full/hopeless-1.log" in output
    assert "LEARNING_RATE" in (clone.folder / "results/experiments/broken/full/hopeless-1.log").read_text()
    assert "hopeless, round 1, retry" in output
    assert "hopeless-1 failed" in output
    assert clone.containers("--all") == []
    page = clone.folder / "results/experiments/broken"
    assert [row["cell"] for row in rows(page, "bar-seconds")] == ["sound"]
    assert "hopeless-1 (failed)" in (page / "report.html").read_text()
    manifest = json.loads((page / "full/sound-1/manifest.json").read_text())
    assert (manifest["settings"]["model"], manifest["settings"]["sync_mode"]) == ("lenet5", "my_mode")
    if caller:
        assert owners((clone.folder / "results/experiments").rglob("*")) == {caller}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ring", "MAX_STEP=3"], "Did you mean MAX_STEPS?"),
        (["rings"], "Did you mean ring?"),
        (["ring", "--quik"], "Did you mean --quick?"),
        ([], "[missing-argument]"),
    ],
    ids=["setting", "name", "option", "none"],
)
def test_a_wrong_command_line_ends_with_2_before_anything_is_run(
    used_clone: Clone, arguments: list[str], message: str
) -> None:
    code, output = used_clone.run("scripts/experiment", *arguments)
    assert code == 2, output
    assert message in output
    assert not (used_clone.folder / "results/experiments").exists()
