"""What repeats allow to say, tried on figures whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.statistics import Blocks, Comparison, Interval

RUNS = 2000  # of a simulated experiment, so that a share of 95 % is told to within 1.5 %


Figures = dict[str, list[float | None]]


def compared(blocks: Blocks, cell: str, other: str) -> Comparison:
    comparison = blocks.compare(cell, other)
    assert comparison is not None
    return comparison


def interval(found: Interval | None) -> tuple[float, float]:
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def simulated(seed: int, cells: dict[str, float], rounds: int, noise: float = 0.03, drift: float = 0.2) -> Figures:
    """Seconds of cells whose true ratios are known, on a machine that drifts from round to round."""
    random = np.random.default_rng(seed)
    whole_round = random.normal(0, drift, rounds)
    return {
        cell: [seconds * math.exp(float(each)) for each in whole_round + random.normal(0, noise, rounds)]
        for cell, seconds in cells.items()
    }


@pytest.mark.parametrize(("cells", "rounds"), [(2, 3), (5, 2), (5, 3), (8, 5)])
def test_the_true_ratio_lies_in_the_interval_as_often_as_it_says(cells: int, rounds: int) -> None:
    truth = {f"cell {number}": 1.0 + 0.3 * number for number in range(cells)}
    inside = 0
    for seed in range(RUNS):
        blocks = Blocks(simulated(seed, truth, rounds), ratios=True)
        low, high = interval(blocks.compare("cell 1", "cell 0"))
        inside += low <= 1.3 <= high
    assert inside / RUNS == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("cells", "rounds"), [(2, 3), (5, 3)])
def test_equal_cells_are_called_different_in_one_case_of_twenty(cells: int, rounds: int) -> None:
    truth = {f"cell {number}": 1.0 for number in range(cells)}
    called = 0
    for seed in range(RUNS):
        blocks = Blocks(simulated(seed, truth, rounds), ratios=True)
        called += bool(compared(blocks, "cell 1", "cell 0").beyond_noise)
    assert called / RUNS == pytest.approx(0.05, abs=0.02)


def test_a_difference_well_above_the_noise_is_found_although_the_machine_drifts_more_than_that() -> None:
    figures = simulated(1, {"fast": 1.0, "middle": 1.1, "slow": 1.3}, rounds=3, noise=0.01, drift=0.5)
    blocks = Blocks(figures, ratios=True)
    comparison = compared(blocks, "slow", "fast")
    assert comparison.beyond_noise
    assert comparison.value == pytest.approx(1.3, rel=0.05)
    assert blocks.noise == pytest.approx(0.01, rel=1.0)


def test_noise_is_measured_without_what_a_round_has_in_common() -> None:
    drifting = {"a": [1.0, 2.0, 4.0], "b": [3.0, 6.0, 12.0]}
    assert Blocks(drifting, ratios=True).noise == pytest.approx(0.0, abs=1e-9)


def test_one_round_knows_no_noise_and_calls_nothing_a_difference() -> None:
    blocks = Blocks({"a": [1.0], "b": [100.0]}, ratios=True)
    comparison = compared(blocks, "b", "a")
    assert blocks.noise is None
    assert comparison.value == pytest.approx(100)
    assert comparison.beyond_noise is None
    assert blocks.estimate("a") == Interval(1.0, None, None)


def test_one_cell_alone_has_an_interval_and_nothing_to_be_compared_with() -> None:
    blocks = Blocks({"a": [1.0, 1.1, 1.2]}, ratios=True)
    low, high = interval(blocks.estimate("a"))
    assert low < 1.1 < high
    assert blocks.compare("a", "b") is None


def test_an_interval_of_two_repeats_is_students() -> None:
    found = interval(Blocks({"a": [10.0, 12.0]}, ratios=False).estimate("a"))
    assert list(found) == pytest.approx([11 - 12.7062, 11 + 12.7062], abs=1e-4)


def test_a_missing_run_costs_certainty_and_no_more() -> None:
    figures = simulated(2, {"a": 1.0, "b": 1.2, "c": 1.5}, rounds=3, noise=0.02, drift=0.3)
    whole = compared(Blocks(figures, ratios=True), "b", "a")
    figures["b"][1] = None
    part = compared(Blocks(figures, ratios=True), "b", "a")
    assert part.value == pytest.approx(whole.value, rel=0.1)
    low, high = interval(part)
    assert low <= 1.2 <= high


def test_cells_that_were_never_measured_together_are_still_compared_through_others() -> None:
    figures: Figures = {"a": [1.0, None], "b": [2.0, 4.0], "c": [None, 8.0]}
    assert compared(Blocks(figures, ratios=True), "c", "a").value == pytest.approx(4.0)


def test_nothing_measured_is_nothing_said() -> None:
    blocks = Blocks({"a": [None, None]}, ratios=True)
    assert blocks.estimate("a") is None
    assert blocks.compare("a", "a") is None
    assert blocks.noise is None


RoundsOfACell = st.lists(st.floats(0.1, 10), min_size=3, max_size=3)


@given(st.lists(RoundsOfACell, min_size=2, max_size=4), st.lists(st.floats(0.2, 5), min_size=3, max_size=3))
def test_a_round_that_is_slower_as_a_whole_changes_no_comparison(cells: list[list[float]], slower: list[float]) -> None:
    plain: Figures = {str(number): list(values) for number, values in enumerate(cells)}
    drifted: Figures = {
        str(number): [value * factor for value, factor in zip(values, slower, strict=True)]
        for number, values in enumerate(cells)
    }
    one, other = (compared(Blocks(each, ratios=True), "1", "0") for each in (plain, drifted))
    assert other.value == pytest.approx(one.value, rel=1e-6)
    assert list(interval(one)) == pytest.approx(list(interval(other)), rel=1e-5)


@given(st.lists(RoundsOfACell, min_size=2, max_size=4))
def test_comparing_the_other_way_round_turns_the_ratio_round(cells: list[list[float]]) -> None:
    blocks = Blocks({str(number): list(values) for number, values in enumerate(cells)}, ratios=True)
    one, other = compared(blocks, "1", "0"), compared(blocks, "0", "1")
    assert one.value * other.value == pytest.approx(1)
    assert one.beyond_noise == other.beyond_noise
