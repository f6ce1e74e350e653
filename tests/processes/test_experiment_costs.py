"""What experiments say of times and traffic: each figure against the runs' own files, each sentence where it holds."""

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pytest

from app.analysis import run_records
from app.analysis.run import Run, summarise
from app.errors import SettingError
from app.pages.chart import as_file
from app.tools.experiment import page
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.experiment.reading.results import Results
from app.tools.experiment.views import measures
from app.tools.experiment.views.view import Section
from tests.processes.experiments import carry_out, put_grid

BATCH, STEPS, BLOCK = 16, 30, 12
RANKS = {"one rank": 1, "all_reduce": 2, "ddp": 2}
PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")

GRID = f"""\
title = "Costs"
question = "What costs what?"

[settings]
MODEL = "lenet5"
LINK_CHECK = "off"
EVALUATE = "never"
WARMUP_STEPS = 0
BATCH_SIZE_PER_RANK = {BATCH}
MAX_STEPS = {STEPS}
USAGE_INTERVAL = 0.05

[[grid]]
label = "one rank"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
WORKERS = 1
SYNC_MODE = ["all_reduce", "ddp"]

[[show]]
view = "phases"
title = "Phases"
baseline = "one rank"
block = {BLOCK}
published = {{ source = "a report", values = {{ ddp = 3 }} }}

[[show]]
view = "lines"
title = "Lines"
x = "WORKERS"
series = "SYNC_MODE"
figure = "images_per_second"

[[show]]
view = "usage"
title = "Usage"
baseline = "all_reduce"
published_cpu_user = {{ source = "a report", values = {{ ddp = [50, 60] }} }}
published_network_mb = {{ source = "a report", values = {{ ddp = 70.5 }} }}
published_ratio = {{ source = "a report", values = {{ ddp = 1.25 }} }}

[[show]]
view = "scaling"
title = "Scaling"
kind = "weak"
published_seconds = {{ source = "a report", values = {{ "one rank" = 437, ddp = 228 }} }}

[[show]]
view = "epochs"
title = "Epochs"
published_speedup = {{ source = "a report", values = {{ ddp = 1.86 }} }}
published_bandwidth_mb = {{ source = "a report", values = {{ ddp = 14.61 }} }}
"""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("costs")
    carry_out(folder, "costs", GRID)
    return folder


def table(place: Path, name: str) -> dict[str, Json]:
    """A table's rows by cell, or by cell and the second column where cells have several."""
    with (place / "results/experiments/costs/tables" / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    number = {"usage": 2, "phases-blocks": 2}.get(name, 1)
    return {", ".join([*row.values()][:number]): {key: _number(value) for key, value in row.items()} for row in rows}


def _number(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text


def run_folder(place: Path, cell: str) -> Path:
    return place / "results/experiments/costs/full" / f"{cell.replace(' ', '_')}-1"


def records(place: Path, cell: str, kind: str) -> list[list[Json]]:
    """A run's records of a kind, by rank; steps as they are read, with waiting where all ranks together tell it."""
    kinds = {"step": "steps", "usage": "usage", "clock": "clocks"}
    ranks = run_records.read(run_folder(place, cell)).ranks
    return [[asdict(each) for each in getattr(rank, kinds[kind])] for rank in ranks]


def steps_of(place: Path, cell: str, first: int = 1, end: int | None = None) -> list[Json]:
    return [step for own in records(place, cell, "step") for step in own[first:end]]


def content(place: Path, cell: str, file: str) -> Json:
    found: Json = json.loads((run_folder(place, cell) / f"{file}.json").read_text())
    return found


def mean_of(steps: Sequence[Json], *fields: str) -> float | None:
    values = [sum(step[field] for field in fields) for step in steps if None not in [step[field] for field in fields]]
    return mean(values) if values else None


def close(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-9)


def test_phases_are_the_means_of_the_records_and_add_up(place: Path) -> None:
    found = table(place, "phases")
    one_forward = mean_of(steps_of(place, "one rank"), "forward_seconds")
    for cell, row in found.items():
        steps = steps_of(place, cell)
        for phase in (*PHASES, "hidden_sync"):
            assert row[f"{phase}_seconds"] == close(mean_of(steps, f"{phase}_seconds")), (cell, phase)
        assert row["mean_seconds"] == close(sum(row[f"{phase}_seconds"] or 0 for phase in PHASES))
        assert row["backward_share"] == close(row["backward_seconds"] / row["mean_seconds"])
        assert one_forward is not None
        assert row["forward_ratio"] == close(one_forward / row["forward_seconds"])
        assert row["rounds"] == 1
    assert found["one rank"]["wait_seconds"] is found["one rank"]["sync_seconds"] is None
    assert found["one rank"]["communication_share"] is None
    assert found["ddp"]["hidden_sync_seconds"] is not None
    assert [row["published_forward_ratio"] for row in found.values()] == [None, None, 3]


def test_blocks_of_steps_leave_out_the_very_first_and_end_with_what_is_left(place: Path) -> None:
    found = table(place, "phases-blocks")
    for cell in RANKS:
        assert [(row["first_step"], row["last_step"]) for key, row in found.items() if key.startswith(cell)] == [
            (2, 12),
            (13, 24),
            (25, 30),
        ]
        for first, end in ((1, 12), (12, 24), (24, 30)):
            row, steps = found[f"{cell}, {first + 1}"], steps_of(place, cell, first, end)
            for part in ("forward", "backward", "optimiser"):
                assert row[f"{part}_seconds"] == close(mean_of(steps, f"{part}_seconds"))
            assert row["communication_seconds"] == close(mean_of(steps, "wait_seconds", "sync_seconds"))


def test_usage_is_that_of_the_time_of_the_steps_without_the_first(place: Path) -> None:
    found = table(place, "usage")
    for cell, ranks in RANKS.items():
        by_rank = []
        for rank, (steps, samples) in enumerate(
            zip(records(place, cell, "step"), records(place, cell, "usage"), strict=True)
        ):
            weights = [
                sum(
                    max(
                        0.0,
                        min(sample["at_seconds"], step["at_seconds"] + step["seconds"])
                        - max(sample["at_seconds"] - sample["seconds"], step["at_seconds"]),
                    )
                    for step in steps[1:]
                )
                for sample in samples
            ]
            used = sum(w * s["cpu_user_percent"] for w, s in zip(weights, samples, strict=True)) / sum(weights)
            cpus = content(place, cell, "manifest")["ranks"][rank]["fair_share_cpus"]
            row = found[f"{cell}, rank {rank}"]
            assert row["cpu_user_percent"] == pytest.approx(used, rel=1e-6)
            assert row["node_user_percent"] == pytest.approx(used / cpus, rel=1e-6)
            by_rank.append(used)
        assert found[f"{cell}, all"]["cpu_user_percent"] == pytest.approx(sum(by_rank) / ranks, rel=1e-6)
    assert {row["sent_bytes_per_second"] for row in found.values()} == {None}, "these ranks share an interface"
    published = {name: row["published_user_percent"] for name, row in found.items() if row["published_user_percent"]}
    assert published == {"ddp, rank 0": 50, "ddp, rank 1": 60, "ddp, all": 55}
    assert found["ddp, all"]["published_sent_bytes_per_second"] == 70.5e6


def test_traffic_is_what_the_ranks_counted(place: Path) -> None:
    found = table(place, "usage-traffic")
    rates = {}
    for cell, ranks in RANKS.items():
        own = [steps[0]["bytes_sent"] for steps in records(place, cell, "step")]
        size = content(place, cell, "manifest")["gradient_bytes"]
        assert found[cell]["total_bytes"] == sum(own)
        assert found[cell]["total_in_gradients"] == close(sum(own) / size)
        assert found[cell]["busiest_bytes"] == max(own)
        rates[cell] = sum(own) / ranks / (mean_of(steps_of(place, cell), "seconds") or math.nan)
    assert found["one rank"]["total_bytes"] == 0
    assert found["one rank"]["bytes_per_second"] is found["one rank"]["busiest_rank"] is None
    assert found["ddp"]["bytes_per_second"] == close(rates["ddp"])
    assert found["ddp"]["rate_ratio"] == close(rates["ddp"] / rates["all_reduce"])
    assert (found["ddp"]["total_ratio"], found["ddp"]["published_rate_ratio"]) == (1, 1.25)


def wall_clock_seconds(place: Path, cell: str) -> float:
    """From the start of the second step to the end of the last one, over all ranks, by rank 0's clock."""
    starts, ends = [], []
    for own, compared in zip(records(place, cell, "step"), records(place, cell, "clock"), strict=True):
        at = [step["at_seconds"] for step in (own[1], own[-1])]
        moments, differences = ([each[name] for each in compared] for name in ("at_seconds", "ahead_seconds"))
        ahead = np.interp(at, moments, differences)
        starts.append(at[0] - ahead[0])
        ends.append(at[1] - ahead[1] + own[-1]["seconds"])
    return float(max(ends) - min(starts))


def test_scaling_and_epochs_follow_from_median_steps(place: Path) -> None:
    scaling, epochs = table(place, "scaling"), table(place, "epochs")
    speeds, seconds = {}, {}
    for cell, ranks in RANKS.items():
        samples = content(place, cell, "manifest")["settings"]["train_samples"]
        assert epochs[cell]["steps_per_epoch"] == math.ceil(samples / BATCH / ranks)
        seconds[cell] = median(step["seconds"] for step in steps_of(place, cell)) * epochs[cell]["steps_per_epoch"]
        speeds[cell] = BATCH * ranks * (STEPS - 1) / wall_clock_seconds(place, cell)
        assert scaling[cell]["images_per_second"] == close(speeds[cell])
        assert scaling[cell]["speedup"] == close(speeds[cell] / speeds["one rank"])
        assert scaling[cell]["efficiency"] == close(speeds[cell] / speeds["one rank"] / ranks)
        for row in (scaling[cell], epochs[cell]):
            assert row["epoch_seconds"] == close(seconds[cell])
        assert epochs[cell]["speedup"] == close(seconds["one rank"] / seconds[cell])
        steps = steps_of(place, cell)
        for part, fields in (
            ("compute", ("data_seconds", "forward_seconds", "backward_seconds", "optimiser_seconds")),
            ("communication", ("wait_seconds", "sync_seconds")),
            ("hidden", ("hidden_sync_seconds",)),
        ):
            per_step = mean_of(steps, *fields)
            expected = None if per_step is None else per_step * epochs[cell]["steps_per_epoch"]
            assert epochs[cell][f"{part}_seconds"] == close(expected), (cell, part)
        every = steps_of(place, cell, 0)
        assert epochs[cell]["training_accuracy"] == close(
            sum(step["correct"] for step in every) / sum(step["samples"] for step in every)
        )
    assert scaling["ddp"]["published_speedup"] == close(437 / 228)
    assert scaling["all_reduce"]["published_speedup"] is None
    assert epochs["ddp"]["published_speedup"] == 1.86


def test_bandwidth_is_the_rings_and_the_documents_formula_stands_beside_it(place: Path) -> None:
    found = table(place, "epochs-bandwidth")
    assert list(found) == ["all_reduce", "ddp"], "one rank synchronises nothing"
    size = content(place, "all_reduce", "manifest")["gradient_bytes"]
    slowest = [
        max(own[number]["sync_seconds"] for own in records(place, "all_reduce", "step")) for number in range(1, STEPS)
    ]
    row = found["all_reduce"]
    assert row["algorithm_bytes_per_second"] == close(size / median(slowest))
    assert row["bus_bytes_per_second"] == close(2 * (2 - 1) / 2 * size / median(slowest))
    assert row["document_bytes_per_second"] == close(2 * (2 - 1) * size / median(slowest))
    assert row["epoch_bytes_per_second"] == close(size / table(place, "epochs")["all_reduce"]["communication_seconds"])
    for name in ("link_bytes_per_second", "utilisation", "document_utilisation", "ring_seconds", "document_seconds"):
        assert row[name] is None, "links were not measured"
    assert found["ddp"]["published_bytes_per_second"] == 14.61e6


def test_lines_relate_each_cell_to_the_best_at_its_place(place: Path) -> None:
    found = table(place, "lines")
    speeds = {cell: content(place, cell, "summary")["run"]["images_per_second"] for cell in RANKS}
    best = max(speeds["all_reduce"], speeds["ddp"])
    for cell, row in found.items():
        assert row["images_per_second"] == close(speeds[cell])
        assert row["ratio"] == close(1.0 if cell == "one rank" else speeds[cell] / best)
        assert row["x"] == RANKS[cell] - 1


def test_one_round_tells_no_difference_and_no_figure_is_missing(place: Path) -> None:
    folder = place / "results/experiments/costs"
    reading = json.loads((folder / "experiment.json").read_text())["reading"]
    assert len(reading) == 5
    report = (folder / "report.html").read_text()
    assert "no difference is called one" in report
    assert {path.stem for path in (folder / "figures").glob("*.svg")} == {
        *("phases", "phases-blocks", "lines", "usage-cpu", "scaling", "epochs", "epochs-speedup")
    }, "usage-network is missing, because these ranks share an interface"


def test_the_page_leaves_out_what_the_documents_say_nothing_of_and_the_file_does_not(place: Path) -> None:
    report = (place / "results/experiments/costs/report.html").read_text()
    assert 'data-name="published_speedup"' in report
    assert 'data-name="published_epoch_seconds"' in report
    scaling = re.search(r'<table data-table="scaling".*?</table>', report, re.DOTALL)
    assert scaling
    assert 'data-name="published_epoch_seconds"' in scaling[0]
    assert 'data-name="published_bytes_per_second"' not in scaling[0]
    assert {row["published_bytes_per_second"] for row in table(place, "scaling").values()} == {None}


# Constructed cases: copies of those runs, with other times


SHIFT = (1.0, 1.3, 0.9)  # what a machine does to whole rounds
NOISE = 0.01  # of single runs; over three rounds it leaves every cell where it is


def scaled(given: Any, by: float) -> Any:
    """Everything that is a time."""
    if isinstance(given, list):
        return [scaled(each, by) for each in given]
    if isinstance(given, dict):
        return {
            name: value * by if name.endswith("seconds") and isinstance(value, float) else scaled(value, by)
            for name, value in given.items()
        }
    return given


def copy(source: Path, target: Path, by: float, change: Callable[[Json], Json]) -> None:
    """A finished run with times that are `by` times as long."""
    target.mkdir(parents=True)
    (target / "manifest.json").write_text((source / "manifest.json").read_text())
    for path in source.glob("rank-*.jsonl"):
        lines = [change(scaled(json.loads(line), by)) for line in path.read_text().splitlines()]
        (target / path.name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    summarise(run_records.read(target)).write(target)


def step_seconds(run: Path) -> float:
    """Of a step of a finished run, the median."""
    found = measures.step_seconds(Run(run))
    assert found
    return found


class Bench:
    """Experiments whose runs are copies of a real one."""

    def __init__(self, place: Path, sources: Path) -> None:
        self._place, self._sources = place, sources

    def section(
        self,
        grid_text: str,
        seconds: Mapping[str, float | None],
        rounds: int = 3,
        change: Callable[[str, Json], Json] = lambda cell, record: record,
    ) -> Section:
        """What its first view makes of cells whose steps take so many seconds in the median; None: no run."""
        put_grid(self._place, "made", f'title = "Made"\nquestion = "?"\nrepeats = {rounds}\n{grid_text}')
        read = grid.read("made")
        plan = ExperimentPlan.make(read, lambda trial: 1.0, fresh=True)
        plan.write(fresh=True)
        for trial in plan.trials:
            asked = seconds[trial.cell]
            if asked is not None:
                cell = next(cell for cell in read.cells if cell.name == trial.cell)
                noise = 1 + NOISE * ((read.cells.index(cell) + trial.round) % 3 - 1)
                source = run_folder(self._sources, "one rank" if cell.world_size == 1 else "all_reduce")
                copy(
                    source,
                    plan.folder / trial.name,
                    asked / step_seconds(source) * SHIFT[trial.round - 1] * noise,
                    lambda record, cell=trial.cell: change(cell, record),  # type: ignore[misc]
                )
        return page.views_of(read)[0].section(Results(read, ExperimentPlan.read("made", quick=False)), "made")


@pytest.fixture
def bench(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    return Bench(tmp_path, place)


RATES = """
[[grid]]
label = "{SYNC_MODE}, unshaped"
WORKERS = 1
SYNC_MODE = ["gather_scatter", "all_reduce", "ddp"]

[[grid]]
label = "{SYNC_MODE}, {LINK_RATE}"
WORKERS = 1
SYNC_MODE = ["gather_scatter", "all_reduce", "ddp"]
LINK_RATE = ["1gbit", "100mbit"]
may_fail = "of reasons"

[[show]]
view = "lines"
title = "Rates"
x = "LINK_RATE"
series = "SYNC_MODE"
watch = "gather_scatter"
"""


def test_an_order_is_told_as_far_as_it_is_beyond_the_noise(bench: Bench) -> None:
    section = bench.section(
        RATES,
        {
            **{"gather_scatter, 100mbit": 9.0, "all_reduce, 100mbit": 4.0, "ddp, 100mbit": 3.0},
            **{"gather_scatter, 1gbit": 2.0, "all_reduce, 1gbit": 1.0, "ddp, 1gbit": 1.001},
            **{"gather_scatter, unshaped": 1.001, "all_reduce, unshaped": 1.0, "ddp, unshaped": 2.0},
        },
    )
    words = " ".join(section.sentences)
    slowest = r"Slowest first: 100mbit: gather_scatter > all_reduce > ddp, 3 times \(.*\); 1gbit: gather"
    assert re.match(slowest, section.sentences[0])
    assert "1gbit: gather_scatter > ddp = all_reduce" in words or "1gbit: gather_scatter > all_reduce = ddp" in words
    assert "unshaped: ddp > " in words
    assert "Between 100mbit and unshaped the order changes: all_reduce is slower than ddp before, and faster" in words
    assert "Between 1gbit and unshaped the order changes: gather_scatter is slower than ddp before, and faster" in words
    assert (
        "gather_scatter is slower than every other, beyond the noise, at 100mbit, 1gbit, but not at unshaped." in words
    )
    assert [row[1] for row in section.tables[0].rows] == ["100mbit"] * 3 + ["1gbit"] * 3 + ["unshaped"] * 3


def test_an_order_that_stays_and_cells_that_failed(bench: Bench) -> None:
    section = bench.section(
        RATES,
        {
            **{"gather_scatter, 100mbit": None, "all_reduce, 100mbit": None, "ddp, 100mbit": None},
            **{"gather_scatter, 1gbit": 3.0, "all_reduce, 1gbit": 2.0, "ddp, 1gbit": 1.0},
            **{"gather_scatter, unshaped": 2.0, "all_reduce, unshaped": 1.5, "ddp, unshaped": None},
        },
    )
    words = " ".join(section.sentences)
    assert "The order changes nowhere beyond the noise" in words
    assert "gather_scatter is slower than every other at each of these points" in words
    assert "(they may fail: of reasons): gather_scatter, 100mbit; all_reduce, 100mbit; ddp, 100mbit." in words
    assert "Not measured, because no run is finished: ddp, unshaped." in words
    (drawing,) = section.drawings
    assert drawing.chart
    words = as_file(drawing.chart)
    assert all(f">{each}<" in words for each in ("LINK_RATE", "1gbit", "unshaped", "all_reduce", "time per step, s"))
    assert re.search(r"all_reduce, 1gbit: [\d.]+ s \([\d.]+ s to [\d.]+ s\)", words)


def test_one_round_gives_no_order(bench: Bench) -> None:
    cells = [f"{mode}, {rate}" for mode in ("gather_scatter", "all_reduce", "ddp") for rate in ("unshaped", "1gbit")]
    every = dict.fromkeys([*cells, *(f"{cell.split(',')[0]}, 100mbit" for cell in cells)], 1.0)
    section = bench.section(RATES, every, rounds=1)
    assert section.sentences[0].count("?") == 6
    assert "One round does not tell an order" in " ".join(section.sentences)


THREADS = """
[[grid]]
label = "threads {THREADS_PER_RANK}"
WORKERS = 0
SYNC_MODE = "none"
THREADS_PER_RANK = [1, 2, 3, 10]

[[show]]
view = "lines"
title = "Threads"
x = "THREADS_PER_RANK"
"""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((2.0, 1.0, 1.0, 1.1), "THREADS_PER_RANK helps up to 2, which is 2"),
        ((1.0, 1.0, 1.0, 1.5), "More than THREADS_PER_RANK 1 does not help"),
        ((4.0, 3.0, 2.0, 1.0), "THREADS_PER_RANK 10, the largest that was measured, is faster than any other: "),
        ((2.0, None, None, None), "Not more than one value of THREADS_PER_RANK was measured."),
        ((None, None, None, None), "Not more than one value of THREADS_PER_RANK was measured."),
    ],
)
def test_more_of_a_setting_helps_up_to_where_nothing_is_faster(
    bench: Bench, seconds: Sequence[float | None], said: str
) -> None:
    cells = [f"threads {number}" for number in (1, 2, 3, 10)]
    section = bench.section(THREADS, dict(zip(cells, seconds, strict=True)))
    assert section.sentences[0].startswith(said)
    assert [row[1] for row in section.tables[0].rows] == [
        number for number, each in zip(("1", "2", "3", "10"), seconds, strict=True) if each
    ]


STRONG = """
[[grid]]
label = "one"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
label = "{SYNC_MODE} on {ranks}"
WORKERS = [1, 2, 3]
SYNC_MODE = ["all_reduce", "ddp"]

[[show]]
view = "scaling"
title = "Strong"
kind = "strong"
published_seconds = { source = "a report", values = { one = 437, "ddp on 4" = 153 } }
"""


def test_speedup_is_told_with_its_interval_and_where_it_ends(bench: Bench) -> None:
    times = {"all_reduce on 2": 0.5, "all_reduce on 3": 0.5, "all_reduce on 4": 1.0}
    times |= {"ddp on 2": 0.5, "ddp on 3": 0.3, "ddp on 4": 0.25}
    base = bench.section(STRONG, {"one": 1.0, **times})
    words = " ".join(base.sentences)
    columns = {column.name: number for number, column in enumerate(base.tables[0].columns)}
    rows = {str(row[0]): row for row in base.tables[0].rows}

    def value(cell: str, column: str) -> Any:
        return rows[cell][columns[column]]

    assert value("one", "speedup") == pytest.approx(1)
    four = value("ddp on 4", "speedup")
    assert value("ddp on 2", "speedup") == pytest.approx(2, rel=3 * NOISE)
    assert four == pytest.approx(4, rel=3 * NOISE)
    assert value("ddp on 4", "speedup_low") < four < value("ddp on 4", "speedup_high")
    assert value("ddp on 4", "efficiency") == pytest.approx(four / 4)
    assert value("ddp on 4", "published_speedup") == pytest.approx(437 / 153)
    assert base.sentences[0].startswith("Speedup (a step of the same global batch, one rank is 1) on the most ranks: a")
    assert "With all_reduce, more ranks bring nothing beyond the noise from 2 to 3 (" in words
    assert "With all_reduce, more ranks are slower" in words
    assert "from 3 to 4 (0.5" in words or "from 3 to 4 (0.49" in words
    assert "from 1 to 2" not in words


ANY_FIGURE = """
[[grid]]
WORKERS = 1
SYNC_MODE = ["all_reduce", "ddp"]

[[show]]
view = "lines"
title = "Any figure"
x = "SYNC_MODE"
figure = "%s"
"""


@pytest.mark.parametrize("figure", ["bytes_sent_per_step", "shares.sync", "sync_seconds.p95", "bandwidth.utilisation"])
def test_lines_show_any_figure_of_a_summary(bench: Bench, figure: str, tmp_path: Path) -> None:
    section = bench.section(ANY_FIGURE % figure, {"all_reduce": 1.0, "ddp": 2.0})
    (table,) = section.tables
    names = [column.name for column in table.columns]
    assert "ratio" not in names, "a difference of such figures has no direction"
    for row in table.rows:
        cell = dict(zip(names, row, strict=True))
        summaries = [json.loads(path.read_text())["run"] for path in tmp_path.rglob(f"{cell['cell']}-*/summary.json")]
        values = [reduce(lambda tree, name: tree and tree[name], figure.split("."), each) for each in summaries]
        assert len(values) == 3
        known = None not in values
        assert cell[figure.replace(".", "_")] == (pytest.approx(median(values)) if known else None)


def test_time_to_a_loss_ends_with_the_first_ten_steps_that_reach_it(bench: Bench, tmp_path: Path) -> None:
    grid_text = ANY_FIGURE % "seconds_to_loss"
    section = bench.section(f"{grid_text}loss = 1000\n", {"all_reduce": 1.0, "ddp": 2.0})
    names = [column.name for column in section.tables[0].columns]
    for row in section.tables[0].rows:
        cell = dict(zip(names, row, strict=True))
        found = []
        for folder in tmp_path.rglob(f"{cell['cell']}-[123]"):
            paired = run_records.together([rank.steps for rank in run_records.read(folder).ranks])
            ranks = run_records.read(folder).ranks
            began = min(rank.on_common_clock(rank.steps[0].at_seconds) for rank in ranks)
            ends = [rank.on_common_clock(rank.steps[9].at_seconds) + rank.steps[9].seconds for rank in ranks]
            found.append(max(ends) - began)
            assert len(paired) == STEPS
        assert cell["seconds_to_loss"] == pytest.approx(median(found))
    section = bench.section(f"{grid_text}loss = 1e-9\n", {"all_reduce": 1.0, "ddp": 2.0})
    assert section.drawings[0].chart is None
    assert section.sentences[0].endswith("all_reduce has it in 0 of 3 runs and is left out.")


def test_a_cell_that_reaches_a_loss_in_some_rounds_only_is_left_out(bench: Bench) -> None:
    """A median over the lucky rounds would make it look fast."""
    ended: list[str] = []

    def unlucky(cell: str, record: Json) -> Json:
        if cell == "ddp" and record["kind"] == "finished":
            ended.append(cell)
        lucky = cell != "ddp" or len(ended) < RANKS["ddp"]  # in its first round
        return record | {"loss": 5.0 if lucky else 50.0} if record["kind"] == "step" else record

    section = bench.section(
        f"{ANY_FIGURE % 'seconds_to_loss'}loss = 10\n", {"all_reduce": 1.0, "ddp": 2.0}, change=unlucky
    )
    names = [column.name for column in section.tables[0].columns]
    shown = {row[0]: dict(zip(names, row, strict=True))["seconds_to_loss"] for row in section.tables[0].rows}
    assert any("ddp has it in 1 of 3 runs" in sentence for sentence in section.sentences)
    assert shown["ddp"] is None
    assert shown["all_reduce"] is not None


@pytest.mark.parametrize(
    "figure",
    [
        "sync_second",
        "straggler.rank_",
        "seconds_to_loss",
        'shares.sync"\nloss = 1 # "',
        'seconds_to_loss"\nloss = 0 # "',
        'seconds"\nseries = "SYNC_MODE" # "',
        'seconds"\nseries = "SYNC_MOD" # "',
    ],
)
def test_a_figure_that_there_is_not_is_refused(bench: Bench, figure: str) -> None:
    with pytest.raises(SettingError) as caught:
        bench.section(ANY_FIGURE % figure, {"all_reduce": 1.0, "ddp": 2.0})
    assert caught.value.exit_code == 2
    assert caught.value.name in ("invalid-grid", "unknown-name")


THREE_DIMENSIONS = """
[[grid]]
label = "{SYNC_MODE}, {LINK_RATE}, {ranks} ranks"
WORKERS = [1, 3]
SYNC_MODE = ["gather_scatter", "ring_all_reduce"]
LINK_RATE = ["200mbit", "20mbit"]

[[show]]
view = "%s"
title = "Three dimensions"
"""


@pytest.mark.parametrize("view", ['scaling"\nkind = "strong', "exchanges"])
def test_no_line_and_no_sentence_mixes_two_rates(bench: Bench, view: str) -> None:
    """On both rates, four ranks are twice as fast as two. Only four at 20 Mbit/s against two at 200 would be slower."""
    seconds = {
        f"{mode}, {rate}, {ranks} ranks": own * by / ranks
        for mode, own in (("gather_scatter", 2.0), ("ring_all_reduce", 1.0))
        for rate, by in (("200mbit", 1.0), ("20mbit", 10.0))
        for ranks in (2, 4)
    }
    section = bench.section(THREE_DIMENSIONS % view, dict(seconds))
    assert "more ranks are slower" not in " ".join(section.sentences)
    if view == "exchanges":
        return
    for mode in ("gather_scatter", "ring_all_reduce"):
        for rate in ("200mbit", "20mbit"):
            assert f"With {mode}, {rate}, each larger number of ranks brings more" in " ".join(section.sentences)


def test_without_one_rank_there_is_no_speedup(bench: Bench) -> None:
    cells = [f"{mode} on {ranks}" for mode in ("all_reduce", "ddp") for ranks in (2, 3, 4)]
    section = bench.section(STRONG, {"one": None, **dict.fromkeys(cells, 1.0)})
    assert section.sentences[0] == "No speedup can be told: one rank alone was not measured."
    assert section.drawings[0].chart is None
    table = section.tables[0]
    speedup = [column.name for column in table.columns].index("speedup")
    assert all(row[speedup] is None for row in table.rows)


MODES = """
[[grid]]
WORKERS = 1
SYNC_MODE = ["gather_scatter", "all_reduce"]

[[show]]
view = "usage"
title = "Usage"
baseline = "all_reduce"
"""


def star(cell: str, record: Json) -> Json:
    """Let rank 0 of gather and scatter send all that both ranks send."""
    if cell == "gather_scatter" and record["kind"] == "step":
        return record | {"bytes_sent": 2 * record["bytes_sent"] if record["rank"] == 0 else 0}
    return record


def test_as_many_bytes_are_called_so_and_the_busiest_rank_is_named(bench: Bench) -> None:
    section = bench.section(MODES, {"gather_scatter": 2.0, "all_reduce": 1.0}, change=star)
    assert section.sentences[0].startswith("Over all ranks together gather_scatter, all_reduce send the same: 2 S = ")
    assert section.sentences[1] == "The busiest rank sends: gather_scatter 2 S (rank 0), all_reduce 1 S (all alike)."
    assert "against those of all_reduce: gather_scatter 0.5" in section.sentences[2] or (
        "against those of all_reduce: gather_scatter 0.49" in section.sentences[2]
    )


def test_other_amounts_are_called_other_amounts(bench: Bench) -> None:
    def less(cell: str, record: Json) -> Json:
        return (
            record | {"bytes_sent": record["bytes_sent"] // 2}
            if "bytes_sent" in record and cell != "all_reduce"
            else record
        )

    section = bench.section(MODES, {"gather_scatter": 1.0, "all_reduce": 1.0}, change=less)
    assert section.sentences[0].startswith("Over all ranks together a step sends: gather_scatter 1 S, all_reduce 2 S")
    assert "gather_scatter, no difference beyond the noise" not in section.sentences[2]


PHASE_GRID = """
[[grid]]
label = "one node"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
WORKERS = 1
SYNC_MODE = ["gather_scatter", "all_reduce"]

[[show]]
view = "phases"
title = "Phases"
baseline = "one node"
"""


def test_backward_is_called_the_longest_only_where_it_is_in_every_round(bench: Bench) -> None:
    def change(cell: str, record: Json) -> Json:
        if record["kind"] != "step":
            return record
        longest = "backward_seconds" if cell == "one node" else "sync_seconds"
        return record | {longest: record["seconds"] * 10, "seconds": record["seconds"] * 11}

    section = bench.section(PHASE_GRID, {"one node": 1.0, "gather_scatter": 1.0, "all_reduce": None}, change=change)
    assert section.sentences[0].startswith(
        "Backward is the longest phase in every round of one node, but not of the others: "
    )
    words = " ".join(section.sentences)
    assert "The forward pass of one node takes " in words
    assert "Communication that delays a step costs: gather_scatter " in words
    assert "Not measured, because no run is finished: all_reduce." in words


def test_nothing_finished_is_nothing_said(bench: Bench) -> None:
    for text in (PHASE_GRID, MODES, STRONG, RATES):
        put_grid(Path(), "made", f'title = "Made"\nquestion = "?"\n{text}')
        cells = [cell.name for cell in grid.read("made").cells]
        section = bench.section(text, dict.fromkeys(cells), rounds=2)
        assert section.sentences
        assert all(drawing.chart is None for drawing in section.drawings)
        assert not section.tables[0].rows
