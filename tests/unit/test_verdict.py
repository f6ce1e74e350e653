"""What bounds a run follows from its figures; and what is not known is not said."""

import re
from dataclasses import astuple, replace
from typing import Any

import pytest

from app.analysis import verdict
from app.analysis.bound import Parts
from app.analysis.figures import Figures
from app.analysis.summary import Summary
from tests import runs

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")
MANIFEST = runs.manifest()


def rank(number: int = 0, link_used: float | None = None, held_back: float | None = 0.0, **changes: Any) -> Figures:
    usage = {
        "seconds": 10.0,
        "cpu_user_percent": 90.0,
        "cpu_system_percent": 10.0,
        "throttled_seconds": held_back,
        "most_memory_bytes": 1,
        "network_sent_bytes_per_second": None,
        "network_received_bytes_per_second": None,
    }
    link = {"sent_utilisation": link_used, "received_utilisation": None}
    return runs.rank_figures(number, **({"bytes_sent_per_step": 100.0, "link": link, "usage": usage} | changes))


def group(shares: tuple[float | None, ...] | None, **changes: Any) -> Figures:
    parts = dict(zip(PHASES, shares, strict=True)) if shares else None
    return runs.group_figures(shares=parts, bytes_sent_per_step=100.0, **changes)


def bandwidth(utilisation: float | None) -> dict[str, float | None]:
    return {
        "sync_seconds": 1.0,
        "sync_seconds_at_least": utilisation,
        "algorithm_bytes_per_second": 100.0,
        "bus_bytes_per_second": 100.0,
        "link_bytes_per_second": None,
        "utilisation": utilisation,
    }


def summary(
    shares: tuple[float | None, ...] | None, links_used: float | None = None, held_back: float | None = 0.0
) -> Summary:
    ranks = [rank(number, held_back=held_back) for number in range(2)]
    return runs.summary(group(shares, bandwidth=bandwidth(links_used)), ranks)


@pytest.mark.parametrize(
    ("shares", "links_used", "held_back", "bound", "percent"),
    [
        ((0.0, 0.3, 0.5, 0.0, 0.2, 0.0), 0.9, 0.0, "compute", [80, 20, 0]),  # computation, synchronisation, waiting
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.94, 0.0, "communication", [60, 94]),  # synchronisation, links used
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.94, 9.0, "communication", [60, 94]),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.02, 0.0, "communication", [60, 2]),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), 0.02, 9.0, "compute", [60, 10, 30]),
        ((0.0, 0.1, 0.2, 0.1, 0.6, 0.0), None, None, "communication", [60]),
        ((0.0, 0.2, 0.2, 0.6, 0.0, 0.0), None, 0.0, "straggler", [60]),
        ((0.7, 0.1, 0.2, None, None, 0.0), None, 0.0, "data", [70]),
        ((0.02, 0.2, 0.18, 0.24, 0.36, 0.0), None, 0.0, "mixed", [38, 36, 24, 2]),
        ((0.0, 0.3, 0.2, 0.0, 0.5, 0.0), None, 0.0, "mixed", [50, 50]),
        (None, None, None, None, []),
    ],
)
def test_the_bound_and_the_numbers_of_the_first_sentence(
    shares: tuple[float | None, ...] | None,
    links_used: float | None,
    held_back: float | None,
    bound: str | None,
    percent: list[int],
) -> None:
    reached = verdict.reach(summary(shares, links_used, held_back), MANIFEST)
    assert reached.bound == bound
    assert percents(reached.sentences[0]) == percent


def percents(sentence: str) -> list[int]:
    return [int(each) for each in re.findall(r"(\d+) %", sentence)]


# Of a step of one second, by phase: ready to run while others had the cores, and while the quota had run out
Lost = tuple[dict[str, float], dict[str, float]]


def on_cpus(lost: Lost) -> dict[str, Any]:
    nothing = dict.fromkeys(("data", "forward", "backward", "optimiser", "wait", "sync"), 0.0)
    others, quota = ({**nothing, **each} for each in lost)
    return {
        "cpu_seconds": nothing,
        "no_core_seconds": others,
        "quota_seconds": quota,
        "no_core": sum(others.values()),
        "quota": sum(quota.values()),
    }


@pytest.mark.parametrize(
    ("lost", "bound", "percent"),
    [
        (({}, {}), "compute", [60, 40, 0]),
        (({"forward": 0.1, "backward": 0.2}, {}), "cpu", [60, 40, 30]),  # the last one is without a core
        # While it synchronises, too: the wire is not what the step waits for.
        (({"backward": 0.2, "sync": 0.2}, {}), "cpu", [60, 40, 40]),
        (({"backward": 0.1}, {"forward": 0.2, "backward": 0.1}), "compute", [60, 40, 0, 30, 10]),  # 30 of the quota
        (({"backward": 0.08}, {}), "compute", [60, 40, 0, 8]),
    ],
)
def test_time_without_a_core_is_a_part_of_the_step(lost: Lost, bound: str, percent: list[int]) -> None:
    figures = group((0.0, 0.3, 0.3, 0.0, 0.4, 0.0), processor=on_cpus(lost), seconds=runs.spread(1.0))
    reached = verdict.reach(runs.summary(figures, [rank(0), rank(1)]), MANIFEST)
    assert (reached.bound, percents(reached.sentences[0])) == (bound, percent), reached.sentences[0]
    parts = Parts.of(figures)
    assert parts is not None
    assert sum(astuple(parts)) == pytest.approx(1)


def test_a_core_that_is_missing_while_ranks_synchronise_is_not_taken_for_a_quota() -> None:
    """Computing alone is below half of the step, and nobody knows of a quota."""
    figures = group((0.0, 0.2, 0.25, 0.05, 0.5, 0.0), processor=on_cpus(({"sync": 0.15}, {})), seconds=runs.spread(1.0))
    without_usage = [rank(number, usage=None) for number in range(2)]
    reached = verdict.reach(runs.summary(figures, without_usage), MANIFEST)
    assert reached.bound == "compute"
    assert reached.sentences[0].startswith("Compute-bound: 45 % of the step is computation")
    assert "quota" not in reached.sentences[0]


def test_one_rank_that_is_held_back_is_a_straggler_and_not_everybodys_cpu() -> None:
    straggler = {
        "rank": 1,
        "work_ratio": 2.5,
        "work_ratio_low": 2.0,
        "work_ratio_high": 3.1,
        "last_in": 0.9,
        "wait_seconds": 0.01,
        "others_wait_seconds": 0.2,
    }
    ranks = [rank(0, 0.01), rank(1, 0.01, 8.0), rank(2, 0.01)]
    figures = runs.summary(group((0.0, 0.2, 0.2, 0.6, 0.0, 0.0), straggler=straggler), ranks)
    reached = verdict.reach(figures, MANIFEST)
    assert reached.bound == "straggler"
    assert "60 % of the step waiting for rank 1" in reached.sentences[0]
    (told,) = (sentence for sentence in reached.sentences if "Rank 1 is the straggler" in sentence)
    assert all(fact in told for fact in ("2.50 times", "2.00", "3.10", "90 %", "200 ms", "10.0 ms"))


def test_a_quota_is_a_warning_only_where_nobody_asked_for_it() -> None:
    held_back = summary((0.0, 0.5, 0.5, 0.0, 0.0, 0.0), None, 3.0)
    asked = runs.manifest(settings=MANIFEST.settings | {"rank_cpus": 0.5})
    assert any("RANK_CPUS did not set" in warning for warning in verdict.warnings(held_back, MANIFEST))
    assert not list(verdict.warnings(held_back, asked))
    assert any("RANK_CPUS=0.5" in sentence for sentence in verdict.reach(held_back, asked).sentences)
    never = summary((0.0, 0.5, 0.5, 0.0, 0.0, 0.0), None, 0.0)
    assert not list(verdict.warnings(never, MANIFEST))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"complete": False, "steps": 3, "steps_planned": 9}, "incomplete: all ranks recorded 3 of 9 steps"),
        ({"replicas_identical": False}, "different parameters"),
        ({"dataset": "shapes", "run": runs.group_figures(accuracy=0.5)}, "CIFAR-10"),
        ({"dataset": "digits", "run": runs.group_figures(accuracy=0.5)}, "MNIST"),
    ],
)
def test_what_readers_must_know_is_a_warning(change: dict[str, Any], told: str) -> None:
    (warning,) = verdict.warnings(replace(summary(None), **change), MANIFEST)
    assert told in warning


def test_where_nothing_was_tested_nothing_is_said_about_accuracy() -> None:
    assert not list(verdict.warnings(replace(summary(None), dataset="shapes"), MANIFEST))


def test_hidden_and_exposed_are_like_for_like() -> None:
    """The wait for other ranks' buckets is in both."""
    spreads = {"hidden_sync": 0.3, "exposed_sync": 0.1, "wait": 0.08, "sync": 0.02}
    times = {f"{name}_seconds": runs.spread(value) for name, value in spreads.items()}
    figures = runs.summary(group((0.0, 0.5, 0.4, 0.08, 0.02, 0.0), **times), [rank(0), rank(1)])
    (said,) = (each for each in verdict.reach(figures, MANIFEST).sentences if "is hidden" in each)
    assert said.startswith("75 % of the synchronisation")
    assert re.search(r" 300 ms per step\..* 100 ms .* exposed.* 80\.0 ms .*waiting", said)


@pytest.mark.parametrize(("undecided", "told"), [(True, "too few steps"), (False, "no rank is consistently slow")])
def test_waiting_without_a_straggler_has_its_reason(undecided: bool, told: str) -> None:
    figures = group((0.0, 0.4, 0.3, 0.3, 0.0, 0.0), straggler_undecided=undecided)
    assert told in " ".join(verdict.reach(runs.summary(figures, [rank(0), rank(1)]), MANIFEST).sentences)


def test_what_rounding_for_the_wire_costs_is_said_where_it_was_measured() -> None:
    rounded = runs.manifest(world_size=2, settings={"wire_precision": "bf16"})
    for error, told in ((None, []), (0.00166, ["0.166"])):
        figures = runs.summary(group((0.0, 0.5, 0.4, 0.0, 0.1, 0.0), wire_rounding_error=error), [rank(0), rank(1)])
        said = [each for each in verdict.reach(figures, rounded).sentences if "WIRE_PRECISION" in each]
        assert [*re.findall(r"(\S+) %", " ".join(said))] == told


def test_bytes_that_are_not_the_formulas_are_said() -> None:
    ranks = [rank(0), rank(1, bytes_sent_per_step=90.0)]
    wrong = runs.summary(group((0.0, 0.5, 0.5, 0.0, 0.0, 0.0)), ranks)
    assert any(
        re.search(r"differ from the formula on .* 1\.", each) for each in verdict.reach(wrong, MANIFEST).sentences
    )
