"""A straggler is named on evidence: rarely where all ranks are equal, and surely where one is slow."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from app.analysis.statistics import student
from app.analysis.straggler import compare

Numbers = npt.NDArray[np.float64]
RUNS = 400

NOISES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Numbers]] = {
    "normal": lambda draw, size: np.clip(draw.normal(1, 0.3, size), 0.05, None),
    "lognormal": lambda draw, size: np.exp(draw.normal(0, 0.3, size)),
    "gamma": lambda draw, size: draw.gamma(1 / 0.09, 0.09, size),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("steps", [5, 20, 200])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_of_equal_ranks_at_most_one_run_in_a_hundred_names_one(noise: str, steps: int, ranks: int) -> None:
    """With 30 % of noise; the draws are given by a seed, and the bound leaves room for their own chance."""
    draw = np.random.default_rng([steps, ranks])
    named = sum(compare(NOISES[noise](draw, (steps, ranks))).proven for _ in range(RUNS))
    assert named <= 0.01 * RUNS + 3 * np.sqrt(0.01 * RUNS)


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize(("steps", "noise"), [(20, 0.1), (200, 0.3)])
def test_a_rank_that_is_slower_by_a_third_is_named(steps: int, noise: float, ranks: int) -> None:
    draw = np.random.default_rng([steps, ranks])
    found = []
    for _ in range(RUNS):
        work = np.exp(draw.normal(0, noise, (steps, ranks)))
        work[:, 1] *= 1.3
        ratio = compare(work)
        assert ratio.low is not None
        assert ratio.high is not None
        found.append((ratio.proven and ratio.rank == 1, ratio.low <= 1.3 <= ratio.high))
    named, covered = np.mean(found, axis=0)
    assert named >= 0.98
    assert covered >= 0.98


def test_steps_that_are_slow_for_all_ranks_are_no_noise() -> None:
    """A step that takes ten times as long on every rank says nothing about one of them."""
    draw = np.random.default_rng(1)
    work = np.exp(draw.normal(0, 0.02, (20, 4))) * np.exp(draw.normal(0, 1, (20, 1)))
    work[:, 3] *= 1.2
    assert compare(work).proven


def test_a_slower_rank_that_is_hardly_slower_is_not_worth_naming() -> None:
    work = np.ones((50, 3))
    work[:, 0] = 1.05
    assert not compare(work).proven
    assert not compare(work).open


def test_of_few_steps_it_is_said_that_they_do_not_suffice() -> None:
    alike = np.exp(np.random.default_rng(2).normal(0, 0.3, (3, 4)))
    assert compare(alike).open
    assert compare(alike[:1]).open
    assert not compare(np.exp(np.random.default_rng(2).normal(0, 0.05, (200, 4)))).open


@pytest.mark.parametrize(
    ("tail", "degrees", "value"),
    [(0.025, 1, 12.706), (0.025, 4, 2.776), (0.025, 20, 2.086), (0.005, 9, 3.250), (0.0005, 2, 31.599)],
)
def test_students_t_is_the_books(tail: float, degrees: int, value: float) -> None:
    assert student(tail, degrees) == pytest.approx(value, rel=1e-3)
