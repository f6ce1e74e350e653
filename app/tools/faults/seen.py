"""The observations of a trial: when and how each rank exited, its output, and the state of the run's folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from app.analysis.run import Run
from app.errors import LockstepError
from app.machine import folders
from app.records import manifest
from app.records.summary import FILE as SUMMARY
from app.records.summary import is_complete

FACTS = "seen"  # the host's notes: on each line a keyword and its values


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
    finished: frozenset[int] = frozenset()  # the ranks that recorded their end


@dataclass(frozen=True)
class Observations:
    """All observations of a trial on which the verdict depends."""

    ranks: tuple[RankSeen, ...]
    left: Left = field(default_factory=Left)
    fault_at: float | None = None  # None if the run never reached the moment of the fault
    woken_at: float | None = None  # when paused ranks resumed
    stopped_at: float | None = None  # when a run that had continued was sent SIGTERM
    missed: tuple[str, ...] = ()  # faults that could not be injected
    stuck: bool = False  # whether the run took no further steps

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
    facts: dict[str, list[list[str]]] = {}
    for line in (notes / FACTS).read_text().splitlines():
        word, *rest = line.split()
        facts.setdefault(word, []).append(rest)
    left = {int(rank) for rank, *_ in facts.get("left", [])}
    return Observations(
        ranks=tuple(_ranks(facts.get("rank", []), left, notes)),
        left=_left(run_folder),
        fault_at=_moment(facts, "fault"),
        woken_at=_moment(facts, "woken"),
        stopped_at=_moment(facts, "stopped"),
        missed=tuple(" ".join(each) for each in facts.get("missed", [])),
        stuck="stuck" in facts,
    )


def _ranks(states: Sequence[Sequence[str]], left: set[int], notes: Path) -> Iterator[RankSeen]:
    for number, code, started, ended, out_of_memory, restarts in states:
        rank = int(number)
        yield RankSeen(
            rank,
            int(code),
            datetime.fromisoformat(started).timestamp(),
            None if rank in left else datetime.fromisoformat(ended).timestamp(),
            (notes / f"rank-{rank}.log").read_text(errors="replace"),
            out_of_memory == "true",
            int(restarts),
        )


def _moment(facts: Mapping[str, Sequence[Sequence[str]]], word: str) -> float | None:
    """Seconds since 1970. In some locales the shell writes a decimal comma."""
    return float(facts[word][0][0].replace(",", ".")) if word in facts else None


def _left(run_folder: Path) -> Left:
    if not (run_folder / manifest.FILE).is_file():
        return Left()
    try:
        run = Run(run_folder)
        finished = frozenset(each.rank for each in run.ranks if each.finished)
        run.summary  # noqa: B018  # computed from the records on first access
    except (LockstepError, OSError, ValueError) as error:
        return Left(begun=True, unreadable=str(error))
    told = is_complete(run_folder) if (run_folder / SUMMARY).is_file() else None
    return Left(True, "", told, (run_folder / folders.REPORT).is_file(), finished)
