"""What was seen of a trial: when each rank ended and how, what it printed, and what the run left behind."""

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

FACTS = "seen"  # the host's notes: a word and what belongs to it on each line


@dataclass(frozen=True)
class RankSeen:
    """One rank's end."""

    rank: int
    exit_code: int
    started_at: float  # all moments are the engine's, in seconds
    ended_at: float | None  # None: it was still there when the patience was over
    log: str
    out_of_memory: bool = False
    restarts: int = 0  # how often Docker has started it again


@dataclass(frozen=True)
class Left:
    """What the run left in its folder."""

    begun: bool = False  # whether it got as far as its manifest
    unreadable: str = ""  # why its records cannot be read, if so
    complete: bool | None = None  # what its summary says; None where there is none
    report: bool = False
    finished: frozenset[int] = frozenset()  # the ranks that recorded their end


@dataclass(frozen=True)
class Observations:
    """Everything that the judge needs."""

    ranks: tuple[RankSeen, ...]
    left: Left = field(default_factory=Left)
    fault_at: float | None = None  # None: its moment did not come
    woken_at: float | None = None  # when paused ranks went on
    stopped_at: float | None = None  # when a run that had gone on was told to stop
    missed: tuple[str, ...] = ()  # faults that could not be injected
    stuck: bool = False  # the run did not go on

    @property
    def all_finished(self) -> bool:
        """Whether every rank recorded its end: the run was over."""
        return bool(self.ranks) and self.left.finished == {each.rank for each in self.ranks}

    @property
    def over(self) -> bool:
        """Whether the run ended as if nothing had happened."""
        ended = all(each.exit_code == 0 and each.ended_at is not None for each in self.ranks)
        return ended and self.all_finished and self.left.complete is True


def read(notes: Path, run_folder: Path) -> Observations:
    """Read the notes and logs that the host has made of a trial, and the run itself."""
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
    """Seconds since 1970, as the shell writes them: with a comma where the language has one."""
    return float(facts[word][0][0].replace(",", ".")) if word in facts else None


def _left(run_folder: Path) -> Left:
    if not (run_folder / manifest.FILE).is_file():
        return Left()
    try:
        run = Run(run_folder)
        finished = frozenset(each.rank for each in run.ranks if each.finished)
        run.summary  # noqa: B018  # made from the records when it is first asked for
    except (LockstepError, OSError, ValueError) as error:
        return Left(begun=True, unreadable=str(error))
    told = is_complete(run_folder) if (run_folder / SUMMARY).is_file() else None
    return Left(True, "", told, (run_folder / folders.REPORT).is_file(), finished)
