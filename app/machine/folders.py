"""The folders in the working directory that runs read and write."""

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

RESULTS = Path("results")  # a folder per run; `latest` links to the newest
DATA = Path("data")  # archives and pictures, provided by the user or downloaded
PREPARED = Path("prepared")  # written by `prepare`, only read by ranks
REPORT = "report.html"  # of a run, in its folder
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # never a path outside results/
LONGEST_LOCK_SECONDS = 3600.0  # a slow download takes half an hour
LOCK_PAUSE_SECONDS = 0.2  # between two attempts to lock a folder
RUN_FILE = PREPARED / "run.json"  # passes the run's name from `prepare` to the ranks


@dataclass(frozen=True)
class RunTicket:
    """The data that `prepare` passes to the ranks."""

    run: str  # name of the run
    goes_on: bool = False  # whether the run has started before
    neighbours: str = ""  # a warning about other clusters on this machine
    start: str = ""  # an identifier of this start, by which restarted ranks recognise it


def write_ticket(ticket: RunTicket) -> None:
    RUN_FILE.write_text(json.dumps(asdict(ticket)))


def run_ticket() -> RunTicket:
    if not RUN_FILE.is_file():
        raise SettingError("no run has been prepared here. Give a run's name.", "missing-argument")
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
        raise DamagedError(f"cannot parse {RUN_FILE}. Run `python -m app prepare` to write it again.") from None
    return RunTicket(run, goes_on, neighbours, start)


def point_latest_at(run: str) -> None:
    """Link `latest` to this run atomically, so that it always leads to a run."""
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix=".") as scratch:
        link = Path(scratch, "latest")
        link.symlink_to(run)
        link.replace(RESULTS / "latest")


@contextmanager
def gone_if_empty(folder: Path, clean_ups: CleanUps, but_for: str) -> Iterator[None]:
    """Remove the folder at the end of the body, however it ends, if it has no file other than `but_for`."""

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


def data_locked(error: OSError) -> SettingError:
    return SettingError(
        f"cannot read {DATA}/: {error.strerror}. Make it accessible to the owner of results/ (user ID {os.geteuid()}). "
        "If DATA_FOLDER is set, data/ means that folder.",
        "no-permission",
    )


def why_not_writable(folder: Path) -> str | None:
    """The reason why a folder is not writable; None if it is."""
    error = _try_to_write(folder)
    return (error.strerror or str(error)) if error else None


def _try_to_write(folder: Path) -> OSError | None:
    """Write a block and remove it: creating a file is not enough, because it can succeed on a full disk."""
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
    """Refuse a folder that is not writable, before any work is done."""
    if error := _try_to_write(folder):
        raise SettingError(unwritten(error, f"{folder}/"), "cannot-write")


def unwritten(error: OSError, path: Path | str | None = None) -> str:
    """The message for a failed write: the path, the cause and the remedy."""
    target = path or error.filename2 or error.filename or "a file"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            remedy = "Free some space on that disk"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            remedy = "Make it writable for the user who runs this"
        case errno.EFBIG:
            remedy = "Raise the file size limit"
        case _:
            remedy = "Check that disk"
    return f"cannot write {target}: {error.strerror}. {remedy}."


def replace_file(path: Path, content: str | bytes) -> None:
    """Write or replace a file atomically."""
    with file_to_replace(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def file_to_replace(path: Path) -> Iterator[BinaryIO]:
    """Write or replace a file atomically, in parts."""
    half_written = path.with_name(f".{path.name}.new")
    try:
        with half_written.open("wb") as file:
            yield file
        half_written.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # a failed write does not contain the path
        half_written.unlink(missing_ok=True)
        raise


@contextmanager
def alone_in(folder: Path, say: Say) -> Iterator[None]:
    """Lock a folder, waiting for other processes. The kernel releases the lock of a process that exits."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LONGEST_LOCK_SECONDS
        waiting = False
        while not _take(lock):
            if not waiting:
                say(f"waiting for another process that is using {folder}/")
            waiting = True
            if time.monotonic() > deadline:
                raise LockstepError(
                    f"another process has used {folder}/ for {LONGEST_LOCK_SECONDS / 60:.0f} minutes. "
                    "Check whether it hangs, then start again.",
                    "run-in-progress",
                )
            time.sleep(LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(lock)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Try to lock a folder for the body; yields whether the lock was free."""
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
    """A temporary folder, removed afterwards, even if a signal ends the program."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix="."))

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    clean_ups.append(remove)
    try:
        yield folder
    finally:
        remove()
        clean_ups.remove(remove)
