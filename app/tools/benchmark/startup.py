"""`benchmark startup`: the seconds from the command to each stage of a start, for several numbers of ranks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Self

from app.errors import DamagedError
from app.machine.folders import RESULTS
from app.machine.say import Say
from app.records import journal
from app.records.lines import Clock, Step
from app.tools.benchmark import results
from app.tools.benchmark.choice import Noted

STAGES = {
    "prepared": "prepared",
    "process": "first process",
    "joined": "joined",
    "first_step": "first step",
    "end": "end",
}


@dataclass(frozen=True)
class Start:
    """Seconds from the command until the end of each stage."""

    ranks: int
    prepared: float
    process: float  # the first rank's
    joined: float
    first_step: float
    end: float

    @classmethod
    def of(cls, noted: Noted) -> Self:
        """The records know how long the first process was there before rank 0's first step ended."""
        folder = RESULTS / noted.folder
        began = min(_process_at(folder, rank) for rank in range(noted.ranks))
        step = next((record for record in journal.read(folder, 0) if isinstance(record, Step)), None)
        if step is None:
            raise DamagedError(f"{folder} has no step of rank 0. Run scripts/benchmark startup again.")
        process = noted.first_step - (step.at_seconds + step.seconds - began)
        return cls(noted.ranks, noted.prepared, process, noted.joined, noted.first_step, noted.end)


def tell(noted: Sequence[Noted], say: Say) -> None:
    """Print the medians by number of ranks, and what each further rank takes."""
    starts = [Start.of(each) for each in noted]
    by_ranks = {number: [each for each in starts if each.ranks == number] for number in sorted({*_ranks(starts)})}
    rounds = min(map(len, by_ranks.values()))
    say(f"\nseconds from the command to the end of each stage, medians of {rounds} starts")
    say("ranks" + "".join(f"{heading:>15}" for heading in STAGES.values()) + f"{'per extra rank':>17}")
    before: tuple[int, float] | None = None
    for number, same in by_ranks.items():
        medians = {stage: median(getattr(each, stage) for each in same) for stage in STAGES}
        further = f"{(medians['first_step'] - before[1]) / (number - before[0]):>17.2f}" if before else f"{'-':>17}"
        say(f"{number:>5}" + "".join(f"{seconds:>15.2f}" for seconds in medians.values()) + further)
        before = number, medians["first_step"]
    say("Per extra rank: increase of the time to the first step over the line above, per added rank.")
    results.write("startup", {"starts": [asdict(each) for each in starts]}, say)


def _ranks(starts: Sequence[Start]) -> list[int]:
    return [each.ranks for each in starts]


def _process_at(folder: Path, rank: int) -> float:
    clock = next((record for record in journal.read(folder, rank) if isinstance(record, Clock)), None)
    if clock is None or clock.process_at_seconds is None:
        raise DamagedError(f"{folder} has no start time of rank {rank}. Run scripts/benchmark startup again.")
    return clock.process_at_seconds
