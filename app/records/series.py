"""Runs that the same ranks make one after another: those that are planned, and how each ended."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.machine.folders import replace_file
from app.records.bounds import Number, RunName

PLANNED, ENDED = "series.json", "series-ended.jsonl"  # in the folder of the runs


@dataclass(frozen=True)
class PlannedRun:
    """One of the runs."""

    run: RunName
    title: str  # printed when it starts
    settings: dict[str, str]


@dataclass(frozen=True)
class EndedRun:
    """How one of them ended on rank 0."""

    run: RunName
    exit_code: int
    seconds: Number


_PLANNED, _ENDED = TypeAdapter(list[PlannedRun]), TypeAdapter(EndedRun)


def log_of(folder: Path, run: str) -> Path:
    """What a run prints, as rank 0 prints it, and after a failure as every rank does."""
    return folder / f"{run}.log"


def plan(folder: Path, runs: Sequence[PlannedRun]) -> None:
    """Start a new series: write its runs, and forget how those of the previous series ended."""
    (folder / ENDED).unlink(missing_ok=True)
    replace_file(folder / PLANNED, json.dumps([asdict(each) for each in runs]) + "\n")


def planned(folder: Path) -> list[PlannedRun]:
    """The runs of the series, in order. A missing or damaged file counts as an empty series."""
    try:
        return _PLANNED.validate_json((folder / PLANNED).read_bytes())
    except (FileNotFoundError, ValidationError):
        return []


def end(folder: Path, run: EndedRun) -> None:
    """Append how a run ended."""
    with (folder / ENDED).open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def ended(folder: Path) -> list[EndedRun]:
    """The runs that have ended, by the lines that are complete."""
    found = []
    with suppress(FileNotFoundError):
        for line in (folder / ENDED).read_bytes().splitlines():
            with suppress(ValidationError):
                found.append(_ENDED.validate_json(line))
    return found
