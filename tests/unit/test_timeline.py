"""The timeline of a page: which steps it shows, on one clock, and what its parts say under the pointer."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.analysis.run import Run
from app.pages import drawings, palette
from app.pages.chart import as_file
from app.pages.timeline import choose
from app.records.lines import Clock, OverlappedMessage, Record, Step
from tests.unit.test_records import STEP, write_run
from tests.unit.test_trace import EXPLICIT, HIDING


def drawn(folder: Path, *ranks: list[Record]) -> str:
    """The figure of a run with these records."""
    write_run(folder, *ranks)
    found = next(each for each in drawings.of_run(Run(folder)) if each.name == "timeline")
    assert found.chart is not None
    return as_file(found.chart)


def titles(drawing: str) -> list[str]:
    return re.findall("<title>(.*?)</title>", drawing)


def pairs(*seconds: float) -> list[tuple[Step, ...]]:
    """Steps of two ranks, of which the second one is slower."""
    return [
        tuple(replace(STEP, rank=rank, step=step, seconds=each + rank) for rank in (0, 1))
        for step, each in enumerate(seconds)
    ]


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ((), {}),
        ((9.0,), {"first": 0}),
        ((9.0, 1.0), {"median": 1, "first": 0}),
        ((9.0, 3.0, 2.0), {"median": 2, "worst": 1, "first": 0}),
        ((9.0, 3.0, 2.0, 1.0, 8.0), {"median": 2, "worst": 4, "first": 0}),
    ],
)
def test_it_shows_the_median_step_the_worst_and_the_first(seconds: tuple[float, ...], chosen: dict[str, int]) -> None:
    assert {name: steps[0].step for name, steps in choose(pairs(*seconds)).items()} == chosen


def test_a_step_is_as_long_as_on_its_slowest_rank() -> None:
    steps = [*pairs(1.0, 1.0, 1.0), (replace(STEP, step=3, seconds=9.0), replace(STEP, rank=1, step=3, seconds=0.1))]
    assert choose(steps)["worst"][0].step == 3


def test_each_bar_says_what_it_is_and_when_on_the_clock_of_all(tmp_path: Path) -> None:
    """Rank 1 begins half a second later; its own clock is ten seconds ahead."""
    drawing = drawn(tmp_path, [Clock(0, 0.0, 0.0, 0.0), EXPLICIT], [Clock(1, 0.0, 10.0, 0.0), late(EXPLICIT)])
    own = [each for each in titles(drawing) if each.startswith("rank 1")]
    assert own[:3] == [
        "rank 1, step 0: data, 100 ms, from 500 ms to 600 ms",
        "rank 1, step 0: forward, 300 ms, from 600 ms to 900 ms",
        "rank 1, step 0: backward, 400 ms, from 900 ms to 1.30 s",
    ]
    assert "first: step 0" in drawing
    assert "tooltip" not in drawing


def late(step: Step) -> Step:
    return replace(step, at_seconds=step.at_seconds + 10.5)


def test_a_step_below_a_second_is_in_milliseconds(tmp_path: Path) -> None:
    fast = replace(EXPLICIT, seconds=0.1, data_seconds=0.0123, forward_seconds=0.0377)
    told = titles(drawn(tmp_path, [fast], [fast]))
    assert told[0] == "rank 0, step 0: data, 12.3 ms, from 0 ms to 12.3 ms"


def test_a_message_is_drawn_as_long_as_backward_hides_it(tmp_path: Path) -> None:
    """One bucket ends behind backward; one begins when backward has ended, and nothing hides it."""
    step = replace(HIDING, buffers=None, buckets=[OverlappedMessage(40, 4.0, 7.0), OverlappedMessage(60, 6.0, 8.0)])
    drawing = drawn(tmp_path, [step], [step])
    assert [each for each in titles(drawing) if "rank 0" in each and "bucket" in each] == [
        "rank 0, step 0: bucket 0 of 40 B, 3.00 s, from 4.00 s to 7.00 s"
    ]
    assert "hidden messages" in drawing
    assert "hidden messages" not in drawn(make(tmp_path / "other"), [EXPLICIT], [EXPLICIT])


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_what_nobody_can_divide_is_neither_wait_nor_sync(tmp_path: Path) -> None:
    """Rank 1 has no bucket to compare with, so rank 0's exposed time stays whole."""
    whole = replace(HIDING, wait_seconds=None, sync_seconds=None)
    drawing = drawn(tmp_path, [whole], [EXPLICIT])
    assert [each.split(", ")[1] for each in titles(drawing) if "rank 0" in each and "wait or sync" in each]
    assert palette.UNDIVIDED["undivided"].light in drawing
    assert drawing.count(">wait or sync<") == 1  # in the legend
