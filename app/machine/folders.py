"""The folders of the working directory that runs read and write."""

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from app.errors import DamagedError, LockstepError, SettingError
from app.machine.interrupt import CleanUps
from app.machine.say import Say

RESULTS = Path("results")  # a folder per run; `latest` points at the newest
DATA = Path("data")  # archives of real data sets, the user's or downloaded
PREPARED = Path("prepared")  # what `prepare` makes and the ranks only read
REPORT = "report.html"  # of a run, in its folder
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # never a path that leads out of results/
LONGEST_TURN_SECONDS = 3600.0  # a slow download takes half an hour
TURN_PAUSE_SECONDS = 0.2  # before a process looks again whether it is its turn
RUN_FILE = PREPARED / "run.json"  # how `prepare` hands the run's name to the ranks


@dataclass(frozen=True)
class RunTicket:
    """What `prepare` tells the ranks."""

    run: str  # its name
    goes_on: bool = False  # whether it has begun before
    neighbours: str = ""  # a sentence about other clusters that ran on this machine then
    start: str = ""  # a word for this start, by which ranks that are started again know it


def write_ticket(ticket: RunTicket) -> None:
    RUN_FILE.write_text(json.dumps(asdict(ticket)))


def run_ticket() -> RunTicket:
    if not RUN_FILE.is_file():
        raise SettingError("no run has been prepared here. Give the name of one.")
    try:
        ticket = json.loads(RUN_FILE.read_bytes())
        # Earlier versions wrote fewer fields.
        run, goes_on = ticket["run"], ticket.get("goes_on", False)
        neighbours, start = ticket.get("neighbours", ""), ticket.get("start", "")
        if not RUN_NAME.fullmatch(run) or not isinstance(goes_on, bool):
            raise ValueError
        if not isinstance(neighbours, str) or not isinstance(start, str):
            raise ValueError
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise DamagedError(f"{RUN_FILE} does not name a run: it was damaged. `prepare` writes it again.") from None
    return RunTicket(run, goes_on, neighbours, start)


def point_latest_at(run: str) -> None:
    """Let `latest` be this run, once it has begun to write records."""
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix=".") as scratch:
        link = Path(scratch, "latest")
        link.symlink_to(run)
        link.replace(RESULTS / "latest")


@contextmanager
def gone_if_empty(folder: Path, clean_ups: CleanUps, but_for: str) -> Iterator[None]:
    """Leave no folder behind that is empty but for one file, whatever ends the work inside."""

    def remove() -> None:
        with suppress(OSError):
            if {path.name for path in folder.iterdir()} <= {but_for}:
                (folder / but_for).unlink(missing_ok=True)
                folder.rmdir()

    clean_ups.append(remove)
    try:
        yield
    finally:
        remove()
        clean_ups.remove(remove)


def why_not_writable(folder: Path) -> str | None:
    """The reason why a folder cannot be written; None if it can."""
    error = _try_to_write(folder)
    return (error.strerror or str(error)) if error else None


def _try_to_write(folder: Path) -> OSError | None:
    """Write a block there, because a full disk can still have room for names, and take it away again."""
    try:
        folder.mkdir(exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder, prefix="."))
        try:
            (scratch / "block").write_bytes(bytes(4096))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        return error
    return None


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before any work is done."""
    if error := _try_to_write(folder):
        raise SettingError(unwritten(error, f"{folder}/"))


def unwritten(error: OSError, path: Path | str | None = None) -> str:
    """What could not be written, why, and what to do about it."""
    what = path or error.filename2 or error.filename or "a file"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            cure = "Free some space on that disk"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            cure = "Make it writable for the user who runs this"
        case errno.EFBIG:
            cure = "Raise the limit on the size of files"
        case _:
            cure = "Check that disk"
    return f"{what} cannot be written: {error.strerror}. {cure}."


def replace_file(path: Path, content: str | bytes) -> None:
    """Write or replace a file: whole, or not at all."""
    with file_to_replace(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def file_to_replace(path: Path) -> Iterator[BinaryIO]:
    """The same for a file that is written in parts."""
    half_written = path.with_name(f".{path.name}.new")
    try:
        with half_written.open("wb") as file:
            yield file
        half_written.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # a full disk is noticed where no name is known
        half_written.unlink(missing_ok=True)
        raise


@contextmanager
def alone_in(folder: Path, say: Say) -> Iterator[None]:
    """Work in a folder while no other process does; one that ends, however it ends, lets the next one in."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LONGEST_TURN_SECONDS
        waiting = False
        while not _take(lock):
            if not waiting:
                say(f"waiting for another process that works in {folder}/")
            waiting = True
            if time.monotonic() > deadline:
                raise LockstepError(
                    f"another process has worked in {folder}/ for {LONGEST_TURN_SECONDS / 60:.0f} minutes. "
                    "See whether it hangs; then start again."
                )
            time.sleep(TURN_PAUSE_SECONDS)
        yield
    finally:
        os.close(lock)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold a folder while the work inside goes on; whether nobody else held it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _take(lock)
    finally:
        os.close(lock)


def is_held(folder: Path) -> bool:
    with held(folder) as free:
        return not free


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def scratch_in(parent: Path, clean_ups: CleanUps) -> Iterator[Path]:
    """A new folder for unfinished work. It is removed afterwards, even if a signal ends the program."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix="."))

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    clean_ups.append(remove)
    try:
        yield folder
    finally:
        remove()
        clean_ups.remove(remove)
