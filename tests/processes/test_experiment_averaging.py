"""What experiments say of exchanges, compressors and cadences: figures against the runs' files, sentences that hold."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.pages.chart import as_file
from tests.processes.experiments import carry_out, put_grid
from tests.processes.test_experiment_costs import Bench, close, content, mean_of, steps_of, table

EVERY, STEPS = 4, 10

# Named as the runs that a Bench copies.
GRID = f"""\
title = "Averaging"
question = "What costs what?"

[settings]
MODEL = "lenet5"
LINK_CHECK = "off"
EVALUATE = "never"
WARMUP_STEPS = 0
BATCH_SIZE_PER_RANK = 8
MAX_STEPS = {STEPS}
WORKERS = 1

[[grid]]
label = "all_reduce"
SYNC_MODE = "flat_all_reduce"

[[grid]]
label = "power_sgd"
COMPRESSION = "power_sgd"
COMPRESSION_RANK = 1

[[grid]]
label = "every {EVERY}"
SYNC_EVERY = {EVERY}

[[show]]
view = "exchanges"
title = "Exchanges"
where = {{ SYNC_MODE = "flat_all_reduce" }}

[[show]]
view = "exchanges"
title = "With a compressor"
where = {{ COMPRESSION = "power_sgd" }}

[[show]]
view = "savings"
title = "Savings"
baseline = "all_reduce"
published = {{ source = "a paper", values = {{ power_sgd = 243 }} }}

[[show]]
view = "periods"
title = "Periods"
baseline = "all_reduce"
"""


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
    sent = {cell: mean_of(steps_of(place, cell), "bytes_sent") or 0 for cell in ("all_reduce", "power_sgd")}
    found = table(place, "savings")
    assert found["power_sgd"]["times_fewer"] == close(sent["all_reduce"] / sent["power_sgd"])
    assert found["power_sgd"]["times_fewer"] > 10
    assert (found["all_reduce"]["times_fewer"], found["power_sgd"]["published_times_fewer"]) == (1, 243)


def test_a_step_in_the_long_run_has_its_share_of_an_averaging(place: Path) -> None:
    found = table(place, "periods")[f"every {EVERY}"]
    steps = steps_of(place, f"every {EVERY}")
    due = [step for step in steps if step["step"] in (3, 7, 9)]
    averaging = mean_of(due, "wait_seconds", "sync_seconds")
    whole, apart = mean_of(steps, "seconds"), mean_of(steps, "wait_seconds", "sync_seconds")
    assert averaging is not None
    assert whole is not None
    assert apart is not None
    assert found["sync_every"] == EVERY
    assert found["averaging_seconds"] == close(averaging)
    assert found["computing_seconds"] == close(whole - apart)
    assert found["seconds"] == close(whole - apart + averaging / EVERY)
    assert found["computing_share"] == close((whole - apart) / found["seconds"])


def test_exchanges_show_only_the_cells_that_they_are_about(place: Path) -> None:
    found = table(place, "exchanges")
    assert list(found) == ["all_reduce"]
    bandwidth = content(place, "all_reduce", "summary")["run"]["bandwidth"]
    assert found["all_reduce"]["sync_seconds"] == close(bandwidth["sync_seconds"])
    assert found["all_reduce"]["sync_seconds_at_least"] is None, "links were not measured"
    assert found["all_reduce"]["busiest_in_gradients"] == 1


def test_the_reading_says_which_of_two_parts_with_the_same_view_it_is_about(place: Path) -> None:
    """Their sentences may be the same, about different cells."""
    reading = json.loads((place / "results/experiments/costs/experiment.json").read_text())["reading"]
    assert [each.partition(".")[0] for each in reading[:2]] == ["Exchanges", "With a compressor"]
    assert not reading[2].startswith("Savings.")


RATES = ("25mbit", "100mbit", "1gbit")
COMPRESSED = """
[[grid]]
label = "plain, {LINK_RATE}"
WORKERS = 1
SYNC_MODE = "flat_all_reduce"
LINK_RATE = ["25mbit", "100mbit", "1gbit"]

[[grid]]
label = "{COMPRESSION}, {LINK_RATE}"
WORKERS = 1
COMPRESSION = ["random_k", "sign", "power_sgd"]
LINK_RATE = ["25mbit", "100mbit", "1gbit"]

[[show]]
view = "break_even"
title = "Break-even"
against = "plain"
"""


def at_rates(**seconds: Sequence[float | None]) -> dict[str, float | None]:
    return {f"{line}, {rate}": each for line, own in seconds.items() for rate, each in zip(RATES, own, strict=True)}


def test_a_break_even_is_told_with_its_interval_and_its_absence_in_words(bench: Bench) -> None:
    section = bench.section(
        COMPRESSED,
        at_rates(plain=(16.0, 4.0, 1.0), random_k=(2.0, 2.0, 2.0), sign=(20.0, 6.0, 3.0), power_sgd=(8.0, 2.0, 0.5)),
    )
    assert section.sentences[0].startswith("random_k is faster than plain below 3")
    assert section.sentences[1] == "sign is slower than plain at each of these rates, down to 25 Mbit/s."
    assert section.sentences[2] == "power_sgd is faster than plain at each of these rates, up to 1000 Mbit/s."
    names = [column.name for column in section.tables[0].columns]
    rows: dict[Any, dict[str, Any]] = {row[0]: dict(zip(names, row, strict=True)) for row in section.tables[0].rows}
    found = rows["random_k"]
    value, low, high = (found[f"break_even_bits_per_second{end}"] for end in ("", "_low", "_high"))
    assert value == pytest.approx(316e6, rel=0.05)
    assert low < value < high
    assert rows["sign"]["break_even_bits_per_second"] is rows["power_sgd"]["break_even_bits_per_second"] is None
    assert section.drawings[0].chart
    words = as_file(section.drawings[0].chart)
    assert all(f">{each}<" in words for each in (*RATES, "time per step, plain is 1", "plain", "random_k", "power_sgd"))


def test_rates_without_a_run_and_a_single_round_are_told(bench: Bench) -> None:
    seconds = at_rates(
        plain=(16.0, 4.0, None), random_k=(2.0, 2.0, 2.0), sign=(None, None, 1.0), power_sgd=(20.0, None, 1.0)
    )
    words = " ".join(bench.section(COMPRESSED, seconds).sentences)
    assert "random_k is faster than plain at each of these rates, up to 100 Mbit/s." in words
    assert "power_sgd is slower than plain at each of these rates, down to 25 Mbit/s." in words
    assert "sign is" not in words
    assert (
        "Not measured, because no run is finished: plain, 1gbit; sign, 25mbit; sign, 100mbit; power_sgd, 100m" in words
    )
    every = at_rates(**dict.fromkeys(("plain", "random_k", "sign", "power_sgd"), (1.0, 1.0, 1.0)))
    assert "in one round, which does not tell" in bench.section(COMPRESSED, every, rounds=1).sentences[0]


EXCHANGES = """
[[grid]]
label = "{SYNC_MODE} on {ranks}"
WORKERS = [1, 2, 3]
SYNC_MODE = ["halving_doubling", "ring_all_reduce"]

[[show]]
view = "exchanges"
title = "Exchanges"
pair = ["halving_doubling", "ring_all_reduce"]
"""


def test_two_exchanges_are_told_apart_on_each_number_of_ranks(bench: Bench) -> None:
    section = bench.section(
        EXCHANGES,
        {
            **{"halving_doubling on 2": 1.0, "halving_doubling on 3": 2.0, "halving_doubling on 4": 0.5},
            **{"ring_all_reduce on 2": 1.001, "ring_all_reduce on 3": 1.0, "ring_all_reduce on 4": 1.0},
        },
    )
    first = section.sentences[0]
    assert first.startswith("Time of synchronisation, halving_doubling against ring_all_reduce: no difference beyond")
    assert "; slower on 3 ranks (" in first
    assert "; faster on 4 ranks (" in first
    assert "3 ranks: halving_doubling > ring_all_reduce, 2 times (" in section.sentences[1]
    assert "4 ranks: ring_all_reduce > halving_doubling" in section.sentences[1]
    assert section.drawings[0].chart
    words = as_file(section.drawings[0].chart)
    assert all(f">{each}<" in words for each in ("2", "3", "4", "ranks", "halving_doubling", "ring_all_reduce"))


def test_nothing_finished_is_nothing_said(bench: Bench) -> None:
    periods = COMPRESSED.replace("break_even", "periods").replace('against = "plain"', "")
    savings = (
        COMPRESSED.replace("break_even", "savings")
        .replace("against", "baseline")
        .replace('e = "plain"', 'e = "plain, 1gbit"')
    )
    for text in (COMPRESSED, EXCHANGES, periods, savings):
        put_grid(Path(), "made", f'title = "Made"\nquestion = "?"\n{text}')
        section = bench.section(text, dict.fromkeys(names_of(text)), rounds=2)
        assert section.sentences
        assert all(drawing.chart is None for drawing in section.drawings)
        assert not section.tables[0].rows


def names_of(text: str) -> list[str]:
    lines = ("plain", "random_k", "sign", "power_sgd")
    if "COMPRESSION" in text:
        return [f"{line}, {rate}" for line in lines for rate in RATES]
    return [f"{mode} on {ranks}" for mode in ("halving_doubling", "ring_all_reduce") for ranks in (2, 3, 4)]
