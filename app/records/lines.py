"""What a rank writes while it runs: one JSON object per line, units in the names, null for what was not measured.

`attempt` counts how often a run began: 0 until runs can be resumed.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from app.errors import LockstepError


@dataclass(frozen=True)
class Message:
    """A message behind forward or backward, in seconds since the step began."""

    bytes: int
    ready_seconds: float  # when this rank's data was ready
    end_seconds: float


@dataclass(frozen=True)
class PhaseSeconds:
    """Seconds by phase. Where a mode hides some of its communication, forward and backward have its exposed part."""

    data: float
    forward: float
    backward: float
    optimiser: float
    wait: float | None = None  # null in a mode without a phase that waits
    sync: float | None = None

    def of(self, *phases: str) -> float:
        """These phases together; one that the step does not have adds nothing."""
        return float(sum(getattr(self, phase) or 0.0 for phase in phases))


@dataclass(frozen=True)
class Step:
    """One training step of one rank."""

    kind: ClassVar[str] = "step"
    rank: int
    epoch: int
    step: int
    samples: int
    loss: float | None  # this rank's mean over its part of the batch; null where it had no sample
    correct: int
    learning_rate: float
    gradient_norm: float | None  # of the averaged gradient before clipping; null where GRADIENT_CLIP is unset
    at_seconds: float  # when it began, on the run's clock
    seconds: float
    data_seconds: float
    forward_seconds: float
    backward_seconds: float
    wait_seconds: float | None  # until the slowest peer had arrived
    sync_seconds: float | None
    hidden_sync_seconds: float | None  # behind backward; null in a mode that hides nothing
    exposed_sync_seconds: float | None  # wait and sync in a mode that hides some; only all ranks' records separate them
    optimiser_seconds: float
    bytes_sent: int
    bytes_received: int
    communication_seconds: float  # with any of those bytes in flight; for `ddp` mostly behind backward
    batch_norm_bytes_sent: int | None  # null where BATCH_NORM=local: nothing to measure
    batch_norm_seconds: float | None
    interface_bytes_sent: int | None  # by the kernel, headers and all; null where the interface is shared
    interface_bytes_received: int | None
    throttled_seconds: float | None  # throttled by a CPU quota, summed over CPUs; null where the kernel does not say
    buckets: list[Message] | None  # of gradients that were averaged behind backward
    buffers: list[Message] | None  # of rank 0's buffers, before forward
    attempt: int = 0
    cpu_seconds: PhaseSeconds | None = None  # of all threads; null in older records
    no_core_seconds: PhaseSeconds | None = None  # ready to run while others had the cores; null if the kernel is silent
    quota_seconds: PhaseSeconds | None = None  # ready to run while the CPU quota had run out


@dataclass(frozen=True)
class Usage:
    """What a rank used since its last record of this kind."""

    kind: ClassVar[str] = "usage"
    rank: int
    at_seconds: float  # the end of the interval, on the run's clock
    seconds: float
    cpu_user_percent: float  # of one CPU
    cpu_system_percent: float
    throttled_seconds: float | None
    memory_bytes: int  # resident, at the end
    network_sent_bytes: int | None  # by the kernel; null where the interface is shared
    network_received_bytes: int | None
    attempt: int = 0
    machine_busy_percent: float | None = None  # CPU time of all programs on the machine, of one CPU


@dataclass(frozen=True)
class Clock:
    """How far a rank's clock of the run is ahead of rank 0's."""

    kind: ClassVar[str] = "clock"
    rank: int
    at_seconds: float
    ahead_seconds: float  # negative: behind
    uncertainty_seconds: float
    attempt: int = 0
    # What came before the run's clock, on that clock: so negative. Only the first record of a rank has it; null in the
    # others, and in older records.
    process_at_seconds: float | None = None  # when the rank's process began
    links_at_seconds: float | None = None  # when the measurement of the links began
    links_seconds: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """A rank's result on the test set after an epoch."""

    kind: ClassVar[str] = "evaluation"
    rank: int
    epoch: int
    loss: float
    correct: int
    samples: int
    accuracy: float
    attempt: int = 0
    at_seconds: float | None = None  # when it began, on the run's clock; null in older records
    seconds: float | None = None


@dataclass(frozen=True)
class Finished:
    """The last line of a rank that finished."""

    kind: ClassVar[str] = "finished"
    rank: int
    steps: int
    seconds: float
    parameters_sha256: str
    restarts: int
    attempt: int = 0
    at_seconds: float | None = None  # when it finished, on the run's clock; null in older records


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


Record = Step | Usage | Clock | Evaluation | Finished
KINDS: dict[str, type[Record]] = {each.kind: each for each in (Step, Usage, Clock, Evaluation, Finished)}
BY_PHASE = ("cpu_seconds", "no_core_seconds", "quota_seconds")


class Recorder:
    """Writes a rank's records, each one whole and at once: an end without warning loses none."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        path = path_of(run_folder, rank)
        try:
            self._file = path.open("x", buffering=1, encoding="utf-8")
            self._lock = threading.Lock()  # usage records come from another thread
        except FileExistsError:
            raise LockstepError(
                f"rank {rank}: {path} exists already, and a run never overwrites another. "
                "Run `python -m app prepare` before each run, or choose another RUN_NAME."
            ) from None

    def write(self, record: Record) -> None:
        """Append one line."""
        line = as_line(record)
        with self._lock:
            self._file.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def path_of(run_folder: Path, rank: int) -> Path:
    """The file of a rank's records."""
    return run_folder / f"rank-{rank}.jsonl"


def read(run_folder: Path, rank: int) -> Iterator[Record]:
    """A rank's records, without a last line that was cut off when the rank ended."""
    path = path_of(run_folder, rank)
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                yield parse(line)
            except (ValueError, KeyError, TypeError) as error:
                raise LockstepError(
                    f"{path}, line {number} is not a record of this version ({error}). It was damaged, or another "
                    "version of Lockstep made the run: only that version reads it."
                ) from None


def as_line(record: Record) -> str:
    """A record as a line of its file."""
    return json.dumps({"kind": record.kind, **asdict(record)}, allow_nan=False) + "\n"


def parse(line: str) -> Record:
    """Parse one line."""
    given = json.loads(line)
    kind = KINDS[given.pop("kind")]
    if kind is Step:
        for name in ("buckets", "buffers"):
            given[name] = given[name] and [Message(**each) for each in given[name]]
        for name in BY_PHASE:
            given[name] = (seconds := given.get(name)) and PhaseSeconds(**seconds)
    return kind(**given)
