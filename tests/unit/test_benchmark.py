"""What a benchmark makes of its samples: medians, intervals and ratios."""

from argparse import ArgumentTypeError
from itertools import product
from typing import Any

import pytest

from app.modes import MODES
from app.settings.settings import Settings
from app.tools.benchmark import setups, table
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


def measured(**factors: float) -> dict[str, Any]:
    """Configurations whose steps take these factors of a step of the course script's DDP."""
    return {
        name: {
            "seconds": [factor * (1 + number / 100) for number in range(8)],
            "exact": BenchmarkSetup(name).of_the_house and BenchmarkSetup(name).exact(Settings.of()),
        }
        for name, factor in factors.items()
    }


def test_setups_are_compared_with_their_counterparts() -> None:
    found = table.ratios(measured(course_ddp=1.0, ddp=0.9, none=0.8, ring_all_reduce=0.7))
    assert {pair: ratio.value for pair, ratio in found.items()} == {
        ("ddp", "course_ddp"): pytest.approx(0.9),
        ("ddp", "none"): pytest.approx(0.9 / 0.8),
        ("ring_all_reduce", "course_ddp"): pytest.approx(0.7),
        ("ring_all_reduce", "none"): pytest.approx(0.7 / 0.8),
    }


def test_the_fastest_setup_may_be_inexact_and_the_fastest_exact_one_not() -> None:
    found = measured(course_ddp=1.0, ddp=0.9, none=0.8) | measured(**{"ddp+PRECISION=bf16": 0.5})
    assert table.fastest_of(found, exact=False) == "ddp+PRECISION=bf16"
    assert table.fastest_of(found, exact=True) == "ddp"
    assert table.fastest_of({"none": found["none"]}, exact=True) is None


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
