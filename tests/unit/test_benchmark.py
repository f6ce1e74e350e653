"""What a benchmark says of its samples: medians, intervals, ratios, and which of them got worse."""

import json
from argparse import ArgumentTypeError
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from app.errors import SettingError
from app.modes import MODES
from app.settings.settings import Settings
from app.tools.benchmark import kept, setups, table
from app.tools.benchmark.ratios import CONFIDENCE, Middle, values_outside
from app.tools.benchmark.setups import BenchmarkSetup


@pytest.mark.parametrize(("rounds", "outside"), [(1, None), (4, None), (5, 0), (7, 0), (8, 1), (11, 2), (30, 10)])
def test_the_interval_of_a_median_leaves_out_as_many_values_as_tables_say(rounds: int, outside: int | None) -> None:
    assert values_outside(rounds) == outside


def test_the_interval_misses_the_median_in_at_most_one_case_of_ten() -> None:
    """Of all ways in which 8 values can fall above or below it, each as likely as the others."""
    missed = 0
    for above in product((-1, 1), repeat=8):
        middle = Middle.of([side * (1 + number / 10) for number, side in enumerate(above)])
        assert middle.low is not None
        assert middle.high is not None
        missed += not middle.low <= 0 <= middle.high
    assert missed / 2**8 <= 1 - CONFIDENCE


def test_ratios_are_paired_by_round() -> None:
    slow = [1.0, 10.0, 100.0, 1000.0, 10_000.0]  # a machine that slows down
    assert Middle.of_ratios([2 * value for value in slow], slow) == Middle(2.0, 2.0, 2.0, 5)
    assert Middle.of_ratios([1.0, 3.0], [1.0, 1.0]) == Middle(2.0, None, None, 2)


def outcome(
    ratio: float = 1.0, rounds: int = 8, cpu_model: str = "a CPU", more: dict[str, float] | None = None
) -> dict[str, Any]:
    """Of a benchmark in which our DDP takes this part of the course script's time."""
    factors = {"course_ddp": 1.0, "ddp": ratio, "none": 0.8} | (more or {})
    found = {
        name: {
            "seconds": [factor * (1 + number / 100) for number in range(rounds)],
            "exact": BenchmarkSetup(name).of_the_house and BenchmarkSetup(name).exact(Settings.of()),
        }
        for name, factor in factors.items()
    }
    return {
        "made_at": "2026-01-01T00:00:00Z",
        "model": "vgg11",
        "world_size": 4,
        "global_batch_size": 256,
        "options": {"rounds": rounds, "steps": 2},
        "environment": {"cpu_model": cpu_model, "cores": 2, "quota_cpus": 0.5, "torch": "2"},
        "setups": found,
        "ratios": table.ratios(found),
    }


def test_setups_are_compared_with_their_counterparts() -> None:
    found = {
        (each["of"], each["against"]): each["value"] for each in outcome(0.9, more={"ring_all_reduce": 0.7})["ratios"]
    }
    assert found == {
        ("ddp", "course_ddp"): pytest.approx(0.9),
        ("ddp", "none"): pytest.approx(0.9 / 0.8),
        ("ring_all_reduce", "course_ddp"): pytest.approx(0.7),
        ("ring_all_reduce", "none"): pytest.approx(0.7 / 0.8),
    }


def test_the_fastest_setup_may_be_inexact_and_the_fastest_exact_one_not() -> None:
    found = outcome(0.9, more={"ddp+PRECISION=bf16": 0.5})["setups"]
    assert table.fastest_of(found, exact=False) == "ddp+PRECISION=bf16"
    assert table.fastest_of({name: found[name] for name in ("ddp", "none", "ddp+PRECISION=bf16")}, exact=True) == "ddp"
    assert table.fastest_of({"none": found["none"]}, exact=True) is None


@pytest.mark.parametrize(
    ("before", "now", "worse"), [(1.0, 1.04, 0), (1.0, 1.06, 1), (1.06, 1.0, 0), (1.0, 1.3, 1), (1.0, 1.0, 0)]
)
def test_a_ratio_that_got_worse_by_more_than_five_percent_is_told(before: float, now: float, worse: int) -> None:
    assert len([*kept.regressions(outcome(before), outcome(now))]) == 2 * worse  # against the course's, and the floor


def test_a_ratio_whose_interval_reaches_the_kept_one_is_not_told() -> None:
    now = outcome(1.3)
    now["ratios"] = [each | {"low": 0.9} for each in now["ratios"]]
    assert [*kept.regressions(outcome(1.0), now)] == []


def test_ratios_of_another_cpu_or_of_other_work_come_with_a_warning() -> None:
    assert [*kept.differences(outcome(), outcome())] == []
    [warning] = kept.differences(outcome(), outcome(cpu_model="another CPU"))
    assert "another CPU" in warning
    [warning] = kept.differences(outcome(), outcome() | {"world_size": 8})
    assert "world_size" in warning
    [warning] = kept.differences(outcome(), outcome(rounds=3))
    assert "fewer than 5 rounds" in warning


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a result in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/benchmarks").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    put(tmp_path, "20260101-000000", outcome(1.0))
    return tmp_path


def put(place: Path, stamp: str, content: dict[str, Any]) -> None:
    (place / f"results/benchmarks/{stamp}-step.json").write_text(json.dumps(content))


def test_what_is_kept_is_what_later_results_are_compared_with(place: Path) -> None:
    said: list[str] = []
    with pytest.raises(SettingError, match="compare --keep"):
        kept.compare(None, False, said.append)
    assert kept.compare(None, True, said.append) == 0
    assert kept.compare(None, False, said.append) == 0
    put(place, "20260102-000000", outcome(1.2))
    assert kept.compare(None, False, said.append) == 1
    assert "ddp / course_ddp: 1.20 (1.20 to 1.20), kept 1.00: worse by 20%" in said
    assert kept.compare("20260101-000000-step.json", False, said.append) == 0
    with pytest.raises(SettingError, match=r"latest.*: 20260101-000000-step.json, 20260102"):
        kept.compare("latest", False, said.append)


def test_ratios_without_an_interval_are_not_kept(place: Path) -> None:
    put(place, "20260102-000000", outcome(rounds=3))
    with pytest.raises(SettingError, match="fewer than 5 rounds"):
        kept.compare(None, True, lambda _: None)


def test_the_newest_of_no_results_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="scripts/benchmark step"):
        kept.read(None)


def test_by_default_every_mode_takes_part_once() -> None:
    names = [setup.name for setup in setups.usual(bfloat16=False)]
    assert len(names) == len(set(names))
    assert {*MODES, *setups.COURSE, setups.TUNED, setups.ONE_NODE} <= {*names}
    assert all(setups.setup(name).name == name for name in names)
    assert len(setups.usual(bfloat16=True)) > len(names)


def test_a_setup_is_its_mode_with_its_settings() -> None:
    settings = setups.setup("ring_all_reduce+PRECISION=bf16").settings(Settings.of(seed=7, precision="fp64"))
    assert (settings.averaging.sync_mode, settings.training.precision, settings.averaging.seed) == (
        "ring_all_reduce",
        "bf16",
        7,
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dpp", "dpp.*: one_node, none"),
        ("course_ddp+PRECISION=bf16", "course_ddp.PRECISION=bf16"),
        ("ddp+PRECISION=bf61", "PRECISION 'bf61'"),
        ("ddp+PRECISION", "PRECISION.*NAME=value"),
        ("ddp+SPEED=9", "SPEED=9.*NAME=value"),
    ],
)
def test_a_wrong_setup_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ArgumentTypeError, match=reason):
        setups.setup(name)
