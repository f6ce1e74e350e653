"""What a rank writes while it runs: one JSON object per line, units in the names, null for what was not measured.

`attempt` counts how often a run had begun before. What an attempt repeats, it records again.
"""

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from app.errors import DamagedError, LockstepError, WriteError
from app.machine.folders import unwritten
from app.machine.interfaces import Carried
from app.machine.say import shown
from app.records.bounds import (
    CLOSED,
    Count,
    CountOrNull,
    Elapsed,
    ElapsedOrNull,
    Number,
    NumberOrNull,
    Seconds,
    SecondsOrNull,
)

BLOCK_BYTES = 2**16
LONGEST_LINE_BYTES = 2**20  # a step with a bucket for each parameter takes a thirtieth of this


@dataclass(frozen=True)
class Message:
    """A message behind forward or backward, in seconds since the step began."""

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    bytes: Count
    ready_seconds: Seconds  # when this rank's data was ready
    end_seconds: Seconds


@dataclass(frozen=True)
class PhaseSeconds:
    """Seconds by phase. Where a mode hides some of its communication, forward and backward have its exposed part."""

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    data: Seconds
    forward: Seconds
    backward: Seconds
    optimiser: Seconds
    wait: SecondsOrNull = None  # null in a mode without a phase that waits
    sync: SecondsOrNull = None

    def of(self, *phases: str) -> float:
        """These phases together; one that the step does not have adds nothing."""
        return float(sum(getattr(self, phase) or 0.0 for phase in phases))


@dataclass(frozen=True)
class Step:
    """One training step of one rank."""

    kind: ClassVar[str] = "step"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    epoch: Count
    step: Count
    samples: Count
    loss: NumberOrNull  # this rank's mean over its part of the batch; null where it had no sample
    correct: Count
    learning_rate: Number
    gradient_norm: NumberOrNull  # of the averaged gradient before clipping; null where GRADIENT_CLIP is unset
    at_seconds: Elapsed  # when it began, on the run's clock
    seconds: Elapsed
    data_seconds: Elapsed
    forward_seconds: Seconds
    backward_seconds: Seconds
    wait_seconds: SecondsOrNull  # until the slowest peer had arrived
    sync_seconds: SecondsOrNull
    hidden_sync_seconds: SecondsOrNull  # behind backward; null in a mode that hides nothing
    exposed_sync_seconds: SecondsOrNull  # wait and sync in a mode that hides some; all ranks' records separate them
    optimiser_seconds: Elapsed
    bytes_sent: Count
    bytes_received: Count
    communication_seconds: Elapsed  # with any of those bytes in flight; for `ddp` mostly behind backward
    batch_norm_bytes_sent: CountOrNull  # null where BATCH_NORM=local: nothing to measure
    batch_norm_seconds: SecondsOrNull
    interface_bytes_sent: CountOrNull  # by the kernel, headers and all; null where the interface is shared
    interface_bytes_received: CountOrNull
    throttled_seconds: SecondsOrNull  # throttled by a CPU quota, summed over CPUs; null where the kernel does not say
    buckets: list[Message] | None  # of gradients that were averaged behind backward
    buffers: list[Message] | None  # of rank 0's buffers, before forward
    attempt: Count = 0
    cpu_seconds: PhaseSeconds | None = None  # of all threads; null in older records
    no_core_seconds: PhaseSeconds | None = None  # ready to run while others had the cores; null if the kernel is silent
    quota_seconds: PhaseSeconds | None = None  # ready to run while the CPU quota had run out
    wire_rounding_error: NumberOrNull = None  # of this rank's gradient, norm by norm; null where it was not measured


@dataclass(frozen=True)
class Usage:
    """What a rank used since its last record of this kind."""

    kind: ClassVar[str] = "usage"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    at_seconds: Elapsed  # the end of the interval, on the run's clock
    seconds: Elapsed
    cpu_user_percent: Number  # of one CPU
    cpu_system_percent: Number
    throttled_seconds: SecondsOrNull
    memory_bytes: Count  # resident, at the end
    network_sent_bytes: CountOrNull  # by the kernel; null where the interface is shared
    network_received_bytes: CountOrNull
    attempt: Count = 0
    machine_busy_percent: NumberOrNull = None  # CPU time of all programs on the machine, of one CPU


@dataclass(frozen=True)
class Clock:
    """How far a rank's clock of the run is ahead of rank 0's."""

    kind: ClassVar[str] = "clock"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    at_seconds: Elapsed
    ahead_seconds: Seconds  # negative: behind
    uncertainty_seconds: Seconds
    attempt: Count = 0
    # What came before the run's clock, on that clock: so negative. Only the first record of a rank has it; null in the
    # others, and in older records.
    process_at_seconds: SecondsOrNull = None  # when the rank's process began
    links_at_seconds: SecondsOrNull = None  # when the measurement of the links began
    links_seconds: SecondsOrNull = None


@dataclass(frozen=True)
class Evaluation:
    """A rank's result on the test set after an epoch."""

    kind: ClassVar[str] = "evaluation"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    epoch: Count
    loss: Number
    correct: Count
    samples: Count
    accuracy: Number
    attempt: Count = 0
    at_seconds: ElapsedOrNull = None  # when it began, on the run's clock; null in older records
    seconds: ElapsedOrNull = None


@dataclass(frozen=True)
class Checkpoint:
    """A state that a rank has saved."""

    kind: ClassVar[str] = "checkpoint"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    step: Count  # so many steps had been taken
    bytes: Count  # of its tensors
    at_seconds: Elapsed  # when it began, on the run's clock
    seconds: Elapsed
    attempt: Count = 0


@dataclass(frozen=True)
class Finished:
    """The last line of a rank that finished."""

    kind: ClassVar[str] = "finished"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    steps: Count
    seconds: Elapsed
    parameters_sha256: str
    restarts: Count
    attempt: Count = 0
    at_seconds: ElapsedOrNull = None  # when it finished, on the run's clock; null in older records
    interfaces: list[Carried] | None = None  # after the last step, as the manifest has them before the first
    peak_memory_bytes: CountOrNull = None  # resident; null in older records, and where the kernel does not say


@dataclass(frozen=True)
class Score:
    """How well a model did on some samples."""

    loss: float  # mean
    correct: int
    samples: int

    @property
    def accuracy(self) -> float:
        """From 0 to 1."""
        return self.correct / self.samples


def training_score(steps: Iterable[Step]) -> Score | None:
    """The score on these steps' samples, each as the model classified it at its step; None without a sample."""
    counted = [(step.loss, step.correct, step.samples) for step in steps if step.loss is not None]
    samples = sum(samples for _, _, samples in counted)
    if not samples:
        return None
    loss = sum(loss * samples for loss, _, samples in counted) / samples
    return Score(loss, sum(correct for _, correct, _ in counted), samples)


Record = Step | Usage | Clock | Evaluation | Checkpoint | Finished
KINDS: dict[str, type[Record]] = {each.kind: each for each in (Step, Usage, Clock, Evaluation, Checkpoint, Finished)}
READERS: dict[str, TypeAdapter[Record]] = {kind: TypeAdapter(each) for kind, each in KINDS.items()}
BEGINNING = re.compile(rb'\{"kind": "([a-z]+)", ')  # as `as_line` writes it


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
    """A rank that was killed may have left one, which is no record."""
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
    """The file of a rank's records."""
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


def as_line(record: Record) -> str:
    """A record as a line of its file."""
    return json.dumps({"kind": record.kind, **asdict(record)}, allow_nan=False) + "\n"


def parse(line: bytes | str) -> Record:
    """Parse one line; raises ValueError if it is none."""
    line = line.encode() if isinstance(line, str) else line
    if written := BEGINNING.match(line):
        kind, fields = written[1].decode(), b"{" + line[written.end() :]
    else:  # another program may order the fields otherwise
        given = json.loads(line)
        if not isinstance(given, dict):
            raise ValueError("no JSON object")
        kind, fields = str(given.pop("kind", None)), json.dumps(given).encode()
    if kind not in READERS:
        raise ValueError(f"its kind is {kind}, and not one of {', '.join(READERS)}")
    return READERS[kind].validate_json(fields, strict=True)
