"""Traces of real runs: every rank on one clock, each time as recorded, and nothing that a reader would draw wrongly."""

import json
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from app.analysis.run import Run
from app.pages import trace
from app.pages.pieces import UNDIVIDED
from app.records import journal
from app.records.lines import PHASES, Step
from tests import traces
from tests.processes import group
from tests.processes.group import Ranks

MICROSECOND = 1e-6
RUNS: dict[str, dict[str, Any]] = {
    "reduced": {"world_size": 3, "SYNC_MODE": "all_reduce", "EPOCHS": 2},
    "buckets": {"world_size": 3, "SYNC_MODE": "ddp", "EPOCHS": 2, "BUCKET_BYTES": 20_000, "TRACE_STEPS": 5},
    "alone": {"world_size": 1, "SYNC_MODE": "ddp", "MAX_STEPS": 4, "EVALUATE": "never", "TRACE_STEPS": 1},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of finished runs, all made at once."""
    folder = tmp_path_factory.mktemp("place")
    group.prepare(folder)
    under_way = []
    for name, wanted in RUNS.items():
        settings = {"RUN_NAME": name, "USAGE_INTERVAL": 0.05, **wanted}
        ranks = Ranks(folder, settings.pop("world_size"), "train", **settings)
        ranks.start()
        under_way.append(ranks)
    for ranks in under_way:
        for code, output in ranks.wait().values():
            assert code == 0, output
    return folder / "results"


def copied(run_folder: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run_folder, folder / run_folder.name))


def steps_of(content: dict[str, Any], rank: int) -> list[traces.Event]:
    return [each for each in traces.of_kind(content, "X", "step") if each["pid"] == rank]


def holds(content: dict[str, Any], whole: traces.Event, step: Step) -> None:
    """A step's spans are as long as its record says."""
    assert whole["dur"] * MICROSECOND == pytest.approx(step.seconds, abs=MICROSECOND)
    taken: dict[str, float] = defaultdict(float)
    for piece in traces.inside(content, whole):
        taken[piece["name"]] += piece["dur"] * MICROSECOND
    measured = {phase: getattr(step, f"{phase}_seconds") or 0.0 for phase in PHASES}
    if step.wait_seconds is None and step.exposed_sync_seconds is not None:
        measured[UNDIVIDED] = step.exposed_sync_seconds
    assert {**dict.fromkeys(measured, 0.0), **taken} == pytest.approx(measured, abs=MICROSECOND)


@pytest.mark.parametrize("name", ["reduced", "buckets", "alone"])
def test_every_rank_is_there_as_it_was_recorded(results: Path, name: str) -> None:
    content, run = traces.read(results / name), Run(results / name)
    names = {e["pid"]: e["args"]["name"] for e in traces.of_kind(content, "M") if e["name"] == "process_name"}
    assert names == {each.rank: f"rank {each.rank}: {each.name}" for each in run.manifest.ranks}
    assert content["otherData"]["steps_recorded"] == run.manifest.plan.steps
    assert content["otherData"]["shift_seconds"] < 0.001
    for rank in run.ranks:
        by_number = {step.step: step for step in rank.steps}
        for whole in steps_of(content, rank.rank):
            step = by_number[whole["args"]["step"]]
            began = rank.on_common_clock(step.at_seconds) + content["otherData"]["shift_seconds"]
            assert whole["ts"] * MICROSECOND == pytest.approx(began, abs=MICROSECOND)
            holds(content, whole, step)
        evaluations = [e for e in traces.of_kind(content, "X", "evaluation") if e["pid"] == rank.rank]
        assert [each["args"]["loss"] for each in evaluations] == [each.loss for each in rank.evaluations]
        assert [each["dur"] * MICROSECOND for each in evaluations] == pytest.approx(
            [each.seconds for each in rank.evaluations], abs=MICROSECOND
        )
        savings = [e for e in traces.of_kind(content, "X", "saving") if e["pid"] == rank.rank]
        assert [(e["args"]["step"], e["args"]["bytes"]) for e in savings] == [
            (c.step, c.bytes) for c in rank.checkpoints
        ]
        assert len(savings) == 1
        assert len([e for e in traces.of_kind(content, "i", None) if e["pid"] == rank.rank]) == len(rank.clocks) == 2


def test_every_message_has_its_place(results: Path) -> None:
    content = traces.read(results / "buckets")
    shown = [each["args"]["step"] for each in steps_of(content, 0)]
    for rank in Run(results / "buckets").ranks:
        recorded = [message for step in rank.steps if step.step in shown for message in step.buckets or ()]
        messages = [each for each in traces.of_kind(content, "X", "message") if each["pid"] == rank.rank]
        assert len(recorded) > len(shown)
        assert sorted(each["args"]["bytes"] for each in messages) == sorted(message.bytes for message in recorded)
        assert sum(each["dur"] for each in messages) * MICROSECOND == pytest.approx(
            sum(message.end_seconds - message.ready_seconds for message in recorded), abs=MICROSECOND * len(recorded)
        )
    assert not traces.of_kind(traces.read(results / "reduced"), "X", "message")


def test_usage_is_that_of_the_records(results: Path) -> None:
    content = traces.read(results / "reduced")
    for rank in Run(results / "reduced").ranks:
        memory = [
            each["args"]["resident"]
            for each in traces.of_kind(content, "C")
            if (each["pid"], each["name"]) == (rank.rank, "memory (MB)")
        ]
        used = trace.thinned(rank.usage, content["otherData"]["trace_steps"])  # a busy machine makes many samples
        assert memory == pytest.approx([each.memory_bytes / 1e6 for each in used], abs=0.1)


def test_none_is_written_where_none_is_wanted(results: Path, tmp_path: Path) -> None:
    run_folder = copied(results / "alone", tmp_path)
    set_trace_steps(run_folder, 0)
    trace.write(Run(run_folder))
    assert not (run_folder / "trace.json").exists()


def test_a_run_of_an_older_version_has_one_too(results: Path, tmp_path: Path) -> None:
    """Its settings do not name TRACE_STEPS, and its evaluations have no time."""
    run_folder = copied(results / "buckets", tmp_path)
    set_trace_steps(run_folder, None)
    for rank in range(3):
        path = journal.path_of(run_folder, rank)
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for each in [each for each in records if each["kind"] == "evaluation"]:
            del each["at_seconds"], each["seconds"]
        path.write_text("".join(json.dumps(each) + "\n" for each in records))
    trace.write(Run(run_folder))
    content = traces.read(run_folder)
    assert content["otherData"]["trace_steps"] == 200
    assert content["otherData"]["steps_shown"] == [[0, 11]]
    assert not traces.of_kind(content, "X", "evaluation")


@pytest.mark.parametrize("name", ["reduced", "buckets"])
def test_a_run_that_died_has_one_as_far_as_it_came(results: Path, tmp_path: Path, name: str) -> None:
    """One rank's file breaks off within a line, another rank left nothing."""
    run_folder = copied(results / name, tmp_path)
    path = journal.path_of(run_folder, 1)
    os.truncate(path, path.stat().st_size // 2)
    journal.path_of(run_folder, 2).unlink()
    trace.write(Run(run_folder))
    content, run = traces.read(run_folder), Run(run_folder)
    assert {each["pid"] for each in content["traceEvents"]} == {0, 1, 2}
    assert 0 < len(steps_of(content, 1)) < len(steps_of(content, 0))
    assert not steps_of(content, 2)
    for rank in run.ranks[:2]:
        for whole in steps_of(content, rank.rank):
            holds(content, whole, rank.steps[whole["args"]["step"]])


def set_trace_steps(run_folder: Path, value: int | None) -> None:
    path = run_folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["settings"].pop("trace_steps")
    manifest["settings"] |= {} if value is None else {"trace_steps": value}
    path.write_text(json.dumps(manifest))
