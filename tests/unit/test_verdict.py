"""What bounds a run follows from its figures; and what is not known is not said."""

from typing import Any

import pytest

from app.summary import verdict

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")
MANIFEST: dict[str, Any] = {"settings": {"rank_cpus": None}, "ranks": []}


def summary(
    shares: tuple[float | None, ...] | None, link_used: float | None = None, held_back: float | None = 0.0
) -> dict[str, Any]:
    rank = {
        "rank": 0,
        "finished": True,
        "bytes_sent_per_step": 100.0,
        "formula_bytes_sent_per_step": 100.0,
        "interface_bytes_sent_per_step": None,
        "link": {"sent_utilisation": link_used, "received_utilisation": None},
        "usage": {"seconds": 10.0, "throttled_seconds": held_back},
    }
    run = {
        "shares": dict(zip(PHASES, shares, strict=True)) if shares else None,
        "straggler": None,
        "hidden_sync_seconds": None,
        "sync_seconds": None,
        "bytes_sent_per_step": 100.0,
        "bandwidth": None,
        "accuracy": None,
        "clock_uncertainty_seconds": None,
    }
    return {
        "run": run,
        "ranks": [rank, rank],
        "world_size": 2,
        "losses": [],
        "replicas_identical": None,
        "complete": True,
        "dataset": "cifar10",
    }


@pytest.mark.parametrize(
    ("shares", "link_used", "held_back", "bound", "headline"),
    [
        ((0.0, 0.3, 0.5, 0.0, 0.2, 0.0), 0.9, 0.0, "compute", "Compute-bound: 80 % of the step is computation"),
        (
            (0.0, 0.1, 0.2, 0.1, 0.6, 0.0),
            0.94,
            0.0,
            "communication",
            "60 % of the step is exposed synchronisation;",
        ),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.94, 9.0, "communication", "rank 0's link is used to 94 %"),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.02, 0.0, "communication", "rank 0's link is used to 2 %"),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.02, 9.0, "compute", "holds the ranks back up to 0.9 s in each second"),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), None, None, "communication", "60 % of the step is exposed synchronisation."),
        ((0.0, 0.2, 0.2, 0.6, 0.0, 0.0), None, 0.0, "straggler", "Straggler-bound: 60 % of the step is waiting"),
        ((0.7, 0.1, 0.2, None, None, 0.0), None, 0.0, "data", "Data-bound: 70 % of the step"),
        (None, None, None, None, "Nothing can be said about times"),
    ],
)
def test_the_bound_and_the_first_sentence(
    shares: tuple[float | None, ...] | None,
    link_used: float | None,
    held_back: float | None,
    bound: str | None,
    headline: str,
) -> None:
    reached = verdict.reach(summary(shares, link_used, held_back), MANIFEST)
    assert reached["bound"] == bound
    assert headline in reached["sentences"][0]


def test_one_rank_that_is_held_back_is_a_straggler_and_not_everybodys_cpu() -> None:
    figures = summary((0.0, 0.2, 0.2, 0.6, 0.0, 0.0), 0.01, 0.0)
    slow = figures["ranks"][0] | {"usage": {"seconds": 10.0, "throttled_seconds": 8.0}}
    figures["ranks"] = [figures["ranks"][0], slow, figures["ranks"][0]]
    figures["run"]["straggler"] = {
        "rank": 1,
        "work_ratio": 2.5,
        "last_in": 0.9,
        "wait_seconds": 0.01,
        "others_wait_seconds": 0.2,
    }
    reached = verdict.reach(figures, MANIFEST)
    assert reached["bound"] == "straggler"
    assert "60 % of the step is waiting for rank 1" in reached["sentences"][0]
    assert "Rank 1 is the straggler: its own work takes 2.50 times" in reached["sentences"][1]


def test_a_quota_is_a_warning_only_where_nobody_asked_for_it() -> None:
    held_back = summary((0.0, 0.5, 0.5, 0.0, 0.0, 0.0), None, 3.0)
    asked = MANIFEST | {"settings": {"rank_cpus": 0.5}}
    assert any("RANK_CPUS did not ask for" in warning for warning in verdict.warnings(held_back, MANIFEST))
    assert not list(verdict.warnings(held_back, asked))
    assert any("as asked" in sentence for sentence in verdict.reach(held_back, asked)["sentences"])
    never = summary((0.0, 0.5, 0.5, 0.0, 0.0, 0.0), None, 0.0)
    assert not list(verdict.warnings(never, MANIFEST))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"complete": False, "steps": 3, "steps_planned": 9}, "incomplete: 3 of 9 steps"),
        ({"replicas_identical": False}, "the replicas have drifted apart"),
        ({"dataset": "shapes"}, "nothing about CIFAR-10"),
        ({"dataset": "digits"}, "nothing about MNIST"),
    ],
)
def test_what_readers_must_know_is_a_warning(change: dict[str, Any], told: str) -> None:
    (warning,) = verdict.warnings(summary(None) | change, MANIFEST)
    assert told in warning


def test_bytes_that_are_not_the_formulas_are_said() -> None:
    wrong = summary((0.0, 0.5, 0.5, 0.0, 0.0, 0.0))
    wrong["ranks"][1] = wrong["ranks"][1] | {"rank": 1, "bytes_sent_per_step": 90.0}
    assert "The bytes sent are not those of the formula on ranks 1." in verdict.reach(wrong, MANIFEST)["sentences"]
