"""The file of a rank's records: written one complete line at a time, read from either end."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from pydantic import ValidationError

from app.errors import DamagedError, LockstepError, WriteError
from app.machine.folders import unwritten
from app.machine.say import shown
from app.records.lines import Checkpoint, Evaluation, Finished, Record, Step, as_line, parse

BLOCK_BYTES = 2**16
LONGEST_LINE_BYTES = 2**20  # a step with one bucket per parameter is a thirtieth of this


class Recorder:
    """Writes a rank's records, each complete and unbuffered, so that an abrupt end loses none.

    Later attempts append to the records of earlier ones.
    """

    def __init__(self, run_folder: Path, rank: int, attempt: int = 0) -> None:
        path = path_of(run_folder, rank)
        try:
            if attempt:
                _remove_incomplete_line(path)
            self._file = path.open("ab" if attempt else "xb", buffering=0)
            self._attempt = attempt
            self._lock = threading.Lock()  # another thread writes usage records
            self._rank, self._path = rank, path
            self.milestones = 0  # records written that show progress
            self._names = os.fstat(self._file.fileno()).st_nlink  # some file systems report 0
            self._error: WriteError | None = None
        except FileExistsError:
            raise LockstepError(
                f"rank {rank}: {path} already exists, and a run never overwrites another. "
                "Run `python -m app prepare` before each run, or choose another RUN_NAME.",
                "run-exists",
            ) from None

    def write(self, record: Record) -> None:
        """Append one line. After a failed write, this raises the same error again."""
        rest = as_line(replace(record, attempt=self._attempt) if self._attempt else record).encode()
        with self._lock:
            if self._error is None and self._was_removed():
                self._error = WriteError(
                    f"rank {self._rank}: {self._path} was removed while the run wrote to it. Start the run again."
                )
            if self._error:
                raise self._error
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
                self.milestones += isinstance(record, Step | Evaluation | Checkpoint)
            except OSError as error:
                self._error = WriteError(f"rank {self._rank}: {unwritten(error, self._path)}")
                raise self._error from None

    def _was_removed(self) -> bool:
        """Whether the file was removed, after which it would still accept records."""
        return os.fstat(self._file.fileno()).st_nlink == 0 < self._names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _remove_incomplete_line(path: Path) -> None:
    """Truncate the file to complete lines, because a killed rank may have left part of one."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        whole = file.seek(0, os.SEEK_END)
        for begin, block in _blocks_backwards(file):
            whole = begin + block.rfind(b"\n") + 1
            if b"\n" in block:
                break
        file.truncate(whole)


def _blocks_backwards(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file with their offsets, from the end to the beginning, read only as needed."""
    begin = file.seek(0, os.SEEK_END)
    while begin:
        end, begin = begin, max(0, begin - BLOCK_BYTES)
        file.seek(begin)
        yield begin, file.read(end - begin)


def path_of(run_folder: Path, rank: int) -> Path:
    return run_folder / f"rank-{rank}.jsonl"


def read(run_folder: Path, rank: int) -> Iterator[Record]:
    """A rank's records, without an incomplete last line."""
    path = path_of(run_folder, rank)
    with _opened(path) as lines:
        number = 0
        while line := lines.readline(LONGEST_LINE_BYTES):
            number += 1
            whole = line.endswith(b"\n")
            if not whole and len(line) < LONGEST_LINE_BYTES:
                return
            try:
                if not whole:
                    raise ValueError(f"longer than {LONGEST_LINE_BYTES} bytes")
                yield parse(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(f"{path}, line {number}", error) from None


def read_backwards(run_folder: Path, rank: int) -> Iterator[Record]:
    """A rank's records from the last to the first. Reading the newest ones does not read the whole file."""
    path = path_of(run_folder, rank)
    with _opened(path) as file:
        lines = _lines_backwards(file)
        next(lines)  # the rest after the last line break: empty, or an incomplete line
        for line in lines:
            try:
                yield parse(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(f"a line of {path}", error) from None


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    rest = b""
    for _, block in _blocks_backwards(file):
        rest, *lines = (block + rest).split(b"\n")
        yield from reversed(lines)
        if len(rest) > LONGEST_LINE_BYTES:
            break
    yield rest


def _damaged(where: str, error: ValueError | RecursionError) -> DamagedError:
    return DamagedError(
        f"cannot parse {where}: {_reason(error)}. The file is damaged, or "
        "another version of Lockstep made the run: only that version can read it."
    )


def ends_well(run_folder: Path, rank: int) -> bool:
    """Whether a rank's last record is complete and of the kind `finished`."""
    try:
        with path_of(run_folder, rank).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE_BYTES))
            *_, last, cut_off = b"\n", *file.read().split(b"\n")
            return not cut_off and isinstance(parse(last), Finished)
    except (OSError, ValueError, RecursionError):
        return False


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DamagedError(
            f"cannot read {path}: {error.strerror}. Make it readable for the owner of results/.", "cannot-read"
        ) from None


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return shown(f"{place}: {first['msg']}" if place else first["msg"])
    return shown(str(error))
