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
from app.analysis.measures import STEP
from app.analysis.run import Run, summarise
from app.errors import SettingError
from app.pages.chart import as_file
from app.pages.section import Section
from app.tools.experiment import page
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.experiment.results import Results
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

[[view]]
kind = "bar"
title = "Phases"
measure = ["phases", "shares.backward", "communication_share"]

[[view]]
kind = "curve"
title = "Blocks"
measure = "phases"
every = {BLOCK}

[[view]]
kind = "bar"
title = "Forward"
measure = "forward_seconds.mean"
baseline = "one rank"
times_less = true
published = {{ source = "a report", ratio = true, values = {{ ddp = 3 }} }}

[[view]]
kind = "line"
title = "Speed"
measure = "images_per_second"
by = "ranks"
series = "mode"

[[view]]
kind = "table"
title = "Usage"
measure = ["node_user_percent", "cpus", "cpu_user_percent", "interface_bytes_sent_per_second"]
by = "rank"
published = [
    {{ source = "a report", values = {{ ddp = [50, 60] }} }},
    {{ measure = "interface_bytes_sent_per_second", source = "a report", scale = 1e6, values = {{ ddp = 70.5 }} }},
]

[[view]]
kind = "curve"
title = "CPU"
measure = ["cpu_user_percent", "cpu_system_percent"]
by = "time"

[[view]]
kind = "curve"
title = "Network"
measure = "network_sent_bytes"
by = "time"

[[view]]
kind = "table"
title = "Messages"
measure = ["sent_in_gradients", "bytes_sent_in_all", "busiest_rank", "busiest_bytes_sent"]

[[view]]
kind = "bar"
title = "Rates"
measure = "bytes_sent_per_second"
baseline = "all_reduce"
published = {{ source = "a report", ratio = true, values = {{ ddp = 1.25 }} }}

[[view]]
kind = "line"
title = "Weak"
measure = ["images_per_second", "seconds"]
by = "ranks"
against = "one rank"

[[view]]
kind = "line"
title = "Epochs"
measure = [
    "epoch_seconds", "steps_per_epoch", "epoch_computing_seconds", "epoch_communication_seconds",
    "epoch_hidden_seconds", "training_accuracy",
]
by = "ranks"
against = "one rank"
published = {{ source = "a report", values = {{ "one rank" = 437, ddp = 228 }} }}

[[view]]
kind = "table"
title = "Bandwidth"
measure = [
    "bandwidth.sync_seconds", "bandwidth.algorithm_bytes_per_second", "bandwidth.bus_bytes_per_second",
    "all_links_bytes_per_second", "epoch_bytes_per_second", "bandwidth.link_bytes_per_second", "bus_of_link",
    "ring_seconds", "tree_seconds",
]
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
    number = {"table-node_user_percent": 2, "curve-phases": 2}.get(name, 1)
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
    found, forward = table(place, "bar-phases"), table(place, "bar-forward_seconds_mean")
    one_forward = mean_of(steps_of(place, "one rank"), "forward_seconds")
    for cell, row in found.items():
        steps = steps_of(place, cell)
        for phase in (*PHASES, "hidden_sync"):
            assert row[f"{phase}_seconds_mean"] == close(mean_of(steps, f"{phase}_seconds")), (cell, phase)
        assert row["seconds_mean"] == close(sum(row[f"{phase}_seconds_mean"] or 0 for phase in PHASES))
        assert row["shares_backward"] == close(row["backward_seconds_mean"] / row["seconds_mean"])
        assert one_forward is not None
        assert forward[cell]["times_less"] == close(one_forward / row["forward_seconds_mean"])
        assert row["rounds"] == 1
    assert found["one rank"]["wait_seconds_mean"] is found["one rank"]["sync_seconds_mean"] is None
    assert found["one rank"]["communication_share"] is None
    assert found["ddp"]["hidden_sync_seconds_mean"] is not None
    assert [row["published_times_less"] for row in forward.values()] == [None, None, 3]


def test_blocks_of_steps_leave_out_the_very_first_and_end_with_what_is_left(place: Path) -> None:
    found = table(place, "curve-phases")
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
    found = table(place, "table-node_user_percent")
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
            row = found[f"{cell}, {rank}"]
            assert row["cpu_user_percent"] == pytest.approx(used, rel=1e-6)
            assert row["node_user_percent"] == pytest.approx(used / cpus, rel=1e-6)
            by_rank.append(used)
        if ranks > 1:
            assert found[f"{cell}, all"]["cpu_user_percent"] == pytest.approx(sum(by_rank) / ranks, rel=1e-6)
    shared = {row["interface_bytes_sent_per_second"] for row in found.values()}
    assert shared == {None}, "these ranks share an interface"
    told = {name: each for name, row in found.items() if (each := row["published_node_user_percent"])}
    assert told == {"ddp, 0": 50, "ddp, 1": 60, "ddp, all": 55}
    assert found["ddp, all"]["published_interface_bytes_sent_per_second"] == 70.5e6


def test_traffic_is_what_the_ranks_counted(place: Path) -> None:
    found, speeds = table(place, "table-sent_in_gradients"), table(place, "bar-bytes_sent_per_second")
    rates = {}
    for cell, ranks in RANKS.items():
        own = [steps[0]["bytes_sent"] for steps in records(place, cell, "step")]
        size = content(place, cell, "manifest")["gradient_bytes"]
        assert found[cell]["bytes_sent_in_all"] == sum(own)
        assert found[cell]["sent_in_gradients"] == close(sum(own) / size)
        assert found[cell]["busiest_bytes_sent"] == max(own)
        rates[cell] = sum(own) / ranks / (mean_of(steps_of(place, cell), "seconds") or math.nan)
    assert found["one rank"]["bytes_sent_in_all"] == 0
    assert speeds["one rank"]["bytes_sent_per_second"] is found["one rank"]["busiest_rank"] is None
    assert speeds["ddp"]["bytes_sent_per_second"] == close(rates["ddp"])
    assert speeds["ddp"]["ratio"] == close(rates["ddp"] / rates["all_reduce"])
    assert speeds["ddp"]["published_ratio"] == 1.25


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


def test_speedups_follow_from_speeds_or_from_median_steps(place: Path) -> None:
    weak, epochs = table(place, "line-images_per_second-2"), table(place, "line-epoch_seconds")
    speeds, seconds = {}, {}
    for cell, ranks in RANKS.items():
        samples = content(place, cell, "manifest")["settings"]["train_samples"]
        assert epochs[cell]["steps_per_epoch"] == math.ceil(samples / BATCH / ranks)
        seconds[cell] = median(step["seconds"] for step in steps_of(place, cell)) * epochs[cell]["steps_per_epoch"]
        speeds[cell] = BATCH * ranks * (STEPS - 1) / wall_clock_seconds(place, cell)
        assert weak[cell]["images_per_second"] == close(speeds[cell])
        assert weak[cell]["speedup"] == close(speeds[cell] / speeds["one rank"])
        assert weak[cell]["efficiency"] == close(speeds[cell] / speeds["one rank"] / ranks)
        assert epochs[cell]["epoch_seconds"] == close(seconds[cell])
        assert epochs[cell]["speedup"] == close(seconds["one rank"] / seconds[cell])
        steps = steps_of(place, cell)
        for part, fields in (
            ("computing", ("data_seconds", "forward_seconds", "backward_seconds", "optimiser_seconds")),
            ("communication", ("wait_seconds", "sync_seconds")),
            ("hidden", ("hidden_sync_seconds",)),
        ):
            per_step = mean_of(steps, *fields)
            expected = None if per_step is None else per_step * epochs[cell]["steps_per_epoch"]
            assert epochs[cell][f"epoch_{part}_seconds"] == close(expected), (cell, part)
        every = steps_of(place, cell, 0)
        assert epochs[cell]["training_accuracy"] == close(
            sum(step["correct"] for step in every) / sum(step["samples"] for step in every)
        )
    assert [row["published_epoch_seconds"] for row in epochs.values()] == [437, None, 228]
    assert [row["published_speedup"] for row in epochs.values()] == [1, None, close(437 / 228)]


def test_bandwidth_is_the_rings_and_the_documents_formula_stands_beside_it(place: Path) -> None:
    found = table(place, "table-bandwidth_sync_seconds")
    assert found["one rank"]["bandwidth_sync_seconds"] is None, "one rank synchronises nothing"
    size = content(place, "all_reduce", "manifest")["gradient_bytes"]
    slowest = [
        max(own[number]["sync_seconds"] for own in records(place, "all_reduce", "step")) for number in range(1, STEPS)
    ]
    row = found["all_reduce"]
    communication = table(place, "line-epoch_seconds")["all_reduce"]["epoch_communication_seconds"]
    assert row["bandwidth_algorithm_bytes_per_second"] == close(size / median(slowest))
    assert row["bandwidth_bus_bytes_per_second"] == close(2 * (2 - 1) / 2 * size / median(slowest))
    assert row["all_links_bytes_per_second"] == close(2 * (2 - 1) * size / median(slowest))
    assert row["epoch_bytes_per_second"] == close(size / communication)
    for name in ("bandwidth_link_bytes_per_second", "bus_of_link", "ring_seconds", "tree_seconds"):
        assert row[name] is None, "links were not measured"


def test_lines_relate_each_cell_to_the_best_at_its_place(place: Path) -> None:
    found = table(place, "line-images_per_second")
    speeds = {cell: content(place, cell, "summary")["run"]["images_per_second"] for cell in RANKS}
    best = max(speeds["all_reduce"], speeds["ddp"])
    for cell, row in found.items():
        assert row["images_per_second"] == close(speeds[cell])
        assert row["ratio"] == close(1.0 if cell == "one rank" else speeds[cell] / best)
        assert row["x"] == RANKS[cell]


def test_one_round_tells_no_difference_and_no_figure_is_missing(place: Path) -> None:
    folder = place / "results/experiments/costs"
    reading = json.loads((folder / "experiment.json").read_text())["reading"]
    assert len(reading) == GRID.count("[[view]]") - GRID.count('kind = "curve"'), "a curve shows, and says nothing"
    report = (folder / "report.html").read_text()
    assert "Noise is unknown" in report
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    drawn = ("bar-phases", "curve-phases", "line-images_per_second", "curve-cpu_user_percent", "line-epoch_seconds")
    assert {*drawn} <= figures
    assert "curve-network_sent_bytes" not in figures, "these ranks share an interface"


def test_the_page_leaves_out_what_the_documents_say_nothing_of_and_the_file_does_not(place: Path) -> None:
    report = (place / "results/experiments/costs/report.html").read_text()
    rates = re.search(r'<table data-table="bar-bytes_sent_per_second".*?</table>', report, re.DOTALL)
    assert rates
    assert 'data-name="published_ratio"' in rates[0]
    assert 'data-name="ratio_low"' not in rates[0], "one round has no interval"
    assert {row["ratio_low"] for row in table(place, "bar-bytes_sent_per_second").values()} == {None}


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
    found = Run(run).summary.run[STEP.median]
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

[[view]]
kind = "line"
title = "Rates"
measure = "seconds"
by = "rate"
series = "mode"
watch = "gather_scatter"
"""


def column_of(section: Section, name: str) -> list[Any]:
    """Of its first table."""
    place = [column.name for column in section.tables[0].columns].index(name)
    return [row[place] for row in section.tables[0].rows]


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
    slowest = r"Slowest first: 100mbit: gather_scatter > all_reduce > ddp, 3.* times \(.*\); 1gbit: gather"
    assert re.match(slowest, section.sentences[0])
    assert "1gbit: gather_scatter > ddp = all_reduce" in words or "1gbit: gather_scatter > all_reduce = ddp" in words
    assert "unshaped: ddp > " in words
    assert "Between 100mbit and unshaped the order changes: all_reduce is slower than ddp before and faster" in words
    assert "Between 1gbit and unshaped the order changes: gather_scatter is slower than ddp before and faster" in words
    assert (
        "gather_scatter is slower than every other, beyond the noise, at 100mbit, 1gbit, but not at unshaped." in words
    )
    assert column_of(section, "x") == ["100mbit"] * 3 + ["1gbit"] * 3 + ["unshaped"] * 3


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
    assert "The order changes nowhere" in words
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
    assert "so no order is given" in " ".join(section.sentences)


THREADS = """
[[grid]]
label = "threads {THREADS_PER_RANK}"
WORKERS = 0
SYNC_MODE = "none"
THREADS_PER_RANK = [1, 2, 3, 10]

[[view]]
kind = "line"
title = "Threads"
measure = "seconds"
by = "THREADS_PER_RANK"
"""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ((2.0, 1.0, 1.0, 1.1), "THREADS_PER_RANK 2: "),
        ((1.0, 1.0, 1.0, 1.5), "THREADS_PER_RANK 1: "),
        ((4.0, 3.0, 2.0, 1.0), "THREADS_PER_RANK 10: the largest"),
        ((2.0, None, None, None), "Not more than one value of THREADS_PER_RANK was measured."),
        ((None, None, None, None), "Time per step: no cell has it."),
    ],
)
def test_more_of_a_setting_helps_up_to_where_nothing_is_faster(
    bench: Bench, seconds: Sequence[float | None], said: str
) -> None:
    cells = [f"threads {number}" for number in (1, 2, 3, 10)]
    section = bench.section(THREADS, dict(zip(cells, seconds, strict=True)))
    assert section.sentences[0].startswith(said)
    assert column_of(section, "x") == [
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

[[view]]
kind = "line"
title = "Strong"
measure = "seconds"
by = "ranks"
against = "one rank"
published = { source = "a report", values = { one = 437, "ddp on 4" = 153 } }
"""


def test_speedup_is_told_with_its_interval_and_where_it_ends(bench: Bench) -> None:
    times = {"all_reduce on 2": 0.5, "all_reduce on 3": 0.5, "all_reduce on 4": 1.0}
    times |= {"ddp on 2": 0.5, "ddp on 3": 0.3, "ddp on 4": 0.25}
    base = bench.section(STRONG, {"one": 1.0, **times})
    names = [column.name for column in base.tables[0].columns]
    rows = {row[0]: dict(zip(names, row, strict=True)) for row in base.tables[0].rows}
    assert rows["one"]["speedup"] == pytest.approx(1)
    assert rows["ddp on 2"]["speedup"] == pytest.approx(2, rel=3 * NOISE)
    four: dict[str, Any] = rows["ddp on 4"]
    assert four["speedup"] == pytest.approx(4, rel=3 * NOISE)
    assert four["speedup_low"] < four["speedup"] < four["speedup_high"]
    assert four["efficiency"] == pytest.approx(four["speedup"] / 4)
    assert four["published_speedup"] == pytest.approx(437 / 153)
    assert re.search(r"all_reduce (1|0\.99).* on 4, .*no difference beyond the noise.*; ddp .* on 4", base.sentences[0])
    words = " ".join(base.sentences)
    assert re.search(r"all_reduce: ranks 2: .*all_reduce: How many times .*from 3 to 4 0\.(5|49)", words)
    assert "ddp: ranks 4: the largest" in words


ANY_FIGURE = """
[[grid]]
WORKERS = 1
SYNC_MODE = ["all_reduce", "ddp"]

[[view]]
kind = "line"
title = "Any figure"
by = "mode"
measure = "%s"
"""


@pytest.mark.parametrize("figure", ["bytes_sent_per_step", "shares.sync", "sync_seconds.p95", "bandwidth.utilisation"])
def test_lines_show_any_figure_of_a_summary(bench: Bench, figure: str, tmp_path: Path) -> None:
    section = bench.section(ANY_FIGURE % figure, {"all_reduce": 1.0, "ddp": 2.0})
    (table,) = section.tables
    names = [column.name for column in table.columns]
    assert ("ratio" in names) == ("seconds" in figure), "no end of the others is the better one"
    for row in table.rows:
        cell = dict(zip(names, row, strict=True))
        summaries = [json.loads(path.read_text())["run"] for path in tmp_path.rglob(f"{cell['cell']}-*/summary.json")]
        values = [reduce(lambda tree, name: tree and tree[name], figure.split("."), each) for each in summaries]
        assert len(values) == 3
        known = None not in values
        assert cell[figure.removesuffix(".median").replace(".", "_")] == (
            pytest.approx(median(values)) if known else None
        )


def test_time_to_a_loss_ends_with_the_first_ten_steps_that_reach_it(bench: Bench, tmp_path: Path) -> None:
    section = bench.section(ANY_FIGURE % "seconds_to_loss(1000)", {"all_reduce": 1.0, "ddp": 2.0})
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
        assert cell["seconds_to_loss_1000"] == pytest.approx(median(found))
    section = bench.section(ANY_FIGURE % "seconds_to_loss(1e-9)", {"all_reduce": 1.0, "ddp": 2.0})
    assert section.drawings[0].chart is None
    assert sum("0 of 3 runs" in sentence for sentence in section.remarks) == 2


def test_a_cell_that_reaches_a_loss_in_some_rounds_only_is_left_out(bench: Bench) -> None:
    """A median over the lucky rounds would make it look fast."""
    ended: list[str] = []

    def unlucky(cell: str, record: Json) -> Json:
        if cell == "ddp" and record["kind"] == "finished":
            ended.append(cell)
        lucky = cell != "ddp" or len(ended) < RANKS["ddp"]  # in its first round
        return record | {"loss": 5.0 if lucky else 50.0} if record["kind"] == "step" else record

    section = bench.section(ANY_FIGURE % "seconds_to_loss(10)", {"all_reduce": 1.0, "ddp": 2.0}, change=unlucky)
    names = [column.name for column in section.tables[0].columns]
    shown = {row[0]: dict(zip(names, row, strict=True))["seconds_to_loss_10"] for row in section.tables[0].rows}
    assert any("ddp" in sentence and "in 1 of 3 runs" in sentence for sentence in section.remarks)
    assert shown["ddp"] is None
    assert shown["all_reduce"] is not None


@pytest.mark.parametrize(
    "figure",
    [
        "sync_second",
        "straggler.rank_",
        "seconds_to_loss",
        "seconds_to_loss(0)",
        "seconds_to_loss(-1)",
        "seconds_to_loss(1e999)",
        "shares.sync(1)",
        'seconds"\nseries = "SYNC_MODE" # "',
        'seconds"\nseries = "SYNC_MOD" # "',
        'seconds"\nagainst = "ddp" # "',
        'seconds"\nbound = "second" # "',
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

[[view]]
kind = "line"
title = "Three dimensions"
measure = "seconds"
by = "ranks"
%s
"""


@pytest.mark.parametrize("options", ["", 'series = "mode"'])
def test_no_line_and_no_sentence_mixes_two_rates(bench: Bench, options: str) -> None:
    """On both rates, four ranks are twice as fast as two. Only four at 20 Mbit/s against two at 200 would be slower."""
    seconds = {
        f"{mode}, {rate}, {ranks} ranks": own * by / ranks
        for mode, own in (("gather_scatter", 2.0), ("ring_all_reduce", 1.0))
        for rate, by in (("200mbit", 1.0), ("20mbit", 10.0))
        for ranks in (2, 4)
    }
    words = " ".join(bench.section(THREE_DIMENSIONS % options, dict(seconds)).sentences)
    if options:
        assert words.count("gather_scatter > ring_all_reduce") == 4
        assert "order changes:" not in words
        return
    for mode in ("gather_scatter", "ring_all_reduce"):
        for rate in ("200mbit", "20mbit"):
            assert f"{rate}, {mode}: ranks 4: the largest" in words


def test_without_one_rank_there_is_no_speedup(bench: Bench) -> None:
    cells = [f"{mode} on {ranks}" for mode in ("all_reduce", "ddp") for ranks in (2, 3, 4)]
    section = bench.section(STRONG, {"one": None, **dict.fromkeys(cells, 1.0)})
    assert section.sentences[0].startswith("No speedup can be told")
    assert section.drawings[0].chart is None
    table = section.tables[0]
    speedup = [column.name for column in table.columns].index("speedup")
    assert all(row[speedup] is None for row in table.rows)


MODES = """
[[grid]]
WORKERS = 1
SYNC_MODE = ["gather_scatter", "all_reduce"]

[[view]]
kind = "table"
title = "Messages"
measure = "sent_in_gradients"

[[view]]
kind = "bar"
title = "Rates"
measure = "bytes_sent_per_second"
baseline = "all_reduce"
"""


def star(cell: str, record: Json) -> Json:
    """Let rank 0 of gather and scatter send all that both ranks send."""
    if cell == "gather_scatter" and record["kind"] == "step":
        return record | {"bytes_sent": 2 * record["bytes_sent"] if record["rank"] == 0 else 0}
    return record


def test_as_many_bytes_are_called_so_and_the_busiest_rank_is_named(bench: Bench) -> None:
    section = bench.section(MODES, {"gather_scatter": 2.0, "all_reduce": 1.0}, change=star)
    assert "gather_scatter, all_reduce send the same: 2 S = " in section.sentences[0]
    assert "gather_scatter 2 S (rank 0); all_reduce 1 S (all alike)" in section.sentences[1]
    rates = MODES[: MODES.index("[[view]]")] + MODES[MODES.rindex("[[view]]") :]
    section = bench.section(rates, {"gather_scatter": 2.0, "all_reduce": 1.0}, change=star)
    assert re.search(r"compared with all_reduce: gather_scatter (2|1\.9|2\.0).* less", " ".join(section.sentences))


def test_other_amounts_are_called_other_amounts(bench: Bench) -> None:
    def less(cell: str, record: Json) -> Json:
        return (
            record | {"bytes_sent": record["bytes_sent"] // 2}
            if "bytes_sent" in record and cell != "all_reduce"
            else record
        )

    section = bench.section(MODES, {"gather_scatter": 1.0, "all_reduce": 1.0}, change=less)
    assert "gather_scatter 1 S, all_reduce 2 S" in section.sentences[0]


PHASE_GRID = """
[[grid]]
label = "one node"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
WORKERS = 1
SYNC_MODE = ["gather_scatter", "all_reduce"]

[[view]]
kind = "bar"
title = "Phases"
measure = "phases"
"""


def test_backward_is_called_the_longest_only_where_it_is_in_every_round(bench: Bench) -> None:
    def change(cell: str, record: Json) -> Json:
        if record["kind"] != "step":
            return record
        longest = "backward_seconds" if cell == "one node" else "sync_seconds"
        return record | {longest: record["seconds"] * 10, "seconds": record["seconds"] * 11}

    section = bench.section(PHASE_GRID, {"one node": 1.0, "gather_scatter": 1.0, "all_reduce": None}, change=change)
    assert "every round of one node, but not of the others" in section.sentences[0]
    words = " ".join(section.sentences)
    assert "Communication that delays a step costs: gather_scatter " in words
    assert "Not measured, because no run is finished: all_reduce." in words


def test_nothing_finished_is_nothing_said(bench: Bench) -> None:
    for text in (PHASE_GRID, MODES, STRONG, RATES):
        put_grid(Path(), "made", f'title = "Made"\nquestion = "?"\n{text}')
        cells = [cell.name for cell in grid.read("made").cells]
        section = bench.section(text, dict.fromkeys(cells), rounds=2)
        assert section.sentences
        assert all(drawing.chart is None for drawing in section.drawings)
        assert all(not each.rows for each in section.tables)
