"""Every measure of an experiment, by cell and by rank, against its reference: of real runs, and of random records."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.analysis.catalogue import GROUPS, NAMES
from app.tools.experiment import page
from tests import made_up, runs
from tests.made_up import EPOCH, STEPS, Experiment, Json
from tests.processes.experiments import carry_out
from tests.reference import PHASES, REFERENCE, Run, over_rounds

ALONE, PLAIN, OVERLAPPED, RARE = "alone", "plain", "overlapped", "every 4"
NAMED_ELSEWHERE = "straggler"  # tests/unit/test_stragglers.py names them in simulated work whose truth is known
UNREACHED = {"mean_seconds_to(40)", "seconds_to_loss(1e-9)"}
MEASURES = [name for name in REFERENCE if name != "first_step_seconds"]  # in CSV it is called as first_step.seconds is
TABLES = {"table-rank": MEASURES, "table-rank-2": MEASURES, "bar-first_step_seconds": ["first_step_seconds"]}
CELLS = f"""\
view = [
    {{ kind = "table", title = "By cell", measure = {json.dumps(MEASURES)} }},
    {{ kind = "table", title = "By rank", by = "rank", measure = {json.dumps(MEASURES)} }},
    {{ kind = "bar", title = "First", measure = ["first_step_seconds", "phases"], baseline = "{ALONE}" }},
    {{ kind = "curve", title = "CPU", measure = "cpu_user_percent", by = "time" }},
    {{ kind = "curve", title = "Network", measure = "network_sent_bytes", by = "time" }},
]
grid = [
    {{ label = "{ALONE}", WORKERS = 0, SYNC_MODE = "none" }},
    {{ label = "{PLAIN}", WORKERS = 1, SYNC_MODE = "all_reduce" }},
    {{ label = "{OVERLAPPED}", WORKERS = 1, SYNC_MODE = "ddp" }},
    {{ label = "{RARE}", WORKERS = 1, SYNC_EVERY = 4 }},
]
"""
GRID = f"""\
title = "Measures"
question = "What do the records say?"
repeats = 1
{CELLS}
[settings]
MODEL = "lenet5"
DATASET = "digits"
LINK_CHECK = "off"
EVALUATE = "every_rank"
WARMUP_STEPS = 0
TRAIN_SAMPLES = 96
TEST_SAMPLES = 50
GLOBAL_BATCH_SIZE = 16
EPOCHS = 2
USAGE_INTERVAL = 0.05
"""
PACE = 1.5  # seconds from the beginning of a step to that of the next one


def random_step(random: np.random.Generator, cell: str, rank: int, number: int, **own: Any) -> Json:
    """With every figure that such a run can have, and no two alike."""

    def some(*names: str, low: float = 0.01, high: float = 0.1) -> Json:
        return {name: float(random.uniform(low, high)) for name in names}

    own |= some(*(f"{phase}_seconds" for phase in PHASES), "communication_seconds", "throttled_seconds")
    own |= some("seconds", low=0.6, high=0.8) | some("loss", low=2.6 - number / 8, high=2.8 - number / 8)
    sends = cell != ALONE and (cell != RARE or (number + 1) % 4 == 0 or number + 1 == STEPS)
    own |= {f"bytes_{way}": int(random.integers(90, 110)) if sends else 0 for way in ("sent", "received")}
    own |= {"samples": int(random.integers(4, 9)), "correct": number % 4}
    if cell in (ALONE, OVERLAPPED):
        own |= {"wait_seconds": None, "sync_seconds": None, "throttled_seconds": None}
    if cell == OVERLAPPED:
        ready = sorted(some(*"abc", low=0.1, high=0.2).values())
        ends = [(begin, begin + some("taken", high=0.08)["taken"]) for begin in ready]
        own |= some("hidden_sync_seconds") | some("exposed_sync_seconds", low=0.1, high=0.2)
        own["buckets"] = [{"bytes": 10, "ready_seconds": begin, "end_seconds": end} for begin, end in ends]
        own["buffers"] = [{"bytes": 10, **some("ready_seconds", high=0.02), **some("end_seconds", low=0.03)}]
    if cell == PLAIN:
        own |= some("batch_norm_seconds", high=0.02) | {"batch_norm_bytes_sent": 10 + rank + number}
        own |= {f"interface_bytes_{way}": int(random.integers(900, 999)) for way in ("sent", "received")}
        own |= some("wire_rounding_error") if number % 3 == 0 else {}
        accounts = ("cpu_seconds", "no_core_seconds", "quota_seconds")
        own |= {name: some(*PHASES) if number % 4 else None for name in accounts}
    return made_up.a_step(rank, number, **own)


def random_run(cell: str, ranks: int, random: np.random.Generator) -> Iterator[list[Json]]:
    """Records by rank, whose clocks differ and drift. A run of all-reduce is in two attempts that share two steps."""
    order = [(n, 0) for n in range(STEPS)]
    order = [*order[:10], *((n, 1) for n in range(8, STEPS))] if cell == PLAIN else order
    for rank in range(ranks):
        began, own = 40.0 * rank, []
        for place, (number, attempt) in enumerate(order):
            at = began + PACE * place + float(random.uniform(0, 0.02))
            own.append(random_step(random, cell, rank, number, attempt=attempt, at_seconds=at))
            spent = {"at_seconds": at + own[-1]["seconds"], "seconds": float(random.uniform(0.1, 0.3))}
            spent["attempt"] = attempt
            if number == 3:
                own.append({"kind": "checkpoint", "rank": rank, "step": number + 1, "bytes": 9, **spent})
            if (number + 1) % EPOCH == 0 and cell != RARE:
                tested = {"loss": float(random.uniform(1, 2)), "accuracy": float(random.uniform(0, 1))}
                own.append(made_up.evaluation(rank, number // EPOCH, **spent | tested))
        ended = began + PACE * len(order)
        for moment, ahead in zip(np.linspace(began, ended, 3), random.uniform(0, 0.02, 3), strict=True):
            clock = {"at_seconds": float(moment), "ahead_seconds": 40.0 * rank + float(ahead)}
            own.append({"kind": "clock", "rank": rank, "uncertainty_seconds": float(random.uniform(0, 1e-3)), **clock})
        for end in np.arange(began + 0.3, ended, 0.3) if cell != RARE else ():
            sample = {f"cpu_{way}_percent": float(random.uniform(1, 100)) for way in ("user", "system")}
            sample |= {f"network_{way}_bytes": int(random.integers(99)) for way in ("sent", "received")}
            sample |= {"at_seconds": float(end), "seconds": float(random.uniform(0.1, 0.3)), "throttled_seconds": 0.01}
            own.append({"kind": "usage", "rank": rank, "memory_bytes": int(random.integers(10**6)), **sample})
        last = {"attempt": int(cell == PLAIN), "seconds": ended - began, "peak_memory_bytes": 10**6 + rank}
        yield [*own, made_up.finished(rank, **last)]


def random_page(_: Path) -> Path:
    """Three rounds of random runs, with measured links where gradients are sent in each step."""
    experiment = Experiment(CELLS.replace('"plain", WORKERS = 1', '"plain", WORKERS = 2'))
    random = np.random.default_rng(1)
    for trial in experiment.plan.trials:
        size, measured = int(trial.settings["WORKERS"]) + 1, trial.cell in (PLAIN, OVERLAPPED)
        ranks = [runs.participant(n, 100.0 + n, 1000.0 * (n + 1) if measured else None) for n in range(size)]
        for number, rank in enumerate(ranks):
            rank["fair_share_cpus"] = 0.5 + number
            if measured:
                rank["link"]["received"] = rank["link"]["received"] | {"measured_bytes_per_second": 900.0 + number}
        manifest = {"sync_seconds_at_least": 0.01 if measured else None, "ranks": ranks}
        made_up.write(experiment.folder / trial.name, trial, [*random_run(trial.cell, size, random)], **manifest)
    page.write(experiment.grid, experiment.plan)
    return experiment.folder.parent.resolve()


def real_page(place: Path) -> Path:
    return carry_out(place, "measures", GRID)


@pytest.fixture(scope="module", params=[random_page, real_page], ids=["random", "real"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a page."""
    place = tmp_path_factory.mktemp("measures")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        yield request.param(place)


def table(folder: Path, name: str) -> list[tuple[str, int | None, dict[str, Any]]]:
    """Cell, rank, and the row."""
    with (folder / "tables" / f"{name}.csv").open() as file:
        head, *rows = csv.reader(file)
    ranks = [int(row[1]) if head[1] == "rank" and row[1] != "all" else None for row in rows]
    return [(row[0], n, dict(zip(head, map(_value, row), strict=True))) for n, row in zip(ranks, rows, strict=True)]


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return {"": None, "True": True, "False": False}.get(text, text)


def test_every_measure_has_a_reference() -> None:
    asked = {re.sub(r"\(.*", "(NUMBER)", name) for name in REFERENCE}
    assert asked == {name for name in {*NAMES} - {*GROUPS} if not name.startswith(NAMED_ELSEWHERE)}


def test_every_measure_is_what_the_records_say_by_cell_and_by_rank(made: Path) -> None:
    wrong, measured = [], set[str]()
    found: dict[str, list[Run]] = {}
    for name, asked in TABLES.items():
        for cell, rank, row in table(made, name):
            of_cell = sorted((made / "full").glob(f"{cell.replace(' ', '_')}-*"))
            own = found[cell] = found.get(cell) or [Run(each) for each in of_cell]
            assert row["rounds"] == len(own)
            for measure in asked:
                shown = row[re.sub(r"[^a-z0-9]+", "_", measure.removesuffix(".median")).strip("_")]
                expected = over_rounds(own, measure, rank)
                measured |= set() if expected is None else {measure}
                if shown != (pytest.approx(expected, rel=1e-9, abs=1e-12) if isinstance(expected, float) else expected):
                    wrong.append((cell, rank, measure, shown, expected))
    assert wrong == []
    assert {*REFERENCE} - measured <= UNREACHED or len(found[ALONE]) == 1, "of random runs, all else is compared"


def test_the_page_of_real_runs_has_all_that_they_measured_and_no_more(made: Path) -> None:
    report, words = (made / "report.html").read_text(), json.loads((made / "experiment.json").read_text())
    real = words["runs_finished"] == 4
    for cell, _, row in table(made, "bar-first_step_seconds"):
        phases = [row[f"{phase}_seconds_mean"] for phase in PHASES]
        assert not real or row["seconds_mean"] == pytest.approx(sum(each or 0 for each in phases))
        assert (phases[3:5] == [None, None]) == (cell == ALONE)
        assert (row["hidden_sync_seconds_mean"] is None) == (cell != OVERLAPPED)
        assert (row["ratio_low"] is None) == real, "one round has no interval"
    bar = re.search(r'<table data-table="bar-first_step_seconds".*?</table>', report, re.DOTALL)
    assert bar
    assert ('data-name="ratio_low"' in bar[0]) != real, "what no row has is in the file alone"
    figures = {path.stem for path in (made / "figures").glob("*.svg")}
    shared = {"curve-network_sent_bytes"} if real else set()  # these ranks share an interface
    assert figures == {"bar-first_step_seconds", "curve-cpu_user_percent", "curve-network_sent_bytes"} - shared
    assert [each.partition(". ")[0] for each in words["reading"]] == ["By cell", "By rank", "First"]
