"""A plan: the runs of an experiment in their order, and which of them are finished. It lives in files alone.

So an experiment can be interrupted anywhere: what is asked next is answered from what is there.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from app.errors import SettingError
from app.extensions import files
from app.machine import folders
from app.machine.source import files_sha256
from app.records import series
from app.records.bounds import Number, Positive
from app.records.series import EndedRun
from app.records.summary import is_complete
from app.settings import environment
from app.settings.concern import Mark
from app.settings.settings import marked
from app.tools.experiment.plan.cells import Cell
from app.tools.experiment.plan.grid import Grid

PLAN, OUTCOMES = "plan.json", "outcomes.json"
ASKED = "settings.json"  # of every run that was ever planned here, so that one that comes back is known again
OWN_FILES = "hash of extensions/"
FIRST_SEED = 1
IN_ONE_GO = {"RESUME": "never", "CHECKPOINT_EVERY": "0", "MAX_RESTARTS": "0"}  # a run is made in one go, or repeated


@dataclass(frozen=True)
class Trial:
    """One run of a cell."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # also of its folder
    cell: str
    round: Positive
    settings: dict[str, str]
    attempts: Positive = (
        2  # a machine that others use as well may fail a run for a moment; not one that is expected to fail
    )
    expected_seconds: Number = 0.0

    @property
    def asked(self) -> dict[str, str]:
        """Its settings, and the state of the user's own files if it uses any."""
        used = files.sources(environment.of(self.settings).own)
        own = files_sha256((str(path), path) for path in used)
        return self.settings | ({OWN_FILES: own[:12]} if used else {})

    @property
    def of_containers(self) -> dict[str, str]:
        """The settings with which its containers have to start."""
        names = marked(Mark.AT_CONTAINER_START)
        return {name: value for name, value in self.settings.items() if name.lower() in names}


_PLAN = TypeAdapter(list[Trial])
_OUTCOMES = TypeAdapter(list[EndedRun])
_ASKED = TypeAdapter(dict[str, dict[str, str]])


def folder_of(name: str, *, quick: bool) -> Path:
    """Where an experiment's runs lie; those of its quick version are apart."""
    return page_folder(name) / ("quick" if quick else "full")


def page_folder(name: str) -> Path:
    """Where its page lies."""
    return folders.RESULTS / "experiments" / name


def trials(grid: Grid) -> Iterator[Trial]:
    """Round after round, each with every cell once, so that what changes on the machine meets all cells alike.

    Within a round, cells that can share their containers follow each other.
    """
    for number in range(1, grid.repeats + 1):
        found = [_trial(cell, number) for cell in grid.cells]
        if not grid.keeps_order:
            alike = [trial.of_containers for trial in found]
            found.sort(key=lambda trial: alike.index(trial.of_containers))
        yield from found


def _trial(cell: Cell, number: int) -> Trial:
    name = f"{cell.slug}-{number}"
    seed = int(cell.settings.get("SEED", FIRST_SEED)) + number - 1
    own = {"WORKERS": str(cell.world_size - 1)} | cell.settings
    settings = own | {"SEED": str(seed), "RUN_NAME": name, "WORLD_SIZE": str(cell.world_size)}
    return Trial(name, cell.name, number, settings, attempts=1 if cell.may_fail else 2)


class ExperimentPlan:
    """The trials of a grid, in a folder."""

    def __init__(self, folder: Path, planned: list[Trial]) -> None:
        self.folder, self.trials = folder, planned

    @classmethod
    def make(cls, grid: Grid, expect: Callable[[Trial], float], *, fresh: bool) -> "ExperimentPlan":
        """A plan with the time that each run is expected to take; refused where finished runs had other settings."""
        folder = folder_of(grid.name, quick=grid.quick)
        plan = cls(folder, [replace(trial, expected_seconds=expect(trial)) for trial in trials(grid)])
        if not fresh:
            plan._refuse_other_settings()
        return plan

    def write(self, *, fresh: bool) -> None:
        """Put it into its folder, which starts empty where a fresh start is asked for."""
        if fresh and self.folder.is_dir():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / PLAN, [asdict(trial) for trial in self.trials])
        _write(
            self.folder / ASKED,
            _read(self.folder / ASKED, _ASKED, {}) | {each.name: each.asked for each in self.trials},
        )
        # A failure is of one attempt; how long the others took is worth knowing for longer.
        self.note_series()
        done = {trial.name for trial in self.finished()}
        _write(self.folder / OUTCOMES, [asdict(each) for each in self.outcomes() if each.run in done])

    @classmethod
    def read(cls, name: str, *, quick: bool) -> "ExperimentPlan":
        """The plan that is there."""
        folder = folder_of(name, quick=quick)
        return cls(folder, _read(folder / PLAN, _PLAN, []))

    def is_finished(self, trial: Trial) -> bool:
        """Whether all of its ranks came to the end and its summary was written."""
        return is_complete(self.folder / trial.name)

    def outcomes(self) -> list[EndedRun]:
        """How each attempt ended, in their order."""
        return _read(self.folder / OUTCOMES, _OUTCOMES, [])

    def finished(self) -> list[Trial]:
        """Those that need not be run again."""
        return [trial for trial in self.trials if self.is_finished(trial)]

    def unfinished(self) -> list[str]:
        return [trial.name for trial in self.trials if not self.is_finished(trial)]

    def failed(self) -> list[Trial]:
        """Those that no attempt could finish."""
        made = self.attempts_made()
        return [each for each in self.trials if made[each.name] >= each.attempts and not self.is_finished(each)]

    def open(self) -> list[Trial]:
        """Those that are still to be run, in their order; those that failed once come last."""
        made = self.attempts_made()
        found = [each for each in self.trials if made[each.name] < each.attempts and not self.is_finished(each)]
        return sorted(found, key=lambda trial: made[trial.name])

    def attempts_made(self) -> Counter[str]:
        """How often each trial was run since the plan was written, or, once finished, until it was."""
        return Counter(each.run for each in self.outcomes())

    def next(self) -> list[Trial]:
        """The trials to run now, in the same containers; what interrupted ones left is taken away."""
        open_ones = self.open()
        found = list(takewhile(lambda trial: trial.of_containers == open_ones[0].of_containers, open_ones))
        if found and found[0].settings.get("BACKEND") == "mpi":
            found = found[:1]  # mpirun starts the ranks of one run
        for trial in found:
            shutil.rmtree(self.folder / trial.name, ignore_errors=True)
        return found

    def seconds_left(self, trials: Sequence[Trial] | None = None) -> float:
        """What these trials will take: as long as their cells took before, else as expected, put right so far."""
        took = {each.run: each.seconds for each in self.outcomes()}  # of its last attempt
        known = [(trial, took[trial.name]) for trial in self.finished() if trial.name in took]
        expected = sum(trial.expected_seconds for trial, _ in known)
        correction = sum(seconds for _, seconds in known) / expected if expected else 1.0
        by_cell = {trial.cell: [seconds for other, seconds in known if other.cell == trial.cell] for trial, _ in known}
        return sum(
            median(by_cell[trial.cell]) if trial.cell in by_cell else trial.expected_seconds * correction
            for trial in (self.open() if trials is None else trials)
        )

    def note_series(self, exit_code: int = 0, seconds: float = 0.0) -> list[EndedRun]:
        """Remember how the runs of the last series ended, which ended with this exit code; returns all that did."""
        ended = series.ended(self.folder)
        left = [each.run for each in series.planned(self.folder) if each.run not in {one.run for one in ended}]
        if left and seconds and not any(each.exit_code and each.seconds for each in ended):
            # Rank 0 did not live to tell, or was not asked to.
            ended.append(EndedRun(left[0], exit_code, seconds))
        for each in ended:
            self.note(each.run, each.exit_code, each.seconds)
        series.plan(self.folder, [])
        return ended

    def note(self, trial: str, exit_code: int, seconds: float) -> None:
        """Remember how an attempt ended."""
        attempts = [*self.outcomes(), EndedRun(trial, exit_code, seconds)]
        _write(self.folder / OUTCOMES, [asdict(each) for each in attempts])

    def _refuse_other_settings(self) -> None:
        before = _read(self.folder / ASKED, _ASKED, {})
        for trial in self.trials:
            old = before.get(trial.name)
            asked = trial.asked
            if old is None or old == asked or not self.is_finished(trial):
                continue
            name = next(n for n in {**old, **asked} if old.get(n) != asked.get(n))
            raise SettingError(
                f"cannot resume {self.folder / trial.name}: it ran with {_words(name, old)}, now requested: "
                f"{_words(name, asked)}. Use --fresh to discard all runs there, or move {self.folder} away.",
                "cannot-resume",
            )


def _words(name: str, settings: Mapping[str, str]) -> str:
    return f"{name}={settings[name]}" if name in settings else f"no {name}"


def _read[Content](path: Path, reader: TypeAdapter[Content], absent: Content) -> Content:
    """What a file holds; one that was cut off or damaged counts as absent."""
    try:
        return reader.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return absent


def _write(path: Path, content: object) -> None:
    folders.replace_file(path, json.dumps(content, indent=2) + "\n")
