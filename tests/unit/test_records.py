"""Records survive their way to the disk and back; a summary is made of nothing else, and invents nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis import run_records
from app.analysis.run import summarise
from app.analysis.run_records import RankRecords, RunRecords
from app.errors import LockstepError
from app.records import journal
from app.records import lines as records
from app.records.journal import Recorder
from app.records.lines import Clock, Evaluation, Finished, OverlappedMessage, Record, Step
from tests import runs

STEP = Step(
    rank=0,
    epoch=0,
    step=0,
    samples=64,
    loss=2.5,
    correct=7,
    learning_rate=0.1,
    gradient_norm=None,
    at_seconds=0.0,
    seconds=1.0,
    data_seconds=0.1,
    forward_seconds=0.3,
    backward_seconds=0.4,
    wait_seconds=None,
    sync_seconds=0.1,
    hidden_sync_seconds=None,
    exposed_sync_seconds=None,
    optimiser_seconds=0.1,
    bytes_sent=100,
    bytes_received=100,
    communication_seconds=0.1,
    batch_norm_bytes_sent=None,
    batch_norm_seconds=None,
    interface_bytes_sent=107,
    interface_bytes_received=108,
    throttled_seconds=None,
    buckets=None,
    buffers=None,
)
FINISHED = Finished(rank=0, steps=3, seconds=3.5, parameters_sha256="abc", restarts=0)
MANIFEST = runs.MANIFEST | {
    "sync_seconds_at_least": 0.05,
    "ranks": [runs.participant(0, 100.0, 2000.0), runs.participant(1, 120.0, 1000.0)],
}


def write_run(folder: Path, *ranks: list[Record]) -> RunRecords:
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    for rank, content in enumerate(ranks):
        with Recorder(folder, rank) as recorder:
            for record in content:
                recorder.write(replace(record, rank=rank))
    return run_records.read(folder)


def steps(*seconds: float, first: int = 0, began: float = 0.0, **changes: float | None) -> list[Record]:
    """One after another, of these seconds, the first one begun at this moment."""
    starts = accumulate(seconds, initial=began)
    return [
        replace(STEP, step=number, at_seconds=at, seconds=each, **changes)  # type: ignore[arg-type]
        for number, (at, each) in enumerate(zip(starts, seconds, strict=False), first)
    ]


def summed_up(run: RunRecords) -> dict[str, Any]:
    """As it stands in its file."""
    return summarise(run).content()


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    content: list[Record] = [STEP, Evaluation(0, 0, 2.25, 10, 100, 0.1), FINISHED]
    write_run(tmp_path, content)
    assert list(journal.read(tmp_path, 0)) == content


def test_an_evaluation_of_an_older_version_has_no_time() -> None:
    line = '{"kind": "evaluation", "rank": 1, "epoch": 0, "loss": 2.25, "correct": 10, "samples": 100, "accuracy": 0.1}'
    assert records.parse(line) == Evaluation(1, 0, 2.25, 10, 100, 0.1, at_seconds=None, seconds=None)


@pytest.mark.parametrize("block_bytes", [9, 200, journal.BLOCK_BYTES])
def test_a_half_written_last_line_is_survived_in_either_direction_and_when_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(journal, "BLOCK_BYTES", block_bytes)
    content = steps(1, 1, 1)
    write_run(tmp_path, content)
    path = journal.path_of(tmp_path, 0)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        left = content[: whole.count(b"\n", 0, length)]
        assert list(journal.read(tmp_path, 0)) == left
        assert list(journal.read_backwards(tmp_path, 0)) == left[::-1]
        with Recorder(tmp_path, 0, attempt=1) as recorder:
            recorder.write(FINISHED)
        assert list(journal.read(tmp_path, 0)) == [*left, replace(FINISHED, attempt=1)]


def test_a_number_that_is_none_is_never_written(tmp_path: Path) -> None:
    with Recorder(tmp_path, 0) as recorder, pytest.raises(ValueError, match="not JSON compliant"):
        recorder.write(replace(STEP, loss=float("nan")))


def test_records_of_an_earlier_run_are_never_written_over(tmp_path: Path) -> None:
    write_run(tmp_path, [STEP])
    with pytest.raises(LockstepError, match=r"rank-0\.jsonl .*python -m app prepare.*RUN_NAME"):
        Recorder(tmp_path, 0)
    assert list(journal.read(tmp_path, 0)) == [STEP]


@given(
    st.lists(st.tuples(st.integers(0, 9999), st.floats(-1, 1)), min_size=1, max_size=4, unique_by=lambda pair: pair[0]),
    st.floats(-1e3, 2e4),
)
def test_between_comparisons_a_clock_drifts_evenly(compared: list[tuple[int, float]], moment: float) -> None:
    """Before the first one and after the last one it keeps its distance, to the same bits as by numpy."""
    compared = sorted(compared)
    rank = RankRecords(0, clocks=[Clock(0, at, ahead, 0.0) for at, ahead in compared])
    moments, distances = [at for at, _ in compared], [ahead for _, ahead in compared]
    for at in (moment, *moments):
        assert rank.on_common_clock(at) == at - float(np.interp(at, moments, distances))


@given(st.lists(st.lists(st.integers(0, 6), unique=True).map(sorted), min_size=1, max_size=3))
def test_steps_are_paired_by_number_whichever_are_missing(numbers: list[list[int]]) -> None:
    ranks = [[replace(STEP, rank=rank, step=step) for step in own] for rank, own in enumerate(numbers)]
    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    paired = [[(step.rank, step.step) for step in steps] for steps in run_records.together(ranks)]
    assert paired == [[(rank, number) for rank in range(len(ranks))] for number in common]


def test_an_evaluation_that_left_no_time_is_all_that_lies_between_epochs(tmp_path: Path) -> None:
    """Two epochs of two steps; a gap of half a second, then an evaluation of three."""

    def rank(late: float, clock_ahead: float) -> list[Record]:
        at = clock_ahead + late
        evaluation = Evaluation(0, 0, 2.0, 5, 10, 0.5)
        compared = [Clock(0, moment, clock_ahead, 0.001) for moment in (0.0, 100.0)]
        return [*compared, *steps(1, 1, began=at), evaluation, *steps(1, 1, first=2, began=at + 5.5, epoch=1)]

    run = summed_up(write_run(tmp_path, rank(0.0, 0.0), rank(0.25, 40.0)))
    # From 1 to 7.75; all were between epochs from 2.25 to 5.5.
    assert run["run"]["images_per_second"] == pytest.approx(6 * 64 / (6.75 - 3.25))
    assert run["ranks"][1]["images_per_second"] == pytest.approx(3 * 64 / (6.5 - 3.5))


def test_losses_are_weighted_by_samples(tmp_path: Path) -> None:
    none: dict[str, Any] = {"samples": 0, "loss": None}
    run = summed_up(
        write_run(
            tmp_path,
            [*steps(1, samples=3, loss=2.0), *steps(1, first=1)],
            [*steps(1, samples=1, loss=4.0), *steps(1, first=1, **none)],
        )
    )
    assert run["losses"] == [2.5, 2.5]
    assert run["ranks"][1]["loss"] is None


def test_what_was_not_measured_stays_null_and_never_becomes_zero(tmp_path: Path) -> None:
    run = summed_up(write_run(tmp_path, steps(1, 1, 1), steps(1)))
    assert run["run"]["wait_seconds"] is None
    assert run["run"]["accuracy"] is None
    assert run["ranks"][1]["seconds"] is None
    assert run["ranks"][1]["images_per_second"] is None
    assert run["replicas_identical"] is None
    assert not run["complete"]
    assert run["steps"] == 1


def test_a_rank_that_left_nothing_is_shown_as_such(tmp_path: Path) -> None:
    run = summed_up(write_run(tmp_path, steps(1, 1)))
    assert not run["complete"]
    assert run["ranks"][1]["steps"] == 0
    assert run["losses"] == []
    assert run["run"]["loss"] is None


def test_drifted_replicas_are_seen(tmp_path: Path) -> None:
    other = replace(FINISHED, parameters_sha256="other")
    run = summed_up(write_run(tmp_path, [*steps(1, 1, 1), FINISHED], [*steps(1, 1, 1), other]))
    assert run["complete"]
    assert run["replicas_identical"] is False


def test_training_accuracy_stands_beside_test_accuracy_per_rank_and_epoch(tmp_path: Path) -> None:
    def rank(correct: int) -> list[Record]:
        content: list[Record] = []
        for epoch in (0, 1):
            two = steps(1, 1, first=2 * epoch, epoch=epoch, samples=10, correct=correct + epoch)
            content += [*two, Evaluation(0, epoch, 2.0 - epoch, 5, 10, 0.5 + epoch / 10)]
        return content

    run = summed_up(write_run(tmp_path, rank(2), rank(4)))
    assert [each["training_accuracy"] for each in run["ranks"][0]["epochs"]] == [0.2, 0.3]
    assert [each["training_accuracy"] for each in run["ranks"][1]["epochs"]] == [0.4, 0.5]
    assert run["run"]["epochs"] == [
        {
            "epoch": epoch,
            "training_samples": 40,
            "training_loss": 2.5,
            "training_accuracy": pytest.approx(0.3 + epoch / 10),
            "test_loss": 2.0 - epoch,
            "accuracy": 0.5 + epoch / 10,
        }
        for epoch in (0, 1)
    ]
    for each in (run["run"], *run["ranks"]):
        assert each["training_accuracy"] == each["epochs"][-1]["training_accuracy"]
        assert each["accuracy"] == 0.6


def test_an_epoch_that_was_not_evaluated_has_no_test_accuracy(tmp_path: Path) -> None:
    run = summed_up(
        write_run(tmp_path, [*steps(1), Evaluation(0, 0, 2.0, 5, 10, 0.5), *steps(1, first=1, epoch=1)], steps(1))
    )
    assert [each["accuracy"] for each in run["ranks"][0]["epochs"]] == [0.5, None]
    assert run["run"]["epochs"][0]["accuracy"] is None
    assert run["ranks"][1]["epochs"][0]["training_accuracy"] == 7 / 64


def hiding(rank: int, late: float, clock_ahead: float) -> list[Record]:
    """Steps of 1 s: 0.1 s of buffers, then buckets at 0.4 and at 0.6 (`late` later), and backward's end at 0.9."""
    own = replace(
        STEP,
        rank=rank,
        sync_seconds=None,
        hidden_sync_seconds=0.2,
        exposed_sync_seconds=0.1 + 0.9 - (0.6 + late),
        buffers=[OverlappedMessage(8, 0.1, 0.2)],
        buckets=[OverlappedMessage(50, 0.4, 0.7), OverlappedMessage(50, 0.6 + late, 0.9)],
    )
    compared = [Clock(rank, at, clock_ahead, 0.001) for at in (0.0, 10.0)]
    at = [clock_ahead + (0.05 if rank == 0 else 0.0) + step for step in range(3)]
    return [*compared, *(replace(own, step=step, at_seconds=at[step]) for step in range(3))]


def test_waiting_is_told_apart_from_what_hides_on_one_clock_for_all(tmp_path: Path) -> None:
    """Rank 0 begins each step 0.05 s later, and rank 1's last bucket is ready 0.25 s after that of rank 0 would be."""
    run = write_run(tmp_path, hiding(0, 0.0, 0.0), hiding(1, 0.25, 7.0))
    for step in range(3):
        first, second = (rank.steps[step] for rank in run.ranks)
        # Rank 0 had all ready at 0.65, rank 1 at 0.85; rank 1 was 0.05 s early for rank 0's buffers.
        assert first.wait_seconds == pytest.approx(0.85 - 0.65)
        assert second.wait_seconds == pytest.approx(0.05)
        for each in (first, second):
            assert each.wait_seconds is not None
            assert each.exposed_sync_seconds is not None
            assert each.sync_seconds == pytest.approx(each.exposed_sync_seconds - each.wait_seconds)
    bandwidth = summed_up(run)["run"]["bandwidth"]
    # On rank 0: the first bucket from 0.45, when both had it, to 0.75; the second from 0.85 to 0.95.
    assert bandwidth["sync_seconds"] == pytest.approx(0.3 + 0.1)


def test_to_read_a_run_changes_nothing_of_what_its_ranks_wrote(tmp_path: Path) -> None:
    write_run(tmp_path, [*hiding(0, 0.0, 0.0), FINISHED], [*hiding(1, 0.25, 7.0), FINISHED])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run_records.read(tmp_path).ranks[0].steps[0].wait_seconds is not None
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_of_a_step_that_was_made_again_the_last_attempt_counts(tmp_path: Path) -> None:
    again = [replace(STEP, step=step, loss=1.0, attempt=1) for step in (1, 2)]
    evaluated = [Evaluation(0, 0, loss, 5, 10, 0.5, attempt) for attempt, loss in enumerate((3.0, 2.0))]
    content: list[Record] = [*steps(1, 1), evaluated[0], *again, evaluated[1]]
    for order in (content, content[::-1]):
        folder = tmp_path / str(order is content)
        folder.mkdir()
        rank = write_run(folder, order, steps(1, 1)).ranks[0]
        assert [(step.step, step.attempt, step.loss) for step in rank.steps] == [(0, 0, 2.5), (1, 1, 1.0), (2, 1, 1.0)]
        assert [(each.attempt, each.loss) for each in rank.evaluations] == [(1, 2.0)]


Lines = list[str]


def lines_of(folder: Path, rank: int) -> Lines:
    return journal.path_of(folder, rank).read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "told", "steps_of_all"),
    [
        (lambda own, other: own[:1] + own[2:], "rank 1: step 1 is not recorded.", 2),
        (lambda own, other: own[3:], "rank 1: steps 0, 1, 2 are not recorded.", 0),
        (lambda own, other: own[:2] + own[1:], "rank 1: step 1 is recorded more than once.", 3),
        (lambda own, other: other, "rank 1: its file has 4 records of rank 0, which do not count.", 0),
        (lambda own, other: own[:3] + other[:1] + own[3:], "rank 1: its file has 1 record of rank 0, which", 3),
        (lambda own, other: [own[0].replace('"step": 0', '"step": 3'), *own], "step 3 is recorded, but the run", 3),
        (lambda own, other: [], "nfinished ranks: 1", 0),
    ],
    ids=["one missing", "all missing", "doubled", "another rank's file", "a foreign line", "beyond the plan", "empty"],
)
def test_no_run_with_records_missing_or_foreign_is_complete(
    tmp_path: Path, damage: Callable[[Lines, Lines], Lines], told: str, steps_of_all: int
) -> None:
    """What is wrong is named; and steps are paired by their numbers, so that none is compared with another one."""
    content: list[Record] = [*(replace(STEP, step=step, loss=float(step)) for step in range(3)), FINISHED]
    whole = summed_up(write_run(tmp_path, content, content))
    assert whole["complete"]
    journal.path_of(tmp_path, 1).write_text("".join(damage(lines_of(tmp_path, 1), lines_of(tmp_path, 0))))
    damaged = summed_up(run_records.read(tmp_path))
    assert not damaged["complete"]
    assert any(told in warning for warning in damaged["warnings"])
    assert damaged["steps"] == len(damaged["losses"]) == steps_of_all
    assert set(damaged["losses"]) <= set(whole["losses"])


def test_records_of_before_there_were_attempts_are_read_as_the_first(tmp_path: Path) -> None:
    write_run(tmp_path, [STEP, FINISHED])
    path = journal.path_of(tmp_path, 0)
    assert path.read_text().count('"attempt": 0') == 2
    path.write_text(path.read_text().replace(', "attempt": 0', ""))
    assert list(journal.read(tmp_path, 0)) == [STEP, FINISHED]


def test_without_messages_there_is_no_bandwidth(tmp_path: Path) -> None:
    nothing = steps(1, 1, sync_seconds=None, bytes_sent=0, bytes_received=0, communication_seconds=0.0)
    run = summed_up(write_run(tmp_path, nothing, nothing))
    assert run["run"]["bandwidth"] is None
    assert run["ranks"][0]["link"] == {"sent_utilisation": None, "received_utilisation": None}


def test_against_links_that_were_not_measured_nothing_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, steps(1, 1), steps(1, 1))
    manifest = MANIFEST | {
        "sync_seconds_at_least": None,
        "ranks": [runs.participant(rank) for rank in (0, 1)],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    run = summed_up(run_records.read(tmp_path))
    assert run["run"]["bandwidth"]["utilisation"] is None
    assert run["run"]["bandwidth"]["sync_seconds_at_least"] is None
    assert run["run"]["bandwidth"]["bus_bytes_per_second"] > 0
