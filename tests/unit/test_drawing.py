"""The drawings of schedules: on the page as they are drawn, and readable for many ranks."""

from pathlib import Path

import pytest

from app.sync.modes.ring_all_reduce import ring
from app.sync.schedules import drawing
from app.sync.schedules.schedule import Message, Schedule
from tests.unit.test_schedules import ELEMENTS, SCHEDULED, schedule_of

PAGE = (Path(__file__).parents[2] / "docs/algorithms.md").read_text()


@pytest.mark.parametrize(("mode", "ranks"), [("halving_doubling", 4), ("tree", 6)])
def test_the_page_has_the_drawing(mode: str, ranks: int) -> None:
    lines = [f"{mode} on {ranks} ranks", *drawing.draw(schedule_of(mode, ELEMENTS, ranks), ranks)]
    assert "\n".join(f"    {line}" for line in lines) in PAGE


@pytest.mark.parametrize("mode", SCHEDULED)
def test_every_message_is_drawn_once(mode: str) -> None:
    schedule = schedule_of(mode, ELEMENTS, 6)
    drawn = " ".join(drawing.draw(schedule, 6)[1:])
    assert drawn.count("+>") == sum(each.adds for each in schedule.messages)
    assert drawn.count("=>") == sum(not each.adds for each in schedule.messages)


def test_more_pieces_than_letters() -> None:
    lines = drawing.draw(ring(840, 30), 30)
    assert len(lines) == 1 + 58
    assert "d1+>" in "\n".join(lines)


def test_a_long_piece_is_drawn_by_its_ends() -> None:
    pieces = [Message(0, 1, range(each, each + 1), adds=True) for each in range(6)]
    schedule = Schedule.of(pieces, [Message(1, 0, range(6), adds=False)])
    assert drawing.draw(schedule, 2)[-1].split() == ["2", "a..f=>0"]
    assert "a to f" in drawing.legend(schedule)
