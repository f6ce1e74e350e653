"""The attempts of a run: when each started and how it ended, and the zero of the run's clock.

The first attempt of a start fixes the run's name and its seats: while Docker restarts failed ranks, their number cannot
be determined.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.errors import DamagedError, LockstepError
from app.machine import folders
from app.machine.cpus import boot_id
from app.machine.durable import seal, unseal, write_durably
from app.records import journal
from app.records.lines import Step
from app.records.manifest import Manifest
from app.records.places import ATTEMPTS

CLOCK_FILE = "clock.json"
NOT_RECORDED = "cause not recorded"


@dataclass(frozen=True)
class Attempt:
    """One attempt of a run, stored as a line of attempts.jsonl."""

    attempt: int
    started_at: str
    seats: Sequence[str]  # by rank
    start: str = ""  # the token that `prepare` gave these containers, if any
    ended: str = ""  # the cause; empty until it ends, or if it was killed
    exit_code: int = 0
    comes_again: bool = False  # whether the failure is deterministic


@dataclass(frozen=True)
class StartedRun:
    """The run that these containers started before Docker restarted them."""

    run: str
    seats: tuple[str, ...]
    attempts: Sequence[Attempt]  # of this start only

    @property
    def folder(self) -> Path:
        return folders.RESULTS / self.run


@dataclass(frozen=True)
class ClockZero:
    """The zero of the run's clock, on rank 0's monotonic clock and on its wall clock."""

    boot_id: str
    monotonic_seconds: float
    unix_seconds: float


def started_run() -> StartedRun | None:
    """The run of an earlier attempt of this start; None in the first attempt."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    if not ticket or not ticket.start:
        return None
    # Not always the one that `prepare` chose: rank 0 opens another if that one has a different number of ranks.
    since = folders.RUN_FILE.stat().st_mtime
    for path in folders.RESULTS.glob(f"*/{ATTEMPTS}"):
        if path.parent.is_symlink() or path.stat().st_mtime < since:
            continue  # `latest`, or a run of an earlier start
        if own := [each for each in _read(path.parent) if each.start == ticket.start]:
            return StartedRun(path.parent.name, tuple(own[0].seats), own)
    return None


def begin(run_folder: Path, seats: Sequence[str]) -> int:
    """Record the start of an attempt, and return its number."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    start = ticket.start if ticket else ""
    known = _lines(run_folder)
    attempt = Attempt(len(known), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), seats, start)
    _write(run_folder, [*known, json.dumps(asdict(attempt))])
    return attempt.attempt


def end(run_folder: Path, number: int, error: LockstepError) -> None:
    """Record how an attempt ended. A failure to do so is ignored, because the error itself matters more."""
    cause = str(error).partition("\n")[0]
    ending = {"ended": cause, "exit_code": error.exit_code, "comes_again": error.deterministic}
    with suppress(OSError, LookupError, ValueError, TypeError):
        known = _lines(run_folder)
        known[number] = json.dumps(json.loads(known[number]) | ending)
        _write(run_folder, known)


def refuse_deterministic_failure(run: StartedRun) -> None:
    """End with the exit code of the previous attempt, if its failure was deterministic."""
    before = run.attempts[-1]
    if before.comes_again:
        error = LockstepError(f"attempt {before.attempt} failed deterministically: {before.ended}", "not-retryable")
        error.exit_code = before.exit_code
        raise error


def diagnosis(run_folder: Path) -> str:
    """A line for each attempt: its last step, and the cause of its end."""
    known = _read(run_folder)
    ends = list(_last_steps(run_folder, [each.attempt for each in known]))
    lines = [
        f"  attempt {each.attempt}: {'no step' if end is None else f'last step {end}'}; {each.ended or NOT_RECORDED}"
        for each, end in zip(known, ends, strict=True)
    ]
    if len(ends) > 1 and ends[-1] is not None and ends[-1] == ends[-2]:
        lines.append(f"The last two attempts ended after step {ends[-1]}: the failure is probably deterministic.")
    return "\n".join(lines)


def _last_steps(run_folder: Path, attempts: Iterable[int]) -> Iterator[int | None]:
    ends: dict[int, int] = {}
    with suppress(DamagedError):  # also if the records are missing
        for record in journal.read(run_folder, 0):
            if isinstance(record, Step):
                ends[record.attempt] = record.step
    yield from map(ends.get, attempts)


def everyone_has_finished(run_folder: Path) -> bool:
    """Whether this machine's records show that every rank has finished."""
    try:
        ranks = range(Manifest.read(run_folder).world_size)
    except (OSError, ValueError):
        return False
    return all(journal.ends_well(run_folder, rank) for rank in ranks)


def _read(run_folder: Path) -> list[Attempt]:
    """All attempts that were recorded, without damaged lines."""
    found = []
    for line in _lines(run_folder):
        with suppress(ValueError, TypeError):
            found.append(Attempt(**json.loads(line)))
    return found


def _lines(run_folder: Path) -> list[str]:
    path = run_folder / ATTEMPTS
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def _write(run_folder: Path, content: Sequence[str]) -> None:
    write_durably(run_folder / ATTEMPTS, "".join(f"{line}\n" for line in content).encode())


def clock_began(run_folder: Path) -> float | None:
    """The zero of the run's clock on this machine's monotonic clock; None if it was never set."""
    with suppress(FileNotFoundError, DamagedError, TypeError):
        zero = ClockZero(**unseal(run_folder / CLOCK_FILE))
        if zero.boot_id == boot_id():
            return zero.monotonic_seconds
        return time.monotonic() - (time.time() - zero.unix_seconds)
    return None


def keep_clock(run_folder: Path, began: float) -> None:
    """Save the zero of the run's clock for later attempts."""
    zero = ClockZero(boot_id(), began, time.time() - (time.monotonic() - began))
    write_durably(run_folder / CLOCK_FILE, seal(asdict(zero)))
