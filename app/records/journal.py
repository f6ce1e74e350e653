"""The file of a rank's records: written a whole line at a time, read from either end."""

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
LONGEST_LINE_BYTES = 2**20  # a step with a bucket for each parameter takes a thirtieth of this


class Recorder:
    """Writes a rank's records, each one whole and at once: an end without warning loses none.

    Later attempts write behind the earlier ones.
    """

    def __init__(self, run_folder: Path, rank: int, attempt: int = 0) -> None:
        path = path_of(run_folder, rank)
        try:
            if attempt:
                _cut_off_half_a_line(path)
            self._file = path.open("ab" if attempt else "xb", buffering=0)
            self._attempt = attempt
            self._lock = threading.Lock()  # usage records come from another thread
            self._rank, self._path = rank, path
            self.milestones = 0  # records so far that show progress
            self._names = os.fstat(self._file.fileno()).st_nlink  # some file systems do not count them
            self._error: WriteError | None = None
        except FileExistsError:
            raise LockstepError(
                f"rank {rank}: {path} exists already, and a run never overwrites another. "
                "Run `python -m app prepare` before each run, or choose another RUN_NAME."
            ) from None

    def write(self, record: Record) -> None:
        """Append one line; nothing follows one that did not fit."""
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
        """Without a name the file still takes records, which nobody can ever read."""
        return os.fstat(self._file.fileno()).st_nlink == 0 < self._names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _cut_off_half_a_line(path: Path) -> None:
    """A killed rank may have left an incomplete last line, which cannot be parsed."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        whole = file.seek(0, os.SEEK_END)
        for begin, block in _blocks_backwards(file):
            whole = begin + block.rfind(b"\n") + 1
            if b"\n" in block:
                break
        file.truncate(whole)


def _blocks_backwards(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """A file from its end to its beginning, each block with its place. Who stops early has not read a long file."""
    begin = file.seek(0, os.SEEK_END)
    while begin:
        end, begin = begin, max(0, begin - BLOCK_BYTES)
        file.seek(begin)
        yield begin, file.read(end - begin)


def path_of(run_folder: Path, rank: int) -> Path:
    return run_folder / f"rank-{rank}.jsonl"


def read(run_folder: Path, rank: int) -> Iterator[Record]:
    """A rank's records, without a last line that was cut off when the rank ended."""
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
                    raise ValueError(f"it is longer than {LONGEST_LINE_BYTES} bytes")
                yield parse(line)
            except (ValueError, RecursionError) as error:
                raise _damaged(f"{path}, line {number}", error) from None


def read_backwards(run_folder: Path, rank: int) -> Iterator[Record]:
    """The same from the last one to the first, for those who need only the newest, however long the run."""
    path = path_of(run_folder, rank)
    with _opened(path) as file:
        lines = _lines_backwards(file)
        next(lines)  # what stands behind the last line break: nothing, or a line that was cut off
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
        f"{where} is not a record of this version ({_reason(error)}). It was damaged, or "
        "another version of Lockstep made the run: only that version reads it."
    )


def ends_well(run_folder: Path, rank: int) -> bool:
    """Whether a rank's last record tells that it has come to its end."""
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
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from None


def _reason(error: ValueError | RecursionError) -> str:
    """What is wrong with a line, in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return shown(f"{place}: {first['msg']}" if place else first["msg"])
    return shown(str(error))
