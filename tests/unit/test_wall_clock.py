"""The parts of a run's wall clock, on runs whose times are known: they add up to the whole, to the last bit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis import wall_clock
from app.analysis.run_records import RankRecords
from app.records.lines import Checkpoint, Clock, Evaluation, Finished, Usage
from tests.unit.test_records import FINISHED, STEP

EARLIER = 2.0  # seconds of rank 1's clock before rank 0's
EVALUATION = Evaluation(0, 0, 2.25, 10, 100, 0.1)


def clock_of(rank: int, process: float, links: float, seconds: float) -> Clock:
    ahead = EARLIER * rank
    return Clock(rank, ahead, ahead, 0.001, 0, process + ahead, links + ahead, seconds)


def ranks() -> list[RankRecords]:
    """Two ranks that start apart, step by turns, evaluate together; rank 1's clock is two seconds ahead."""
    return [
        of_rank(0, steps=[(1.0, 1.0), (2.0, 1.5), (6.0, 1.0)], evaluated=(4.0, 1.5), finished=8.0),
        of_rank(1, steps=[(1.5, 1.0), (2.5, 0.75), (6.5, 1.0)], evaluated=(3.75, 1.25), finished=8.25),
    ]


def of_rank(
    rank: int,
    steps: list[tuple[float, float]],
    evaluated: tuple[float, float] | None = None,
    finished: float | None = None,
) -> RankRecords:
    ahead = EARLIER * rank
    return RankRecords(
        rank,
        [
            replace(STEP, rank=rank, step=step, at_seconds=at + ahead, seconds=seconds)
            for step, (at, seconds) in enumerate(steps)
        ],
        clocks=[clock_of(rank, -5.0 - rank, -3.0 - 0.25 * rank, 1.0)],
        evaluations=[replace(EVALUATION, at_seconds=evaluated[0] + ahead, seconds=evaluated[1])] if evaluated else [],
        finished=None if finished is None else replace(FINISHED, at_seconds=finished + ahead),
    )


WallClock = dict[str, float | None]


def clock(*seconds: float | None) -> WallClock:
    """The whole, and its parts in their order."""
    return dict(zip(wall_clock.PARTS, seconds, strict=True))


def sum_of_parts(clock: WallClock) -> float:
    return sum(seconds for name, seconds in clock.items() if name != "seconds" and seconds is not None)


def test_each_moment_counts_once_over_all_ranks() -> None:
    assert wall_clock.of(ranks()) == {
        "seconds": 6.0 + 8.25,
        "start_seconds": 6.0 + 1.0 - 1.25,
        "links_seconds": 1.25,  # from -3.25 to -2
        "training_seconds": 2.5 + 1.5,  # from 1 to 3.5, and from 6 to 7.5
        "gaps_seconds": 0.25 + 0.5,
        "evaluation_seconds": 1.75,  # from 3.75 to 5.5
        "saving_seconds": 0.0,
        "lost_seconds": 0.0,
        "end_seconds": 0.75,
    }


def test_an_evaluation_beside_a_step_is_training() -> None:
    """A rank without samples is done with its steps before the others."""
    both = [of_rank(0, [(0.0, 1.0)], (1.0, 2.0)), of_rank(1, [(0.0, 2.0)], (2.0, 0.5))]
    found = wall_clock.of(both)
    assert found is not None
    assert (found["training_seconds"], found["evaluation_seconds"], found["gaps_seconds"]) == (2.0, 1.0, 0.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e5), st.floats(0, 1e3), st.floats(-1e4, 0), st.booleans()), min_size=1, max_size=12
    ),
    st.floats(-10, 10),
)
def test_the_parts_add_up_to_the_last_bit(spans: list[tuple[float, float, float, bool]], ahead: float) -> None:
    some = [
        RankRecords(
            0,
            [] if evaluates else [replace(STEP, at_seconds=at, seconds=seconds)],
            clocks=[Clock(0, 0.0, ahead, 0.0, 0, process, process / 2, seconds)],
            evaluations=[replace(EVALUATION, at_seconds=at, seconds=seconds)] if evaluates else [],
        )
        for at, seconds, process, evaluates in spans
    ]
    found = wall_clock.of(some)
    assert found is not None
    assert sum_of_parts(found) == found["seconds"]
    assert all(seconds is not None and seconds >= 0 for seconds in found.values())
    ended = max(at + seconds for at, seconds, _, _ in spans)
    assert found["seconds"] == pytest.approx(ended - min(process for *_, process, _ in spans), abs=1e-5)


def test_a_run_that_broke_off_lasts_until_its_last_record() -> None:
    broken = ranks()
    for rank in broken:
        rank.finished = None
    broken[1].usage = [Usage(1, 9.0 + EARLIER, 0.5, 1.0, 1.0, None, 1, None, None)]
    found = wall_clock.of(broken)
    assert found is not None
    assert (found["end_seconds"], found["seconds"]) == (9.0 - 7.5, 6.0 + 9.0)
    assert sum_of_parts(found) == found["seconds"]


def test_a_run_without_a_step_never_left_its_start() -> None:
    found = wall_clock.of([of_rank(0, [])])
    assert found == clock(5.0, 4.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert wall_clock.of([RankRecords(0)]) is None


def test_what_an_earlier_version_did_not_record_is_null() -> None:
    older = ranks()
    for rank in older:
        rank.clocks = [replace(rank.clocks[0], process_at_seconds=None, links_at_seconds=None, links_seconds=None)]
        rank.finished = Finished(rank.rank, 3, 8.0, "abc", 0)
    assert wall_clock.of(older) == clock(None, None, None, 4.0, 0.75, 1.75, 0.0, 0.0, None)
    assert wall_clock.in_words(wall_clock.of(older)) is None
    older[0].evaluations = [EVALUATION]
    assert wall_clock.of(older) == clock(None, None, None, 4.0, None, None, 0.0, 0.0, None)


def test_what_lies_between_two_attempts_is_lost_and_saving_is_a_part_of_its_own() -> None:
    """The second attempt takes step 1 again, from 5 on; a state is saved from 2 to 2.5."""
    steps = [(0, 1.0, 1.0, 0), (1, 5.0, 1.0, 1), (2, 6.0, 1.0, 1)]
    records = RankRecords(
        0,
        [replace(STEP, step=step, at_seconds=at, seconds=taken, attempt=by) for step, at, taken, by in steps],
        clocks=[clock_of(0, -2.0, -1.0, 0.5)],
        checkpoints=[Checkpoint(0, 1, 100, 2.0, 0.5)],
        finished=replace(FINISHED, at_seconds=7.5, attempt=1),
    )
    found = wall_clock.of([records])
    assert found is not None
    assert (found["training_seconds"], found["saving_seconds"], found["lost_seconds"], found["gaps_seconds"]) == (
        3.0,
        0.5,
        2.5,
        0,
    )
    assert sum_of_parts(found) == found["seconds"]
    assert [step.step for step in records.warm] == [2]


def test_in_words_the_largest_part_comes_first() -> None:
    assert wall_clock.in_words(wall_clock.of(ranks())) == (
        "The whole run took 14.2 s by wall clock: start 5.75 s (40 %), training 4.00 s (28 %), evaluation 1.75 s "
        "(12 %), links 1.25 s (9 %), gaps between steps 750 ms (5 %), end 750 ms (5 %)."
    )
    assert wall_clock.in_words(clock(4000.0, 1.0, 0.0, 3999.0, 0.0, 0.0, 0.0, 0.0, 0.0)) == (
        "The whole run took 4000 s by wall clock: training 3999 s (100 %)."
    )
