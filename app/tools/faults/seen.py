"""The observations of a trial: when and how each rank exited, its output, and the state of the run's folder."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from app.analysis.run import Run
from app.analysis.run_records import RankRecords
from app.errors import LockstepError
from app.machine import folders
from app.records import journal, manifest
from app.records.lines import Step
from app.records.summary import FILE as SUMMARY
from app.records.summary import is_complete

FACTS = "seen"  # the host's notes: on each line a time, a keyword and its values
CONTAINERS = "containers.json"  # from docker inspect, by rank


@dataclass(frozen=True)
class RankSeen:
    """The observed end of one rank."""

    rank: int
    exit_code: int
    started_at: float  # times are the engine's, in seconds since 1970
    ended_at: float | None  # None if it was still running at the end of the wait
    log: str
    out_of_memory: bool = False
    restarts: int = 0  # number of restarts by Docker


@dataclass(frozen=True)
class Left:
    """The state of the run's folder after a trial."""

    begun: bool = False  # whether the manifest was written
    unreadable: str = ""  # why the records cannot be read; empty if they can
    complete: bool | None = None  # as recorded in the summary; None without one
    report: bool = False
    ranks: Sequence[RankRecords] = ()
    recoveries: Sequence[float] = ()  # seconds of each attempt but the first until its first step

    @property
    def finished(self) -> set[int]:
        """The ranks that recorded their end."""
        return {each.rank for each in self.ranks if each.finished}


@dataclass(frozen=True)
class Observations:
    """All observations of a trial on which the verdict depends."""

    ranks: tuple[RankSeen, ...]
    left: Left = field(default_factory=Left)
    fault_at: float | None = None  # None if the run never reached the moment of the fault
    woken_at: float | None = None  # when paused ranks resumed
    missed: tuple[str, ...] = ()  # what the host could not do, as sentences

    @property
    def all_finished(self) -> bool:
        """Whether every rank recorded that it finished."""
        return bool(self.ranks) and self.left.finished == {each.rank for each in self.ranks}

    @property
    def over(self) -> bool:
        """Whether the run finished on every rank with exit code 0, as without a fault."""
        ended = all(each.exit_code == 0 and each.ended_at is not None for each in self.ranks)
        return ended and self.all_finished and self.left.complete is True


def read(notes: Path, run_folder: Path) -> Observations:
    """Read the host's notes and logs of a trial, and the run's folder."""
    lines = [line.split(maxsplit=2) for line in (notes / FACTS).read_text().splitlines()]
    # In some locales the shell writes a decimal comma.
    times = {word: float(time.replace(",", ".")) for time, word, *_ in lines}
    return Observations(
        ranks=tuple(_ranks(notes)),
        left=left_in(run_folder),
        fault_at=times.get("fault"),
        woken_at=times.get("woken"),
        missed=tuple(rest[0] for _, word, *rest in lines if word == "missed"),
    )


def _ranks(notes: Path) -> Iterator[RankSeen]:
    for rank, container in enumerate(json.loads((notes / CONTAINERS).read_text())):
        state = container["State"]
        started, ended = (datetime.fromisoformat(state[name]).timestamp() for name in ("StartedAt", "FinishedAt"))
        log = (notes / f"rank-{rank}.log").read_text(errors="replace")
        ended_at = None if state["Running"] else ended
        yield RankSeen(rank, state["ExitCode"], started, ended_at, log, state["OOMKilled"], container["RestartCount"])


def left_in(run_folder: Path) -> Left:
    """The state of a run's folder."""
    if not (run_folder / manifest.FILE).is_file():
        return Left()
    try:
        run = Run(run_folder)
        run.summary  # noqa: B018  # computed from the records on first access
        recoveries = [*_recoveries(run_folder)]
    except (LockstepError, OSError, ValueError) as error:
        return Left(begun=True, unreadable=str(error))
    told = is_complete(run_folder) if (run_folder / SUMMARY).is_file() else None
    return Left(True, "", told, (run_folder / folders.REPORT).is_file(), run.ranks, recoveries)


def _recoveries(run_folder: Path) -> Iterator[float]:
    """Seconds from the end of an attempt's last step to the next attempt's first one, on rank 0."""
    steps = [record for record in journal.read(run_folder, 0) if isinstance(record, Step)]
    for before, after in pairwise(steps):
        if before.attempt != after.attempt:
            yield after.at_seconds - (before.at_seconds + before.seconds)
