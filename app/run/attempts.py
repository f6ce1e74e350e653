"""The attempts of a run: how often its ranks were started for it, how each attempt ended, and when its clock began.

The first attempt of a start fixes the run's name and its seats. Docker starts ranks that have failed again, and while
it does so nobody can count them.
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
NO_WORD = "it had no time to say why it ended"


@dataclass(frozen=True)
class Attempt:
    """One attempt: a line of the file."""

    attempt: int
    started_at: str
    seats: Sequence[str]  # by rank
    start: str = ""  # the word that `prepare` gave these containers, if it did
    ended: str = ""  # why, if it could say so
    exit_code: int = 0
    comes_again: bool = False  # whether another attempt would end in the same way


@dataclass(frozen=True)
class Begun:
    """The run that these very containers have begun before they were started again."""

    run: str
    seats: tuple[str, ...]
    attempts: Sequence[Attempt]  # those of this start

    @property
    def folder(self) -> Path:
        return folders.RESULTS / self.run


@dataclass(frozen=True)
class Beginning:
    """When the run's clock was zero, by rank 0's own clocks."""

    boot_id: str
    monotonic_seconds: float
    unix_seconds: float


def begun_before() -> Begun | None:
    """The run that this start has begun, if this is not the first time that its ranks run."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    if not ticket or not ticket.start:
        return None
    # Rank 0 opens a run of its own if the one that `prepare` chose has another number of ranks.
    since = folders.RUN_FILE.stat().st_mtime
    for path in folders.RESULTS.glob(f"*/{ATTEMPTS}"):
        if path.parent.is_symlink() or path.stat().st_mtime < since:
            continue  # `latest`, or a run of an earlier start
        if own := [each for each in _read(path.parent) if each.start == ticket.start]:
            return Begun(path.parent.name, tuple(own[0].seats), own)
    return None


def begin(run_folder: Path, seats: Sequence[str]) -> int:
    """Note that an attempt begins; its number."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    start = ticket.start if ticket else ""
    known = _lines(run_folder)
    attempt = Attempt(len(known), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), seats, start)
    _write(run_folder, [*known, json.dumps(asdict(attempt))])
    return attempt.attempt


def end(run_folder: Path, number: int, error: LockstepError) -> None:
    """Note how an attempt ended; nothing where that cannot be written."""
    why = str(error).partition("\n")[0]
    how = {"ended": why, "exit_code": error.exit_code, "comes_again": error.deterministic}
    with suppress(OSError, LookupError, ValueError, TypeError):
        known = _lines(run_folder)
        known[number] = json.dumps(json.loads(known[number]) | how)
        _write(run_folder, known)


def refuse_deterministic_failure(begun: Begun) -> None:
    """End as the attempt before this one, if any other would end so as well."""
    before = begun.attempts[-1]
    if before.comes_again:
        error = LockstepError(f"attempt {before.attempt} has ended, as any other would: {before.ended}")
        error.exit_code = before.exit_code
        raise error


def diagnosis(run_folder: Path) -> str:
    """How far each attempt came, and how it ended."""
    known = _read(run_folder)
    ends = list(_last_steps(run_folder, [each.attempt for each in known]))
    told = [
        f"  attempt {each.attempt}: {'no step' if end is None else f'to step {end}'}; {each.ended or NO_WORD}"
        for each, end in zip(known, ends, strict=True)
    ]
    if len(ends) > 1 and ends[-1] is not None and ends[-1] == ends[-2]:
        told.append(f"The last attempts ended after the same step, {ends[-1]}: what ended them comes again each time.")
    return "\n".join(told)


def _last_steps(run_folder: Path, attempts: Iterable[int]) -> Iterator[int | None]:
    ends: dict[int, int] = {}
    with suppress(DamagedError):  # or missing
        for record in journal.read(run_folder, 0):
            if isinstance(record, Step):
                ends[record.attempt] = record.step
    yield from map(ends.get, attempts)


def everyone_has_finished(run_folder: Path) -> bool:
    """Whether every rank has recorded its end, as far as this machine knows."""
    try:
        ranks = range(Manifest.read(run_folder).world_size)
    except (OSError, ValueError):
        return False
    return all(journal.ends_well(run_folder, rank) for rank in ranks)


def _read(run_folder: Path) -> list[Attempt]:
    """All attempts so far; a line that was damaged is left out."""
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
    """When the run's clock was zero, on this machine's monotonic clock; None if it has not begun."""
    with suppress(FileNotFoundError, DamagedError, TypeError):
        beginning = Beginning(**unseal(run_folder / CLOCK_FILE))
        if beginning.boot_id == boot_id():
            return beginning.monotonic_seconds
        return time.monotonic() - (time.time() - beginning.unix_seconds)
    return None


def keep_clock(run_folder: Path, began: float) -> None:
    """Note when it was zero, for later attempts."""
    beginning = Beginning(boot_id(), began, time.time() - (time.monotonic() - began))
    write_durably(run_folder / CLOCK_FILE, seal(asdict(beginning)))
