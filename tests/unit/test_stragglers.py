"""A straggler is named on evidence: rarely where all ranks are equal, and surely where one is slow."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from app.analysis.measures import STRAGGLER, STRAGGLER_UNDECIDED
from app.analysis.run import summarise
from app.analysis.run_records import RankRecords, RunRecords
from app.analysis.statistics import student
from app.analysis.straggler import compare
from app.records.lines import Step
from tests import runs
from tests.unit.test_records import STEP

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


# From records: forward, waiting and synchronisation of each of three ranks


def late(number: int, rank: int) -> tuple[float, float, float]:
    """Rank 2 computes for long, and the others wait."""
    return (0.30, 0.00, 0.02) if rank == 2 else (0.05, 0.25, 0.02)


def in_turns(number: int, rank: int) -> tuple[float, float, float]:
    """Each rank is late in every third step; rank 2 is later than the others, and no more often."""
    turn = number % 3
    forward = 0.60 if turn == 2 else 0.30
    return (forward, 0.00, 0.02) if rank == turn else (0.05, forward - 0.05, 0.02)


@pytest.mark.parametrize(
    ("times", "bound", "straggler", "undecided"),
    [
        (late, "straggler", 2, False),
        (in_turns, "straggler", None, True),
        (lambda number, rank: (0.10, 0.01, 0.02), "compute", None, False),
        (lambda number, rank: (0.10, 0.01, 0.30), "communication", None, False),
    ],
)
def test_what_bounds_a_run_and_who_is_blamed_follow_from_its_records(
    times: Callable[[int, int], tuple[float, float, float]], bound: str, straggler: int | None, undecided: bool
) -> None:
    ranks = [RankRecords(rank, [timed(step, *times(step, rank), rank=rank) for step in range(14)]) for rank in range(3)]
    manifest = runs.manifest(world_size=3, ranks=[runs.participant(rank) for rank in range(3)])
    summary = summarise(RunRecords(manifest, ranks))
    assert (summary.verdict.bound, summary.run[STRAGGLER], summary.run[STRAGGLER_UNDECIDED]) == (
        bound, straggler, undecided
    )  # fmt: skip


def timed(number: int, forward: float, wait: float, sync: float, rank: int) -> Step:
    short = {f"{phase}_seconds": 0.001 for phase in ("data", "backward", "optimiser")}
    own: dict[str, Any] = {"forward_seconds": forward, "wait_seconds": wait, "sync_seconds": sync, **short}
    return replace(STEP, rank=rank, step=number, at_seconds=float(number), seconds=sum(own.values()), **own)
