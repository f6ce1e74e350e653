"""Traces of runs whose times are known: the order of things in a step, one clock, and a size that does not grow."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.analysis.run import Run
from app.pages import trace
from app.pages.pieces import UNDIVIDED, pieces
from app.records.journal import Recorder
from app.records.lines import Clock, Evaluation, OverlappedMessage, Record, Usage
from tests import runs, traces
from tests.unit.test_records import STEP

EXPLICIT = replace(STEP, wait_seconds=0.05, sync_seconds=0.05)
HIDING = replace(
    STEP,
    data_seconds=1.0,
    forward_seconds=2.0,
    backward_seconds=3.0,
    wait_seconds=1.5,
    sync_seconds=1.0,
    hidden_sync_seconds=1.0,
    exposed_sync_seconds=2.5,
    optimiser_seconds=0.5,
    seconds=9.0,
    buffers=[OverlappedMessage(8, 1.25, 2.0), OverlappedMessage(4, 2.25, 2.75)],
    buckets=[OverlappedMessage(40, 5.25, 6.75), OverlappedMessage(60, 7.25, 8.5)],
)
USAGE = Usage(0, 1.0, 1.0, 50.0, 5.0, None, 1_000_000, 10, 20)


def traced(folder: Path, *ranks: list[Record], **settings: Any) -> dict[str, Any]:
    """The trace of a run with these records."""
    participants = [runs.participant(rank) for rank in range(len(ranks))]
    own = runs.MANIFEST["settings"] | settings
    manifest = runs.MANIFEST | {"world_size": len(ranks), "ranks": participants, "settings": own}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for rank, content in enumerate(ranks):
        with Recorder(folder, rank) as recorder:
            for record in content:
                recorder.write(replace(record, rank=rank))
    trace.write(Run(folder))
    return traces.read(folder)


def spans(content: dict[str, Any], category: str, rank: int = 0) -> list[tuple[str, float, float]]:
    return [
        (each["name"], each["ts"], each["dur"])
        for each in traces.of_kind(content, "X", category)
        if each["pid"] == rank
    ]


def test_the_phases_of_a_step_follow_each_other() -> None:
    lengths = [(phase, round(end - begin, 9)) for phase, begin, end in pieces(EXPLICIT)]
    assert lengths == [
        ("data", 0.1), ("forward", 0.3), ("backward", 0.4), ("wait", 0.05), ("sync", 0.05), ("optimiser", 0.1)
    ]  # fmt: skip


def test_parameters_are_averaged_after_the_update(tmp_path: Path) -> None:
    names = [name for name, _, _ in spans(traced(tmp_path, [EXPLICIT], sync_every=4), "phase")]
    assert names == ["data", "forward", "backward", "optimiser", "wait", "sync"]


def test_what_was_not_measured_is_left_out() -> None:
    phases = [phase for phase, _, _ in pieces(replace(STEP, wait_seconds=None, sync_seconds=None))]
    assert phases == ["data", "forward", "backward", "optimiser"]


def test_buffers_interrupt_the_forward_pass_where_they_were_sent() -> None:
    """This rank waits for rank 0, which has the first message ready half a second later, and the second earlier."""
    assert list(pieces(HIDING, [1.75, 2.0])) == [
        ("data", 0.0, 1.0),
        ("forward", 1.0, 1.25),
        ("wait", 1.25, 1.75),
        ("sync", 1.75, 2.0),
        ("forward", 2.0, 2.25),
        ("sync", 2.25, 2.75),
        ("forward", 2.75, 4.25),
        ("backward", 4.25, 7.25),
        ("wait", 7.25, 8.25),
        ("sync", 8.25, 8.5),
        ("optimiser", 8.5, 9.0),
    ]


def test_what_only_all_ranks_could_divide_stays_undivided() -> None:
    alone = replace(HIDING, wait_seconds=None, sync_seconds=None)
    undivided = [(begin, end) for phase, begin, end in pieces(alone) if phase == UNDIVIDED]
    assert undivided == [(1.25, 2.0), (2.25, 2.75), (7.25, 8.5)]


def test_messages_that_overlap_lie_in_lanes_of_their_own(tmp_path: Path) -> None:
    buckets = [OverlappedMessage(1, 4.5, 6.0), OverlappedMessage(2, 5.0, 7.0), OverlappedMessage(3, 6.0, 6.5)]
    content = traced(tmp_path, [replace(HIDING, buckets=buckets, buffers=[])])
    lanes = {e["tid"]: e["args"]["name"] for e in traces.of_kind(content, "M") if e["name"] == "thread_name"}
    messages = traces.of_kind(content, "X", "message")
    assert {each["name"]: lanes[each["tid"]] for each in messages} == {
        "bucket 0": "messages",
        "bucket 1": "messages, lane 2",
        "bucket 2": "messages",
    }


def test_all_ranks_have_one_clock_that_begins_at_nothing(tmp_path: Path) -> None:
    """Rank 1's clock is two seconds ahead; by rank 0's, it began half a second before the run."""
    content = traced(
        tmp_path,
        [replace(EXPLICIT, at_seconds=0.0)],
        [Clock(1, 1.5, 2.0, 0.25), replace(EXPLICIT, at_seconds=1.5)],
    )
    assert content["otherData"]["shift_seconds"] == 0.5
    assert content["otherData"]["clock_uncertainty_seconds"] == 0.25
    assert spans(content, "step", 0) == [("step 0", 500_000.0, 1_000_000.0)]
    assert spans(content, "step", 1) == [("step 0", 0.0, 1_000_000.0)]


def test_a_clock_that_drifts_lets_no_step_reach_into_the_next(tmp_path: Path) -> None:
    drift = [Clock(0, 0.0, 0.0, 0.0), Clock(0, 10.0, 1.0, 0.0)]
    follow = [replace(EXPLICIT, step=number, at_seconds=float(number)) for number in range(3)]
    content = traced(tmp_path, [*drift, *follow, Evaluation(0, 0, 1.0, 1, 2, 0.5, 0, 3.0, 0.5)])
    assert [length for _, _, length in spans(content, "step")] == [900_000.0] * 3
    assert spans(content, "evaluation") == [("evaluation", 2_700_000.0, 500_000.0)]


@pytest.mark.parametrize(
    ("most", "kept", "shown"),
    [
        (1, [0], [[0, 0]]),
        (2, [0, 9], [[0, 0], [9, 9]]),
        (5, [0, 1, 2, 8, 9], [[0, 2], [8, 9]]),
        (10, [*range(10)], [[0, 9]]),
    ],
)
def test_the_first_and_the_last_steps_are_kept(
    tmp_path: Path, most: int, kept: list[int], shown: list[list[int]]
) -> None:
    steps: list[Record] = [replace(EXPLICIT, step=number, at_seconds=2.0 * number) for number in range(10)]
    evaluations = [Evaluation(0, number, 1.0, 1, 2, 0.5, 0, 2.0 * number + 1, 0.5) for number in range(10)]
    content = traced(tmp_path, [*steps, *evaluations], trace_steps=most)
    assert [name for name, _, _ in spans(content, "step")] == [f"step {number}" for number in kept]
    assert [e["args"]["epoch"] for e in traces.of_kind(content, "X", "evaluation")] == kept
    assert (content["otherData"]["steps_recorded"], content["otherData"]["steps_shown"]) == (10, shown)


def test_samples_of_usage_are_put_together_and_none_is_lost() -> None:
    usage = [
        replace(USAGE, at_seconds=1.0, seconds=1.0, cpu_user_percent=100.0, memory_bytes=7),
        replace(USAGE, at_seconds=4.0, seconds=3.0, cpu_user_percent=20.0, memory_bytes=5),
        replace(USAGE, at_seconds=5.0, network_sent_bytes=None),
    ]
    first, last = trace.thinned(usage, 2)
    assert (first.at_seconds, first.seconds, first.cpu_user_percent, first.memory_bytes) == (4.0, 4.0, 40.0, 7)
    assert (first.network_sent_bytes, first.network_received_bytes) == (20, 40)
    assert last == usage[-1]
    assert list(trace.thinned([], 2)) == []


def test_a_long_run_has_no_larger_trace(tmp_path: Path) -> None:
    sizes = []
    for name, steps in (("short", 60), ("long", 600)):
        (tmp_path / name).mkdir()
        made: list[Record] = [replace(HIDING, step=number, at_seconds=10.0 * number) for number in range(steps)]
        used = [replace(USAGE, at_seconds=1.0 + number) for number in range(10 * steps)]
        content = traced(tmp_path / name, [*made, *used], [*made, *used], trace_steps=20)
        sizes.append(len(content["traceEvents"]))
    assert sizes[0] == sizes[1]
