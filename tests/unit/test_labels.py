"""Lines have their names at their ends only where a reader can tell which name is whose."""

import pytest

from app.pages import theme
from app.pages.labels import name_lines


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ([(9.0, 0.0), (9.0, 1.0)], "at the ends"),
        ([(9.0, 0.0), (9.0, 0.4), (9.0, 0.7), (9.0, 1.0)], "at the ends"),
        ([(9.0, 0.0), (9.0, 0.25), (9.0, 0.5), (9.0, 0.75), (9.0, 1.0)], "in a legend"),  # too many
        ([(9.0, 0.0), (9.0, 0.01), (9.0, 1.0)], "in a legend"),  # too close
        ([(5.0, 0.0), (9.0, 1.0)], "in a legend"),  # the upper line could cross the lower one's name
        ([(9.0, 1.0)], "nowhere"),
    ],
)
def test_where_the_names_stand(ends: list[tuple[float, float]], named: str) -> None:
    figure = theme.new_figure()
    axes = figure.subplots()
    for number, (at, value) in enumerate(ends):
        axes.plot([0.0, at], [0.5, value], label=f"rank {number}")
    axes.axhline(0.5)  # a mark, which has no name
    name_lines(figure)
    names = [f"rank {number}" for number in range(len(ends))]
    at_ends = [text.get_text() for text in axes.texts]
    in_legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    expected = {"at the ends": (names, []), "in a legend": ([], names), "nowhere": ([], [])}
    assert (at_ends, in_legends) == expected[named]


def test_a_long_name_would_take_the_room_of_the_lines() -> None:
    figure = theme.new_figure()
    axes = figure.subplots()
    for value in (0.0, 1.0):
        axes.plot([0.0, 9.0], [0.5, value], label="a name of a run that is long")
    name_lines(figure)
    assert (len(axes.texts), len(figure.legends)) == (0, 1)
