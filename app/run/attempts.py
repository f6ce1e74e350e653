"""The attempts of a run: how often its ranks have come together, and when its clock began."""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.errors import DamagedError
from app.machine.cpus import boot_id
from app.machine.durable import seal, unseal, write_durably

FILE, CLOCK_FILE = "attempts.jsonl", "clock.json"


@dataclass(frozen=True)
class Beginning:
    """When the run's clock was zero, by rank 0's own clocks."""

    boot_id: str
    monotonic_seconds: float
    unix_seconds: float


def next_number(run_folder: Path) -> int:
    """How many attempts there have been."""
    path = run_folder / FILE
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def begin(run_folder: Path, number: int) -> None:
    """Note that an attempt begins."""
    path = run_folder / FILE
    known = path.read_bytes() if path.is_file() else b""
    line = {"attempt": number, "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    write_durably(path, known + json.dumps(line).encode() + b"\n")


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
