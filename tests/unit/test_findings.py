"""Sentences say no more than the comparisons do, whatever rounds are missing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.statistics import Blocks
from app.analysis.units import PERCENT, SECONDS
from app.pages.along import Order
from app.pages.findings import Judged

VALUE = st.one_of(st.none(), st.floats(0.1, 10.0))
ROUNDS = st.lists(VALUE, min_size=3, max_size=3)
CELLS = st.dictionaries(st.sampled_from("abcde"), ROUNDS, min_size=2)


def judged(measured: dict[str, list[float | None]], *, slowest_is_largest: bool = True) -> Judged:
    known = {cell: values for cell, values in measured.items() if any(each is not None for each in values)}
    return Judged("time", SECONDS, Blocks(known, ratios=True), slowest_is_largest)


@given(CELLS, st.booleans())
def test_who_is_called_faster_is_not_slower_in_the_comparison(
    measured: dict[str, list[float | None]], slowest_is_largest: bool
) -> None:
    """A cell that ran in a slow round alone has a large median, and need not be slow."""
    found = judged(measured, slowest_is_largest=slowest_is_largest)
    for sentence in found.fastest(list(measured)):
        for factor in re.findall(r"([\d.]+) times", sentence):
            assert float(factor) >= 0.99, sentence
    names = {cell: cell for cell in found.blocks.cells}
    if len(names) > 1:
        order = Order.of("here", names, found)
        fastest, slowest = order.names[-1], order.names[0]
        apart = found.speed(fastest, slowest)
        assert apart
        assert apart.value >= 1 - 1e-9


@given(CELLS)
def test_a_difference_within_the_noise_has_no_factor(measured: dict[str, list[float | None]]) -> None:
    found = judged(measured)
    for cell in found.blocks.cells:
        for other in found.blocks.cells:
            comparison, words = found.blocks.compare(cell, other), found.against(cell, other)
            assert comparison
            assert words
            assert (comparison.beyond_noise is False) == ("times" not in words)
            assert comparison.beyond_noise is False or float(words.split()[0]) >= 0.99


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_differ_by_points_with_the_sign_of_their_difference(one: float, other: float) -> None:
    found = Judged("share", PERCENT, Blocks({"one": [one], "other": [other]}, ratios=False), None)
    words = found.against("one", "other")
    assert words
    assert float(words.split()[0]) == pytest.approx(100 * (one - other), abs=0.051)
