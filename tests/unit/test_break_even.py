"""Break-even: found where it was put, in words where there is none, and never told from noise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.break_even import EVERYWHERE, NOWHERE, break_even
from app.analysis.statistics import Blocks, Interval
from app.pages.along import break_even_in_words
from app.tools.experiment.views.line import MEGABITS

RATES = [25e6, 100e6, 200e6, 1e9, 10e9]
SEVERAL = st.lists(st.floats(1e6, 1e11), min_size=2, max_size=8, unique_by=lambda rate: round(math.log(rate), 3))
NOISE = st.lists(st.floats(-0.05, 0.05), min_size=2, max_size=6)


def of_rounds(ratios: dict[float, float], rounds: list[float], disturbed: bool = False) -> dict[float, Interval]:
    """What Blocks makes of rounds in which a machine was so much slower, and of runs that differ a little besides."""
    figures: dict[str, list[float | None]] = {}
    for number, (rate, ratio) in enumerate(ratios.items()):
        small = [0.01 * ((number + place) % 3 - 1) * disturbed for place in range(len(rounds))]
        figures[f"plain {rate}"] = [math.exp(each) for each in rounds]
        figures[f"other {rate}"] = [ratio * math.exp(each + more) for each, more in zip(rounds, small, strict=True)]
    blocks = Blocks(figures, ratios=True)
    found = {rate: blocks.compare(f"other {rate}", f"plain {rate}") for rate in ratios}
    return {rate: each for rate, each in found.items() if each}


@given(SEVERAL, st.floats(0.05, 0.95), st.floats(0.1, 3), NOISE)
def test_a_crossing_is_found_where_it_was_put(rates: list[float], at: float, slope: float, rounds: list[float]) -> None:
    low, high = math.log(min(rates)), math.log(max(rates))
    truth = math.exp(low + at * (high - low))
    found = break_even(of_rounds({rate: (rate / truth) ** slope for rate in rates}, rounds))
    assert found.value == pytest.approx(truth, rel=1e-3)


@given(st.floats(0.01, 5), st.floats(0, 3), st.floats(1e6, 1e9), st.floats(0, 0.99), NOISE, st.booleans())
def test_a_cost_model_crosses_between_the_rates_around_it(
    compute: float, extra: float, size: float, share: float, rounds: list[float], disturbed: bool
) -> None:
    """Compressed, a step computes longer and sends a share of the bits."""
    ratios = {rate: (compute + extra + share * size / rate) / (compute + size / rate) for rate in RATES}
    found = break_even(of_rounds(ratios, rounds, disturbed))
    if not disturbed:
        below, above = [r for r in RATES if ratios[r] < 1 - 1e-9], [r for r in RATES if ratios[r] > 1 + 1e-9]
        assert not below or found.value >= max(below) * (1 - 1e-9)
        assert not above or found.value <= min(above) * (1 + 1e-9)
    if found.low is not None and found.high is not None:
        assert found.low <= found.value * (1 + 1e-9)
        assert found.value <= found.high * (1 + 1e-9)


@given(st.permutations(RATES), st.floats(1.01, 3), NOISE)
def test_what_is_faster_or_slower_at_all_rates_has_none(rates: list[float], factor: float, rounds: list[float]) -> None:
    assert break_even(of_rounds(dict.fromkeys(rates, factor), rounds)).value == NOWHERE
    assert break_even(of_rounds(dict.fromkeys(rates, 1 / factor), rounds)).value == EVERYWHERE


def test_where_measured_ratios_fall_neighbours_take_their_mean() -> None:
    ratios = {1e6: 0.5, 2e6: 1.2, 4e6: 1 / 1.2, 8e6: 2.0}
    found = break_even({rate: Interval(ratio, None, None) for rate, ratio in ratios.items()})
    assert found.low is found.high is None
    assert 2e6 <= found.value <= 4e6


def exactly(*ratios: tuple[float, float | None, float | None]) -> str:
    given = {rate: Interval(*ratio) for rate, ratio in zip((25e6, 100e6, 1e9), ratios, strict=True)}
    return break_even_in_words("top_k", "plain", given, MEGABITS)


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        (((0.1, 0.09, 0.11), (0.5, 0.45, 0.55), (2, 1.8, 2.2)), "top_k is faster than plain below 316 Mbit/s (2"),
        (((0.5, 0.4, 0.6), (0.6, 0.5, 0.7), (0.7, 0.6, 0.8)), "faster than plain at each of these rates, up to 1000"),
        (((1.5, 1.4, 1.6), (1.6, 1.5, 1.7), (2, 1.9, 2.1)), "slower than plain at each of these rates, down to 25"),
        (((0.9, 0.5, 1.5), (1, 0.6, 1.6), (1.1, 0.7, 1.7)), "No measured rate shows a difference"),
        (((0.5, 0.4, 0.6), (0.8, 0.7, 0.9), (0.9, 0.7, 1.2)), "the upper limit is unknown"),
        (((1.1, 0.9, 1.3), (1.5, 1.3, 1.7), (2, 1.8, 2.2)), "top_k is slower than plain from "),
        (((0.95, 0.8, 1.1), (1.5, 1.3, 1.7), (2, 1.8, 2.2)), "(less than 25 Mbit/s to "),
        (((0.5, 0.4, 0.6), (0.9, 0.8, 0.98), (1.02, 0.9, 1.2)), "to more than 1000 Mbit/s)."),
        (((0.5, None, None), (1.5, None, None), (2, None, None)), "the noise is unknown"),
        (
            ((1.5, None, None), (1.5, None, None), (2, None, None)),
            "slower at each of these rates, but the noise",
        ),
    ],
)
def test_the_sentence_says_no_more_than_the_intervals_do(
    ratios: list[tuple[float, float | None, float | None]], said: str
) -> None:
    assert said in exactly(*ratios)
