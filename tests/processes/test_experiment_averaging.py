"""What experiments say of exchanges, compressors and cadences: figures against the runs' files, sentences that hold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.pages.chart import as_file
from app.pages.section import Section
from app.tools.experiment.plan import grid
from tests.processes.experiments import carry_out, put_grid
from tests.processes.test_experiment_costs import Bench, close, content, mean_of, steps_of, table

# Named as the runs that a Bench copies.
GRID = """\
title = "Averaging"
question = "What costs what?"
grid = [
    { label = "all_reduce", SYNC_MODE = "flat_all_reduce" },
    { label = "power_sgd", COMPRESSION = "power_sgd", COMPRESSION_RANK = 1 },
    { label = "every 4", SYNC_EVERY = 4 },
]
view = [
    { title = "Exchanges", kind = "line", by = "ranks", series = "mode", measure = [
        "bandwidth.sync_seconds", "busiest_in_gradients",
    ], bound = "bandwidth.sync_seconds_at_least", where = { SYNC_MODE = "flat_all_reduce" } },
    { title = "With a compressor", kind = "line", by = "ranks", measure = [
        "bandwidth.sync_seconds",
    ], where = { COMPRESSION = "power_sgd" } },
    { title = "Savings", kind = "bar", baseline = "all_reduce", times_less = true, measure = [
        "bytes_sent_in_all", "gradient_bytes",
    ], published = { source = "a paper", ratio = true, values = { power_sgd = 243 } } },
    { title = "Periods", kind = "line", by = "SYNC_EVERY", baseline = "all_reduce", measure = [
        "long_run_seconds", "averaging_seconds", "computing_share",
    ] },
    { title = "Parts", kind = "bar", stacked = true, measure = [
        "long_run_seconds", "computing_seconds", "averaging_share_seconds",
    ] },
]

[settings]
MODEL = "lenet5"
LINK_CHECK = "off"
EVALUATE = "never"
WARMUP_STEPS = 0
BATCH_SIZE_PER_RANK = 8
MAX_STEPS = 10
WORKERS = 1
"""
# By cell: how many steps share an averaging, and which steps but the first have one.
DUE = {"all_reduce": (1, range(1, 10)), "every 4": (4, (3, 7, 9))}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("averaging")
    carry_out(folder, "costs", GRID)
    return folder


@pytest.fixture
def bench(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    return Bench(tmp_path, place)


def test_savings_are_the_bytes_that_were_counted(place: Path) -> None:
    found = table(place, "bar-bytes_sent_in_all")
    sent = {cell: 2 * (mean_of(steps_of(place, cell, 0), "bytes_sent") or 0) for cell in found}
    for cell, row in found.items():
        assert row["bytes_sent_in_all"] == close(sent[cell])
        assert row["gradient_bytes"] == content(place, cell, "manifest")["gradient_bytes"]
        assert row["times_less"] == close(sent["all_reduce"] / sent[cell])
    assert found["power_sgd"]["times_less"] > 10
    assert [row["published_times_less"] for row in found.values()] == [None, 243, None]


def test_a_step_in_the_long_run_has_its_share_of_an_averaging(place: Path) -> None:
    lines, parts = table(place, "line-long_run_seconds"), table(place, "bar-long_run_seconds")
    for cell, (every, due) in DUE.items():
        steps = steps_of(place, cell)
        averaging = mean_of([step for step in steps if step["step"] in due], "wait_seconds", "sync_seconds") or 0
        computing = (mean_of(steps, "seconds") or 0) - (mean_of(steps, "wait_seconds", "sync_seconds") or 0)
        whole = computing + averaging / every
        expected = {
            **{"long_run_seconds": whole, "ratio": whole / parts["all_reduce"]["long_run_seconds"]},
            **{"computing_seconds": computing, "computing_share": computing / whole},
            **{"averaging_seconds": averaging, "averaging_share_seconds": averaging / every},
        }
        row = lines[cell] | parts[cell]
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-9), cell
    assert [lines[cell]["x"] for cell in DUE] == ["not set", 4]


def test_a_view_shows_only_the_cells_that_it_is_about(place: Path) -> None:
    found = table(place, "line-bandwidth_sync_seconds")
    assert list(found) == ["all_reduce"]
    other = table(place, "line-bandwidth_sync_seconds-2")
    assert {cell: row["ratio"] for cell, row in other.items()} == {"power_sgd": close(1)}, (
        "compared among its own cells"
    )
    bandwidth = content(place, "all_reduce", "summary")["run"]["bandwidth"]
    assert found["all_reduce"]["bandwidth_sync_seconds"] == close(bandwidth["sync_seconds"])
    assert found["all_reduce"]["bandwidth_sync_seconds_at_least"] is None, "links were not measured"
    assert found["all_reduce"]["busiest_in_gradients"] == 1


RATES = ("25mbit", "100mbit", "1gbit")
COMPRESSED = """
grid = [
    { label = "plain, {LINK_RATE}", SYNC_MODE = "flat_all_reduce", LINK_RATE = ["25mbit", "100mbit", "1gbit"] },
    { label = "{COMPRESSION}, {LINK_RATE}", COMPRESSION = ["random_k", "sign", "power_sgd"], LINK_RATE = [
        "25mbit", "100mbit", "1gbit",
    ] },
]
settings = { WORKERS = 1 }
"""
BREAK_EVEN = """
view = [{ title = "Pays", kind = "line", measure = "seconds", by = "rate", series = "label", against = "plain" }]
"""


def at_rates(**seconds: Sequence[float | None]) -> dict[str, float | None]:
    return {f"{line}, {rate}": each for line, own in seconds.items() for rate, each in zip(RATES, own, strict=True)}


def rows_of(section: Section, number: int = 0) -> dict[str, dict[str, Any]]:
    """Of one of its tables, by the first column."""
    names = [column.name for column in section.tables[number].columns]
    return {str(row[0]): dict(zip(names, row, strict=True)) for row in section.tables[number].rows}


def words_of(section: Section) -> set[str]:
    """What stands in its drawing."""
    chart = section.drawings[0].chart
    assert chart
    return {each.partition("<")[0] for each in as_file(chart).split(">")}


def test_a_break_even_is_told_with_its_interval_and_its_absence_in_words(bench: Bench) -> None:
    section = bench.section(
        COMPRESSED + BREAK_EVEN,
        at_rates(plain=(16.0, 4.0, 1.0), random_k=(2.0, 2.0, 2.0), sign=(20.0, 6.0, 3.0), power_sgd=(8.0, 2.0, 0.5)),
    )
    assert section.sentences[0].startswith("random_k is faster than plain below 3")
    assert section.sentences[1] == "sign is slower than plain at each of these rates, down to 25 Mbit/s."
    assert section.sentences[2] == "power_sgd is faster than plain at each of these rates, up to 1000 Mbit/s."
    rows, cells = rows_of(section), rows_of(section, 1)
    value, low, high = (rows["random_k"][f"break_even_bits_per_second{end}"] for end in ("", "_low", "_high"))
    assert value == pytest.approx(316e6, rel=0.05)
    assert low < value < high
    assert rows["sign"]["break_even_bits_per_second"] is rows["power_sgd"]["break_even_bits_per_second"] is None
    ratios = [cells[f"random_k, {rate}"]["ratio"] for rate in RATES]
    assert ratios == pytest.approx([2 / 16, 2 / 4, 2], rel=0.03)
    assert {*RATES, "time per step, plain is 1", "plain", "random_k", "power_sgd"} <= words_of(section)


def test_rates_without_a_run_and_a_single_round_are_told(bench: Bench) -> None:
    seconds = at_rates(
        plain=(16.0, 4.0, None), random_k=(2.0, 2.0, 2.0), sign=(None, None, 1.0), power_sgd=(20.0, None, 1.0)
    )
    words = " ".join(bench.section(COMPRESSED + BREAK_EVEN, seconds).sentences)
    assert "random_k is faster than plain at each of these rates, up to 100 Mbit/s." in words
    assert "power_sgd is slower than plain at each of these rates, down to 25 Mbit/s." in words
    assert "sign is" not in words
    assert "no run is finished: plain, 1gbit; sign, 25mbit; sign, 100mbit; power_sgd, 100mbit." in words
    section = bench.section(COMPRESSED + BREAK_EVEN, dict.fromkeys(seconds, 1.0), rounds=1)
    assert "the noise is unknown" in section.sentences[0]


EXCHANGES = """
grid = [{ label = "{SYNC_MODE} on {ranks}", WORKERS = [1, 2, 3], SYNC_MODE = ["halving_doubling", "ring_all_reduce"] }]
view = [{ title = "Exchanges", kind = "line", by = "ranks", series = "mode", against = "ring_all_reduce", measure = [
    "bandwidth.sync_seconds",
], bound = "forward_seconds" }]
"""


def test_two_exchanges_are_told_apart_on_each_number_of_ranks_beside_the_least_time(bench: Bench) -> None:
    def change(cell: str, record: dict[str, Any]) -> dict[str, Any]:
        by = {"ring_all_reduce on 2": 4, "ring_all_reduce on 4": 0.5}.get(cell, 1)
        return record | {"forward_seconds": by * record["forward_seconds"]} if record["kind"] == "step" else record

    one, other = "halving_doubling", "ring_all_reduce"
    seconds: dict[str, float | None] = {f"{one} on 2": 1.0, f"{one} on 3": 2.0, f"{one} on 4": 0.5}
    seconds |= {f"{other} on 2": 1.001, f"{other} on 3": 1.0, f"{other} on 4": 1.0}
    section = bench.section(EXCHANGES, seconds, change=change)
    assert section.sentences[0].startswith(f"{one} against {other}: no difference beyond the noise at 2 ranks (")
    words = " ".join(section.sentences)
    assert "; slower at 3 ranks (2 times (" in words
    assert "; faster at 4 ranks (" in words
    assert f"3 ranks: {one} > {other}, 2 times (" in words
    assert f"4 ranks: {other} > {one}" in words
    assert f"Closest to the minimum: {other} on 2, " in words
    assert f"farthest from it: {other} on 4, " in words
    for row in rows_of(section).values():
        assert row["times_the_least"] == close(row["bandwidth_sync_seconds"] / row["forward_seconds"])
    assert {*"234", "ranks", one, other, f"{one}, at least", f"{other}, at least"} <= words_of(section)


OTHERS = (
    'kind = "bar", measure = "bytes_sent_in_all", baseline = "plain, 1gbit", times_less = true',
    'kind = "bar", measure = ["long_run_seconds", "computing_seconds"], stacked = true',
    'kind = "line", measure = "long_run_seconds", by = "rate", baseline = "plain, 1gbit"',
)


def test_nothing_finished_is_nothing_said(bench: Bench) -> None:
    others = (f'{COMPRESSED}view = [{{ title = "Other", {each} }}]' for each in OTHERS)
    for text in (COMPRESSED + BREAK_EVEN, EXCHANGES, *others):
        put_grid(Path(), "made", f'title = "Made"\nquestion = "?"\n{text}')
        section = bench.section(text, dict.fromkeys(cell.name for cell in grid.read("made").cells), rounds=2)
        assert section.sentences
        assert all(drawing.chart is None for drawing in section.drawings)
        assert not any(each.rows for each in section.tables)
