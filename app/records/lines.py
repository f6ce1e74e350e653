"""A rank's records: one JSON object per line, units in the names, null for values that were not measured.

`attempt` counts a run's attempts from 0. Steps that an attempt repeats are recorded again.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from app.machine.interfaces import Carried
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

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")  # they add up to the step


@dataclass(frozen=True)
class OverlappedMessage:
    """A message that overlaps with forward or backward, in seconds since the step began."""

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    bytes: Count
    ready_seconds: Seconds  # when this rank's data was ready
    end_seconds: Seconds


@dataclass(frozen=True)
class PhaseSeconds:
    """Seconds by phase. If a mode overlaps communication, its exposed part is in forward and backward."""

    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    data: Seconds
    forward: Seconds
    backward: Seconds
    optimiser: Seconds
    wait: SecondsOrNull = None  # null in a mode without a wait phase
    sync: SecondsOrNull = None

    def of(self, *phases: str) -> float:
        """The sum of these phases. A phase that is null counts as 0."""
        return float(sum(getattr(self, phase) or 0.0 for phase in phases))


@dataclass(frozen=True)
class Step:
    """One training step of one rank."""

    kind: ClassVar[str] = "step"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    epoch: Count  # from 0
    step: Count  # from 0, counted through all epochs
    samples: Count  # in this rank's part of the batch
    loss: NumberOrNull  # this rank's mean over its part of the batch; null without a sample
    correct: Count  # samples of this part that the model classified correctly before the step's update
    learning_rate: Number
    gradient_norm: NumberOrNull  # of the averaged gradient before clipping; null if GRADIENT_CLIP is unset
    at_seconds: Elapsed  # when it began, on the run's clock
    seconds: Elapsed
    data_seconds: Elapsed  # preparing the batch
    forward_seconds: Seconds  # with the loss, and without the broadcast of rank 0's buffers before it
    backward_seconds: Seconds  # if gradients are averaged during it: until the last bucket is ready
    wait_seconds: SecondsOrNull  # until the slowest peer had arrived; null if only all ranks' records together show it
    sync_seconds: SecondsOrNull  # averaging gradients after all ranks had arrived, as far as it delays the step
    hidden_sync_seconds: SecondsOrNull  # overlapped with backward; null in a mode without overlap
    exposed_sync_seconds: SecondsOrNull  # wait and sync in a mode with overlap; separated by all ranks' records
    optimiser_seconds: Elapsed
    bytes_sent: Count  # payload to average gradients
    bytes_received: Count
    communication_seconds: Elapsed  # with any of those bytes in flight; for `ddp` mostly overlapped with backward
    batch_norm_bytes_sent: CountOrNull  # null with BATCH_NORM=local
    batch_norm_seconds: SecondsOrNull  # its statistics in flight, in forward and backward; null with BATCH_NORM=local
    interface_bytes_sent: CountOrNull  # by the kernel, headers included; null if the interface is shared
    interface_bytes_received: CountOrNull
    throttled_seconds: SecondsOrNull  # throttled by a CPU quota, summed over CPUs; null if not reported
    buckets: list[OverlappedMessage] | None  # of gradients, averaged during backward
    buffers: list[OverlappedMessage] | None  # of rank 0's buffers, before forward
    attempt: Count = 0  # from 0; of a step that was recorded more than once, the highest attempt counts
    cpu_seconds: PhaseSeconds | None = None  # of all threads; null in older records
    no_core_seconds: PhaseSeconds | None = None  # ready to run while others had the cores; null if not reported
    quota_seconds: PhaseSeconds | None = None  # ready to run while the CPU quota was used up
    wire_rounding_error: NumberOrNull = None  # norm of the error over the gradient's, in steps that LOG_EVERY prints


@dataclass(frozen=True)
class Usage:
    """A rank's resource usage since its last record of this kind."""

    kind: ClassVar[str] = "usage"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    at_seconds: Elapsed  # the end of the interval, on the run's clock
    seconds: Elapsed
    cpu_user_percent: Number  # in the program, of one CPU
    cpu_system_percent: Number  # in the kernel, of one CPU
    throttled_seconds: SecondsOrNull  # by a CPU quota, summed over CPUs; null if not reported
    memory_bytes: Count  # resident, at the end of the interval
    network_sent_bytes: CountOrNull  # by the kernel, headers included; null if the interface is shared
    network_received_bytes: CountOrNull
    attempt: Count = 0
    machine_busy_percent: NumberOrNull = None  # CPU time of all programs on the machine, in percent of one CPU


@dataclass(frozen=True)
class Clock:
    """The offset of a rank's run clock from rank 0's."""

    kind: ClassVar[str] = "clock"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    at_seconds: Elapsed  # when the clocks were compared, on this rank's run clock
    ahead_seconds: Seconds  # negative: behind
    uncertainty_seconds: Seconds  # either way; 0 on rank 0
    attempt: Count = 0
    # Times before the run clock's zero, so negative. Null in all but a rank's first record, and in older records.
    process_at_seconds: SecondsOrNull = None  # when the rank's process began
    links_at_seconds: SecondsOrNull = None  # when the measurement of the links began
    links_seconds: SecondsOrNull = None  # its duration; nearly 0 if LINK_CHECK is off


@dataclass(frozen=True)
class Evaluation:
    """A rank's scores on the test set after an epoch."""

    kind: ClassVar[str] = "evaluation"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    epoch: Count  # that had ended, from 0
    loss: Number  # mean over the test set
    correct: Count
    samples: Count
    accuracy: Number  # from 0 to 1
    attempt: Count = 0
    at_seconds: ElapsedOrNull = None  # when it began, on the run's clock; null in older records
    seconds: ElapsedOrNull = None  # with the exchange between ranks at its end


@dataclass(frozen=True)
class Checkpoint:
    """One save of a rank's training state."""

    kind: ClassVar[str] = "checkpoint"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    step: Count  # the number of steps taken
    bytes: Count  # size of the tensors
    at_seconds: Elapsed  # when it began, on the run's clock
    seconds: Elapsed  # until every rank had reported that its part is on disk
    attempt: Count = 0


@dataclass(frozen=True)
class Finished:
    """The last line of a rank that finished."""

    kind: ClassVar[str] = "finished"
    __pydantic_config__: ClassVar[ConfigDict] = CLOSED
    rank: Count
    steps: Count
    seconds: Elapsed  # the whole training, evaluations included
    parameters_sha256: str
    restarts: Count
    attempt: Count = 0
    at_seconds: ElapsedOrNull = None  # when it finished, on the run's clock; null in older records
    interfaces: list[Carried] | None = None  # after the last step; the manifest has them before the first
    peak_memory_bytes: CountOrNull = None  # resident; null in older records, or if not reported
    buffers_sha256: str | None = None  # null in older records, or if the model has no buffers


@dataclass(frozen=True)
class Score:
    """Loss and accuracy of a model on some samples."""

    loss: float  # mean
    correct: int
    samples: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.samples


def training_score(steps: Iterable[Step]) -> Score | None:
    """The score on these steps' samples, each classified at its own step; None without a sample."""
    counted = [(step.loss, step.correct, step.samples) for step in steps if step.loss is not None]
    samples = sum(samples for _, _, samples in counted)
    if not samples:
        return None
    loss = sum(loss * samples for loss, _, samples in counted) / samples
    return Score(loss, sum(correct for _, correct, _ in counted), samples)


Record = Step | Usage | Clock | Evaluation | Checkpoint | Finished
KINDS: dict[str, type[Record]] = {each.kind: each for each in (Step, Usage, Clock, Evaluation, Checkpoint, Finished)}
READERS = {kind: TypeAdapter(each).validator for kind, each in KINDS.items()}
BEGINNINGS = {b'{"kind": "%b"' % kind.encode(): kind for kind in KINDS}  # as written by `as_line`


def as_line(record: Record) -> str:
    return json.dumps({"kind": record.kind, **asdict(record)}, allow_nan=False) + "\n"


def parse(line: bytes | str) -> Record:
    """Parse one line; raises ValueError if it is not a record."""
    line = line.encode() if isinstance(line, str) else line
    beginning, _, rest = line.partition(b", ")
    if kind := BEGINNINGS.get(beginning):
        fields = b"{" + rest
    else:  # another program may order the fields differently
        given = json.loads(line)
        if not isinstance(given, dict):
            raise ValueError("not a JSON object")
        kind, fields = str(given.pop("kind", None)), json.dumps(given).encode()
    if kind not in READERS:
        raise ValueError(f"unknown kind {kind}, expected one of {', '.join(READERS)}")
    record: Record = READERS[kind].validate_json(fields, strict=True)
    return record
