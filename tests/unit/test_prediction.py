"""Predictions from a calibration whose costs are known: what follows from them, and what is said beside the figures."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import SettingError
from app.machine import folders
from app.settings import environment
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.cells import Cell
from app.tools.prediction import calibration, cells, limits, on_demand
from app.tools.prediction.calibration import Calibration, CpuLine
from app.tools.prediction.computing_costs import line_through, non_negative
from app.tools.prediction.drift import ANCHOR, reference
from app.tools.prediction.exchange import Passing
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.processor import Cpus
from app.tools.prediction.setup import setup_of, shapes_of
from app.tools.prediction.simulation import simulate
from app.tools.prediction.traffic import buckets, traffic
from app.tools.prediction.verification import (
    MOST_MEDIAN_ERROR,
    MOST_P90_ERROR,
    PREDICTIONS,
    Checked,
    folder_of,
    interleaved,
    score,
    seal,
)

ROOT = Path(__file__).parents[2]
CORES = 2


KNOWN = calibration.parse((ROOT / "tests/calibrations/known.json").read_bytes())


def forecast(model: Calibration = KNOWN, one_host: bool | None = False, /, **given: str) -> Forecast:
    batch = {} if "BATCH_SIZE_PER_RANK" in given else {"GLOBAL_BATCH_SIZE": "64"}
    settings = environment.of({"MODEL": "vgg11"} | batch | given)
    return Forecast(
        Cell("cell", given), setup_of(settings, settings.place.workers + 1, cores=CORES, one_host=one_host), model
    )


def test_without_costs_a_step_is_computation_and_the_least_time_of_its_messages() -> None:
    found = forecast(WORKERS="3", SYNC_MODE="ring_all_reduce", LINK_RATE="100mbit")
    assert found.mean("computing") == pytest.approx(16 * 0.003)
    assert found.mean("optimiser") == pytest.approx(0.003)
    assert found.mean("sync") == pytest.approx(found.least_sync, rel=0.01)
    assert found.seconds == pytest.approx(16 * 0.003 + 0.003 + found.mean("sync"))
    assert found.bound == "links"
    assert found.images_per_second == pytest.approx(64 / found.seconds)


@pytest.mark.parametrize(
    ("mode", "quota", "longer"),
    [
        ("ring_all_reduce", {"RANK_CPUS": "0.25"}, 25 / 15),
        ("flat_all_reduce", {"RANK_CPUS": "0.25"}, 25 / 15),
        ("gather_scatter", {"RANK_CPUS": "0.25"}, 1.0),
        ("ring_all_reduce", {}, 1.0),
    ],
)
def test_exchanges_of_all_ranks_at_once_do_not_get_all_of_a_quota(
    mode: str, quota: dict[str, str], longer: float
) -> None:
    """10 ms less of each 25 ms; where there is no quota, nothing is withheld."""
    busy = replace(KNOWN, passing=dict.fromkeys(KNOWN.passing, Passing(call=0.0, message=0.0, byte=2e-8, latency=0.0)))
    cell = {"SYNC_MODE": mode, "WORKERS": "1", "LINK_RATE": "10gbit", **quota}
    all_of_it, less = (forecast(replace(busy, lost=each), True, **cell).mean("sync") for each in (0.0, 0.01))
    assert less / all_of_it == pytest.approx(longer, rel=0.05)


def test_a_single_rank_passes_nothing_and_has_a_speedup_of_one() -> None:
    found = forecast(WORKERS="0", SYNC_MODE="ddp")
    assert found.seconds == pytest.approx(64 * 0.003 + 0.003)
    assert (found.speedup, found.efficiency, found.bound) == (1.0, 1.0, "computation")


def test_a_quarter_of_a_core_computes_four_times_as_long() -> None:
    whole, quarter = (forecast(WORKERS="0", RANK_CPUS=cpus, GLOBAL_BATCH_SIZE="256") for cpus in ("1", "0.25"))
    assert quarter.seconds == pytest.approx(4 * whole.seconds, rel=0.1)


def test_ranks_that_share_a_host_share_its_cores() -> None:
    apart, together = (forecast(KNOWN, each, WORKERS="7", SYNC_MODE="none") for each in (False, True))
    assert together.seconds == pytest.approx(apart.seconds * 8 / CORES, rel=0.01)


@pytest.mark.parametrize("cost", [{"call": 0.01}, {"message": 0.001}, {"latency": 0.001}])
def test_what_each_message_costs_is_paid_by_those_that_send_many(cost: dict[str, float]) -> None:
    """34 all-reduces of VGG-11's parameters, against one of all."""
    costs = replace(Passing(call=0.0, message=0.0, byte=0.0, latency=0.0), **cost)
    model = replace(KNOWN, passing=dict.fromkeys(KNOWN.passing, costs))
    cell = {"WORKERS": "3", "LINK_RATE": "1gbit"}
    many, one = (
        forecast(model, SYNC_MODE=mode, **cell).seconds - forecast(SYNC_MODE=mode, **cell).seconds
        for mode in ("all_reduce", "flat_all_reduce")
    )
    assert many > 3 * one > 0


def test_what_backward_hides_is_no_part_of_the_step() -> None:
    cell = {"WORKERS": "3", "LINK_RATE": "1gbit", "GLOBAL_BATCH_SIZE": "1024"}
    behind, after = (forecast(SYNC_MODE=mode, **cell) for mode in ("bucketed_all_reduce", "flat_all_reduce"))
    assert behind.seconds < after.seconds
    hidden = behind.mean("hidden_sync")
    assert after.seconds - behind.seconds == pytest.approx(hidden, rel=0.05)
    blocked = forecast(replace(KNOWN, hidden_byte=1.0), SYNC_MODE="bucketed_all_reduce", **cell)
    assert blocked.seconds == pytest.approx(after.seconds, rel=0.01)


def test_the_processors_time_for_what_backward_hides_makes_backward_longer() -> None:
    """By no more than it takes without anything to hide behind, and less is left to be exposed."""
    cell = {"WORKERS": "3", "LINK_RATE": "1gbit", "GLOBAL_BATCH_SIZE": "1024"}
    busy = replace(KNOWN, passing=dict.fromkeys(KNOWN.passing, Passing(call=0.0, message=0.0, byte=2e-9, latency=0.0)))
    behind, after = (forecast(busy, SYNC_MODE=mode, **cell) for mode in ("bucketed_all_reduce", "flat_all_reduce"))
    free = forecast(SYNC_MODE="bucketed_all_reduce", **cell)
    (part,) = traffic(after.setup.settings.averaging, after.setup.shapes, 4)
    most = part.cpu(busy.passing["all_reduce"], 4).max()
    longer = behind.mean("computing") - free.mean("computing")
    assert most / 2 < longer < 1.01 * most
    assert behind.mean("hidden_sync") < behind.mean("computing")
    assert behind.seconds < after.seconds


def test_time_between_exchanges_hides_nothing() -> None:
    """On fast links a bucket has passed long before the next one is there."""
    cell = {"WORKERS": "3", "LINK_RATE": "10gbit", "GLOBAL_BATCH_SIZE": "1024"}
    found = forecast(SYNC_MODE="bucketed_all_reduce", BUCKET_BYTES="4194304", **cell)
    assert 0 < found.mean("hidden_sync") < 1.05 * found.least_sync < found.mean("computing") / 4


def test_what_delays_each_byte_is_seen_on_fast_links_more_than_on_slow_ones() -> None:
    delayed = replace(KNOWN, hidden_byte=1e-8)
    for rate, least, most in (("100mbit", 0.0, 0.2), ("10gbit", 0.5, math.inf)):
        cell = {"SYNC_MODE": "bucketed_all_reduce", "WORKERS": "3", "LINK_RATE": rate, "GLOBAL_BATCH_SIZE": "1024"}
        found, free = (forecast(model, **cell).mean("sync") for model in (delayed, KNOWN))
        assert least <= found / free - 1 <= most, rate


def test_a_slow_rank_is_waited_for_by_all_others() -> None:
    usual = forecast(WORKERS="3", SYNC_MODE="ring_all_reduce", LINK_RATE="1gbit")
    slow = forecast(WORKERS="3", SYNC_MODE="ring_all_reduce", LINK_RATE="1gbit", SLOW_RANK="2", SLOW_FACTOR="3")
    assert slow.mean("wait") == pytest.approx(2 * (16 * 0.003 + 0.003) * 3 / 4)
    assert slow.seconds - usual.seconds == pytest.approx(2 * 16 * 0.003, rel=0.1)
    assert slow.speedup < usual.speedup, "against a rank at full speed"
    assert limits.ranks_at_half(slow).efficiency < limits.HALF


def test_a_slow_rank_pauses_also_for_what_its_quota_made_it_wait() -> None:
    """Half a core, slowed to half the speed: if its pauses were the quota's own, nobody would wait for it."""
    given = {"WORKERS": "1", "SYNC_MODE": "ring_all_reduce", "RANK_CPUS": "0.5", "GLOBAL_BATCH_SIZE": "256"}
    usual, slow = (forecast(**given, **more) for more in ({}, {"SLOW_RANK": "1", "SLOW_FACTOR": "2"}))
    most = usual.mean("computing")
    assert 0.2 * most < slow.seconds - usual.seconds < 1.05 * most


def test_ranks_that_vary_wait_for_the_slowest_and_more_ranks_wait_longer() -> None:
    spread = list(np.exp(np.random.default_rng(0).normal(0, 0.2, 400)))
    varying = replace(KNOWN.computing["vgg11"], own_spread=spread)
    model = replace(KNOWN, computing={"vgg11": varying})
    waits = [
        forecast(model, WORKERS=str(ranks - 1), SYNC_MODE="ring_all_reduce", BATCH_SIZE_PER_RANK="16")
        for ranks in (2, 8, 32)
    ]
    shares = [each.mean("wait") / each.mean("computing") for each in waits]
    assert shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"WORKERS": "15", "LINK_RATE": "1gbit", "RANK_CPUS": "0.5"}, "16 ranks: simulated, not verified beyond 8"),
        ({"WORKERS": "6", "LINK_RATE": "1gbit", "RANK_CPUS": "0.5"}, "7 ranks: calibrated with 2 to 6"),
        ({"WORKERS": "3", "LINK_RATE": "10gbit", "RANK_CPUS": "0.5"}, "links of 10 Gbit/s: calibrated with 100 Mbit/s"),
        ({"WORKERS": "3", "RANK_CPUS": "0.5"}, "links without a rate"),
        ({"WORKERS": "3", "LINK_RATE": "1gbit"}, "no RANK_CPUS: calibrated with 0.25 to 0.5"),
        ({"PRECISION": "bf16"}, "PRECISION=bf16: not modelled"),
        ({"WIRE_PRECISION": "fp16", "SYNC_MODE": "ring_all_reduce"}, "WIRE_PRECISION=fp16: not modelled"),
        ({"BATCH_NORM": "synchronised"}, "BATCH_NORM=synchronised: not modelled"),
        ({"BACKEND": "mpi"}, "BACKEND=mpi: not modelled"),
        ({"LINK_DELAY": "1ms"}, "LINK_DELAY=1ms: not modelled"),
        ({"LINK_LOSS": "1%"}, "LINK_LOSS=1%: not modelled"),
        ({"THREADS_PER_RANK": "2"}, "THREADS_PER_RANK=2: not modelled"),
        ({"WORKERS": "1", "LINK_RATE": "1gbit", "GLOBAL_BATCH_SIZE": "4096"}, "2048 images of a rank in a step"),
        ({"WORKERS": "3", "LINK_RATE": "1gbit", "SYNC_MODE": "tree"}, "SYNC_MODE=tree: costs of messages are those"),
    ],
)
def test_what_lies_outside_the_calibration_is_said(given: dict[str, str], word: str) -> None:
    assert any(each.startswith(word) for each in forecast(**given).outside()), given


def test_a_rank_with_a_slow_link_is_waited_for_by_all_others() -> None:
    for mode in ("ring_all_reduce", "halving_doubling"):
        one, all_slow = (
            forecast(WORKERS="3", SYNC_MODE=mode, **rates)
            for rates in ({"LINK_RATE": "1gbit", "LINK_RATE_BY_RANK": "2=100mbit"}, {"LINK_RATE": "100mbit"})
        )
        assert one.seconds == pytest.approx(all_slow.seconds, rel=0.05), mode
        assert one.least_sync == pytest.approx(all_slow.least_sync)
        assert "links that differ: calibrated with equal ones" in one.outside()


def test_rates_of_several_ranks_are_one_value() -> None:
    words = ["WORKERS=3", "SYNC_MODE=ring_all_reduce,ddp", "LINK_RATE=1gbit", "LINK_RATE_BY_RANK=1=200mbit,2=100mbit"]
    found = cells.forecasts(cells.asked(words)[1], KNOWN, one_host=None)
    assert len(found) == 2
    for each in found:
        first, slow, slower, last = each.setup.links.sends
        assert (first, slow, slower) == pytest.approx((last, last / 5, last / 10))
    with pytest.raises(SettingError, match=r"LINK_RATE_BY_RANK.*4"):
        cells.asked([*words, "LINK_RATE_BY_RANK=4=100mbit"])


def test_inside_it_nothing_is_said() -> None:
    assert not [*forecast(WORKERS="3", LINK_RATE="1gbit", RANK_CPUS="0.5", SYNC_MODE="ring_all_reduce").outside()]


def test_the_interval_is_as_wide_as_the_calibrations_own_errors() -> None:
    spread = math.sqrt((math.log(1.1) ** 2 + math.log(0.95) ** 2) / 2)
    cell = forecast(WORKERS="3", SYNC_MODE="tree", LINK_RATE="1gbit")
    low, high = cell.interval
    assert high / cell.seconds == pytest.approx(cell.seconds / low) == pytest.approx(math.exp(3.769 * spread), rel=0.01)
    many = replace(KNOWN, fits=KNOWN.fits * 100)
    assert many.margin(cell.setup.settings.training.model) == pytest.approx(math.exp(1.2816 * spread), rel=0.01)
    settings = KNOWN.fits[0].settings | {"MODEL": "lenet5"}
    far_off = [replace(KNOWN.fits[0], settings=settings, foreseen=foreseen) for foreseen in (0.5, 2.0, 0.6, 1.6)]
    few, enough = (replace(KNOWN, fits=[*KNOWN.fits * 10, *far_off[:count]]) for count in (3, 4))
    assert few.margin("lenet5") < 1.5 * few.margin("vgg11"), "too few of its own: as all are"
    assert enough.margin("lenet5") > 1.5 * enough.margin("vgg11"), "as its own"


def test_efficiency_falls_under_a_half_later_on_faster_links() -> None:
    cells = [
        forecast(WORKERS="3", SYNC_MODE="ring_all_reduce", LINK_RATE=rate, GLOBAL_BATCH_SIZE="1024")
        for rate in ("1gbit", "10gbit")
    ]
    slow, fast = (limits.ranks_at_half(each) for each in cells)
    assert slow.ranks < fast.ranks
    for cell, found in zip(cells, (slow, fast), strict=True):
        fewer = found.ranks - max(1, found.ranks // 8)
        sooner = {"WORKERS": str(fewer - 1), "SYNC_MODE": "ring_all_reduce", "GLOBAL_BATCH_SIZE": "1024"}
        rate = cell.setup.settings.links.link_rate or ""
        assert forecast(LINK_RATE=rate, **sooner).efficiency >= limits.HALF > found.efficiency


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])
def test_more_ranks_are_tried_only_while_their_simulation_does_not_take_minutes(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    cell = forecast(WORKERS="3", SYNC_MODE=mode)
    monkeypatch.setattr(limits, "MOST_WAVES", 2000)
    assert limits.ranks_at_half(cell).ranks > 4
    monkeypatch.setattr(limits, "MOST_WAVES", 20)
    found = limits.ranks_at_half(cell)
    assert found.ranks == 2
    assert found.efficiency == pytest.approx(1.0, abs=0.1)


def test_compression_is_faster_below_its_break_even_and_slower_above() -> None:
    given = {"WORKERS": "3", "COMPRESSION": "power_sgd", "COMPRESSION_RANK": "1"}
    found = limits.break_even(forecast(LINK_RATE="1gbit", **given))
    assert found is not None
    for factor, faster in ((0.5, True), (2.0, False)):
        rate = {"WORKERS": "3", "LINK_RATE": f"{factor * found / 1e6:.3f}mbit"}
        compressed, plain = forecast(**rate | given).seconds, forecast(SYNC_MODE="flat_all_reduce", **rate).seconds
        assert (compressed < plain) is faster


def test_a_calibration_that_was_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    with pytest.raises(SettingError, match=r"Run scripts/calibrate first"):
        calibration.read()
    folder = tmp_path / calibration.FOLDER / "known"
    folder.mkdir(parents=True)
    KNOWN.write(folder)
    assert calibration.read() == calibration.read("known") == KNOWN
    with pytest.raises(SettingError, match=r"'other'.*: known"):
        calibration.read("other")
    (folder / calibration.FILE).write_text("{}")
    with pytest.raises(SettingError, match=r"model\.json.* Run scripts/calibrate again"):
        calibration.read()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["WORKER=3"], r"WORKER\b.* WORKERS"),
        (["WORKERS=1,x"], "WORKERS.*x"),
        (["WORKERS=1024"], "WORKERS.*1024.* 0 to 1023"),
        (["one", "two"], "2 grids"),
        ([f"SEED={','.join(map(str, range(1001)))}"], "more than 1,000 combinations"),
        (["rings"], "'rings'"),
    ],
)
def test_what_cannot_be_predicted_is_refused(words: list[str], refusal: str) -> None:
    with pytest.raises(SettingError, match=refusal):
        cells.asked(words)


def test_models_that_have_to_be_measured_first_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    _, asked = cells.asked(["MODEL=vgg11,resnet18", "WORKERS=1,3"])
    on_demand.print_lacking(asked, KNOWN)
    assert capsys.readouterr().out == "known resnet18\n"

    alone = replace(KNOWN.computing["vgg11"], alone=True)
    added = replace(KNOWN, computing=KNOWN.computing | {"resnet18": alone})
    assert re.search(r"0\.003 CPU seconds .*0\.003 ", alone.in_words)
    several, one = (forecast(added, MODEL="resnet18", WORKERS=workers, LINK_RATE="1gbit") for workers in "30")
    assert any("measured on one rank" in each for each in several.outside())
    assert not any("measured on one rank" in each for each in one.outside())


def test_lists_are_every_combination_and_name_what_differs() -> None:
    found = cells.asked(["WORKERS=1,3", "SYNC_MODE=ddp,tree", "MODEL=vgg11"])[1]
    assert [each.name for each in found] == ["WORKERS=1, ddp", "WORKERS=1, tree", "WORKERS=3, ddp", "WORKERS=3, tree"]
    assert [each.setup.ranks for each in cells.forecasts(found, KNOWN, one_host=None)] == [2, 2, 4, 4]
    assert found[1].settings == {"WORKERS": "1", "SYNC_MODE": "tree", "MODEL": "vgg11"}


@pytest.mark.parametrize(
    ("given", "why"), [({"MODEL": "resnet18"}, "MODEL=resnet18"), ({"COMPRESSION": "sign"}, "sign")]
)
def test_what_was_not_calibrated_at_all_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        cells.forecasts(cells.asked([f"{name}={value}" for name, value in given.items()])[1], KNOWN, one_host=None)


@pytest.mark.parametrize(
    "mode", ["all_reduce", "tree", "gather_scatter", "parameter_server", "hierarchical", "send_recv"]
)
def test_what_is_simulated_are_the_bytes_of_the_formula(mode: str) -> None:
    settings = environment.of({"MODEL": "lenet5", "SYNC_MODE": mode})
    parts = traffic(settings.averaging, shapes_of("lenet5"), 4)
    sent = sum(float(wave.elements.sum()) * part.element_bytes for part in parts for wave in part.waves)
    found = forecast(MODEL="lenet5", SYNC_MODE=mode, WORKERS="3", LINK_RATE="100mbit")
    assert found.least_sync > 0
    whole = 4 * sum(shape.numel() for shape in shapes_of("lenet5"))
    assert sent == pytest.approx(6 * whole, rel=0.001)


def test_signs_are_bits_to_the_servers_and_back() -> None:
    """Each of 4 ranks serves a quarter."""
    settings = environment.of({"MODEL": "lenet5", "COMPRESSION": "sign"})
    elements = sum(shape.numel() for shape in shapes_of("lenet5"))
    (part,) = traffic(settings.averaging, shapes_of("lenet5"), 4)
    assert sum(float(wave.elements.sum()) for wave in part.waves) == 6 * elements
    assert part.element_bytes == 1 / 8


def test_buckets_are_those_that_pytorch_cuts() -> None:
    """The sizes that a run of VGG-11 has recorded."""
    settings = environment.of({"MODEL": "vgg11", "SYNC_MODE": "ddp"})
    found = buckets(settings.averaging, shapes_of("vgg11"), 2)
    sizes = [sum(float(wave.elements.sum()) for wave in part.waves) / 2 * 4 for _, part in found]
    assert sizes == pytest.approx([9461800, 27157504, 305152], rel=0.01), "but for a bias, which may come later"
    assert [number for number, _ in found][-1] == len(shapes_of("vgg11"))


@given(st.lists(st.floats(0, 100), min_size=3, max_size=3), st.data())
def test_costs_that_explain_the_totals_are_found(costs: list[float], data: st.DataObject) -> None:
    counts = st.lists(st.integers(1, 1000), min_size=3, max_size=3)
    rows = data.draw(st.lists(counts, min_size=4, max_size=8, unique_by=tuple))
    totals = [sum(cost * count for cost, count in zip(costs, row, strict=True)) for row in rows]
    found = non_negative(np.array(rows, dtype=float), totals)
    assert min(found) >= 0
    again = [sum(cost * count for cost, count in zip(found, row, strict=True)) for row in rows]
    assert again == pytest.approx(totals, rel=1e-4, abs=1e-9)


def test_a_line_has_no_part_below_zero() -> None:
    line = line_through([1, 2], [3.0, 5.0])
    assert [line.fixed, line.per_image] == pytest.approx([1.0, 2.0])
    assert line_through([1, 2], [1.0, 3.0]).fixed == 0.0
    assert vars(line_through([8], [4.0])) == {"fixed": 0.0, "per_image": pytest.approx(0.5)}


def test_the_same_seed_gives_the_same_prediction() -> None:
    setup = forecast(WORKERS="3", SYNC_MODE="ddp", LINK_RATE="1gbit", RANK_CPUS="0.5").setup
    assert simulate(setup, KNOWN).means == simulate(setup, KNOWN).means


# What a machine is like, for simulated "runs": predictions by a model of it are held against them.
SPREAD = list(np.exp(np.random.default_rng(0).normal(0, 0.5, 200)))
SHORT = CpuLine(0.0, 1e-5)
MACHINE: Calibration = replace(
    KNOWN,
    passing=dict.fromkeys(KNOWN.passing, Passing(call=0.0002, message=0.00005, byte=2e-10, latency=0.0001)),
    computing={
        "vgg11": replace(KNOWN.computing["vgg11"], own_spread=SPREAD),
        "lenet5": replace(KNOWN.computing["lenet5"], own_spread=SPREAD, before=SHORT, backward=SHORT, after=SHORT),
    },
)
FREE_OF_COSTS = replace(MACHINE, passing=KNOWN.passing, hidden_byte=0.0)
# With LeNet-5, most of the first message passes in the burst; with VGG-11, all wait long for the slowest rank.
CELLS = [
    {"SYNC_MODE": mode, "WORKERS": workers, "LINK_RATE": "1gbit", **work}
    for work in (
        {"MODEL": "vgg11", "GLOBAL_BATCH_SIZE": "256", "RANK_CPUS": "0.5"},
        {"MODEL": "lenet5", "GLOBAL_BATCH_SIZE": "5"},
    )
    for mode in ("ring_all_reduce", "all_reduce")
    for workers in ("1", "4")
]


@cache
def checked_on_the_machine() -> list[Checked]:
    """Forecasts by what the machine is, and its own seconds, with other seeds."""
    found = []
    for cell in CELLS:
        own = forecast(MACHINE, True, **cell)
        runs = [simulate(own.setup, MACHINE, steps=6, samples=12, seed=seed).means for seed in (7, 8)]
        found.append(Checked(own, runs, [1.0, 1.0]))
    return found


def test_a_right_model_is_verified() -> None:
    found = score(checked_on_the_machine())
    assert found.holds
    assert found.median_error < 0.03
    assert found.pairs >= 2
    assert found.order_right
    assert found.order_right >= 0.75, "two ranks take nearly the same in both modes"


LEFT_OUT: dict[str, Callable[[Forecast], float]] = {
    "costs of messages": lambda own: replace(own, calibration=FREE_OF_COSTS).seconds,
    "limit of processors": lambda own: replace(own, setup=replace(own.setup, cpus=Cpus())).seconds,
    "burst of links": lambda own: replace(
        own, setup=replace(own.setup, links=replace(own.setup.links, burst=0 * own.setup.links.burst))
    ).seconds,
    "wait for the slowest rank": lambda own: own.seconds - own.mean("wait"),
}


@pytest.mark.parametrize("part", LEFT_OUT)
def test_a_model_that_lacks_a_part_is_not(part: str) -> None:
    checked = checked_on_the_machine()
    errors = [abs(LEFT_OUT[part](each.forecast) / each.corrected - 1) for each in checked]
    assert np.median(errors) > MOST_MEDIAN_ERROR or np.percentile(errors, 90) > MOST_P90_ERROR
    assert json.loads(json.dumps(asdict(score(checked)))) == asdict(score(checked))


def test_drift_is_taken_out_of_what_processors_do_and_not_of_links() -> None:
    """A machine at half its speed: computation and the wait for it take twice as long, the links as long as before."""
    run = {"computing": 1.6, "wait": 0.4, "sync": 1.0, "optimiser": 0.2, "step": 3.2}
    for least_sync, corrected in ((1.0, 1.0 + 1.0 + 0.1), (0.0, 1.6)):
        asked: Any = SimpleNamespace(least_sync=least_sync)
        checked = Checked(asked, [run], [2.0])
        assert checked.corrected == pytest.approx(corrected)
        assert (checked.seconds(), checked.noise) == (3.2, None)


def test_each_cell_runs_between_two_anchors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts/experiments")
    read = grid.read("cells", quick=True)
    names = [cell.name for cell in interleaved(read).cells]
    assert names[0::2] == [f"anchor {number}" for number in range(len(read.cells) + 1)]
    assert names[1::2] == [cell.name for cell in read.cells]
    assert all(cell.settings == ANCHOR for cell in interleaved(read).cells[0::2])

    monkeypatch.setattr(folders, "RESULTS", tmp_path)
    first = seal("cells", {"cells": [1]})
    assert seal("cells", {"cells": [1]}) == first == sha256((folder_of("cells") / PREDICTIONS).read_bytes()).hexdigest()
    with pytest.raises(SettingError, match=r"predictions\.json.* --fresh"):
        seal("cells", {"cells": [2]})


def test_the_anchor_is_a_run_of_every_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts/calibration")
    same = [cell for cell in grid.read("runs").cells if cell.matches(ANCHOR)]
    assert len(same) == 1
    with pytest.raises(SettingError, match="Run scripts/calibrate again"):
        reference(KNOWN)
