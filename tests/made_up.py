"""Experiments of runs that never were, with records as ranks write them: for laws about what a page makes of runs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from app.pages.section import Section
from app.tools.experiment import page
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan, Trial
from app.tools.experiment.results import Results
from tests import runs
from tests.processes.experiments import put_grid
from tests.reference import Run
from tests.unit.test_records import FINISHED, STEP

Json = dict[str, Any]
Change = Callable[[str, int, Json], Json | None]  # by cell and round, of a record; None takes it away

STEPS, EPOCH = 12, 6
SLOW = {0: 10.0, 3: 1.5, 7: 1.4, 10: 2.0}  # by how much some steps are longer, so that mean and median differ
SHIFT = (1.0, 1.3, 0.9)  # what a machine does to whole rounds
NOISE = 0.01  # of single runs; over three rounds it leaves every cell where it is
PARTS = {"data": 0.05, "forward": 0.3, "backward": 0.35, "wait": 0.05, "sync": 0.15, "optimiser": 0.1}


def a_step(rank: int, number: int, **own: Any) -> Json:
    return {"kind": "step"} | asdict(STEP) | {"rank": rank, "step": number, "epoch": number // EPOCH} | own


def evaluation(rank: int, epoch: int, **own: Any) -> Json:
    return {"kind": "evaluation", "rank": rank, "epoch": epoch, "correct": 1, "samples": 4, "attempt": 0} | own


def finished(rank: int, **own: Any) -> Json:
    return {"kind": "finished"} | asdict(FINISHED) | {"rank": rank, "steps": STEPS} | own


def steady(ranks: int, seconds: float) -> list[list[Json]]:
    """Steps of these seconds in the median, as all ranks take them."""
    found = []
    for rank in range(ranks):
        own, at = [], 0.0
        for number in range(STEPS):
            taken = seconds * SLOW.get(number, 1.0)
            unmeasured = () if ranks > 1 else ("wait", "sync")
            parts = {
                f"{phase}_seconds": None if phase in unmeasured else share * taken for phase, share in PARTS.items()
            }
            parts |= {"at_seconds": at, "seconds": taken, "loss": 3.0 - number / 10 + rank / 100}
            parts |= {} if ranks > 1 else {"bytes_sent": 0, "bytes_received": 0}
            own.append(a_step(rank, number, **parts, samples=8 + rank, correct=number % 5))
            at += taken
        timed = {"at_seconds": at, "seconds": 0.1}
        tests = [evaluation(rank, n, loss=2.0 - n, accuracy=0.25 + n / 4, **timed) for n in range(2)]
        found.append([*own, *tests, finished(rank, seconds=at)])
    return found


def write(folder: Path, trial: Trial, records: Sequence[Sequence[Json]], **manifest: Any) -> None:
    folder.mkdir(parents=True)
    settings = runs.MANIFEST["settings"] | {"sync_mode": trial.settings.get("SYNC_MODE", "all_reduce")}
    settings |= {"sync_every": int(trial.settings["SYNC_EVERY"])} if "SYNC_EVERY" in trial.settings else {}
    whole = {"run": trial.name, "world_size": len(records), "ranks": [runs.participant(n) for n in range(len(records))]}
    whole |= {"settings": settings | {"evaluate": "every_rank", "batch_norm": "local"}}
    whole |= {"plan": runs.MANIFEST["plan"] | {"steps": STEPS, "steps_per_epoch": EPOCH}}
    (folder / "manifest.json").write_text(json.dumps(runs.MANIFEST | whole | manifest))
    (folder / "summary.json").write_text('{"complete": true}')
    for rank, own in enumerate(records):
        (folder / f"rank-{rank}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in own))


class Experiment:
    """One in the working directory, whose runs are written down as they are to be."""

    def __init__(self, text: str, rounds: int = 3) -> None:
        Path("results").mkdir(exist_ok=True)
        put_grid(Path(), "made", f'title = "Made"\nquestion = "?"\nrepeats = {rounds}\n{text}')
        self.grid, self.rounds = grid.read("made"), rounds
        plan = ExperimentPlan.make(self.grid, lambda trial: 1.0, fresh=True)
        plan.write(fresh=True)
        self.plan, self.folder = ExperimentPlan.read("made", quick=False), plan.folder

    def steady(
        self, seconds: Mapping[str, float | None], change: Change = lambda cell, number, record: record, *lost: str
    ) -> "Experiment":
        """Write runs of cells by their median step time. A cell without one has no run."""
        for place, cell in enumerate(self.grid.cells):
            for trial in (each for each in self.plan.trials if each.cell == cell.name and each.name not in lost):
                if asked := seconds.get(cell.name):
                    asked *= SHIFT[trial.round - 1] * (1 + NOISE * ((place + trial.round) % 3 - 1))
                    records = [
                        [new for each in own if (new := change(cell.name, trial.round, each))]
                        for own in steady(cell.world_size, asked)
                    ]
                    write(self.folder / trial.name, trial, records)
        return self

    def runs(self, cell: str) -> dict[int, Run]:
        """Those that are there, by round."""
        own = [each for each in self.plan.trials if each.cell == cell and (self.folder / each.name).is_dir()]
        return {trial.round: Run(self.folder / trial.name) for trial in own}

    @cached_property
    def results(self) -> Results:
        return Results(self.grid, self.plan)

    @cached_property
    def sections(self) -> list[Section]:
        views = page.views_of(self.grid)
        return [view.section(self.results, name) for view, name in zip(views, page.names_of(views), strict=True)]

    def says(self, *parts: object, section: int = 0) -> bool:
        """Whether one sentence has all of this in this order."""
        return any(_in_order(sentence, map(str, parts)) for sentence in self.sections[section].sentences)

    def rows(self, section: int = 0, table: int = -1) -> list[Json]:
        found = self.sections[section].tables[table]
        return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]

    def column(self, name: str, section: int = 0, table: int = -1) -> Json:
        """By what is in the first column."""
        return {next(iter(row.values())): row[name] for row in self.rows(section, table)}


def _in_order(sentence: str, parts: Iterator[str]) -> bool:
    place = 0
    for part in parts:
        place = sentence.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True
