"""The records of a run: typed, one JSON object a line, units in the names, null for what was not measured."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from app.errors import LockstepError


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
    seconds: float
    data_seconds: float
    forward_seconds: float
    backward_seconds: float
    wait_seconds: float | None  # until the slowest peer had arrived
    sync_seconds: float | None
    hidden_sync_seconds: float | None  # behind backward
    optimiser_seconds: float
    bytes_sent: int
    bytes_received: int
    communication_seconds: float  # in which some of those bytes were under way; for `ddp` mostly behind backward
    batch_norm_bytes_sent: int | None  # null where BATCH_NORM=local: nothing to measure
    batch_norm_seconds: float | None
    interface_bytes_sent: int | None  # by the kernel, headers and all; null where the interface is shared
    interface_bytes_received: int | None


@dataclass(frozen=True)
class Evaluation:
    """The test set after an epoch, as a rank knows it."""

    kind: ClassVar[str] = "evaluation"
    rank: int
    epoch: int
    loss: float
    correct: int
    samples: int
    accuracy: float


@dataclass(frozen=True)
class Finished:
    """The last line of a rank that came to its end."""

    kind: ClassVar[str] = "finished"
    rank: int
    steps: int
    seconds: float
    parameters_sha256: str
    restarts: int


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
    """The score on the samples of these steps, each as the model took it then; None where there was no sample."""
    counted = [(step.loss, step.correct, step.samples) for step in steps if step.loss is not None]
    samples = sum(samples for _, _, samples in counted)
    if not samples:
        return None
    loss = sum(loss * samples for loss, _, samples in counted) / samples
    return Score(loss, sum(correct for _, correct, _ in counted), samples)


Record = Step | Evaluation | Finished
KINDS: dict[str, type[Record]] = {each.kind: each for each in (Step, Evaluation, Finished)}


class Recorder:
    """Writes a rank's records, each one whole and at once, so that an end without warning loses none."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        path = path_of(run_folder, rank)
        try:
            self._file = path.open("x", buffering=1, encoding="utf-8")
        except FileExistsError:
            raise LockstepError(
                f"rank {rank}: {path} is there already, and a run never writes over another. "
                "Run `python -m app prepare` before each run, or give another RUN_NAME."
            ) from None

    def write(self, record: Record) -> None:
        """Append one line."""
        self._file.write(json.dumps({"kind": record.kind, **asdict(record)}, allow_nan=False) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def path_of(run_folder: Path, rank: int) -> Path:
    """Where a rank's records lie."""
    return run_folder / f"rank-{rank}.jsonl"


def read(run_folder: Path, rank: int) -> Iterator[Record]:
    """A rank's records. A last line that was cut off by the rank's end is left out."""
    with path_of(run_folder, rank).open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            yield parse(line)


def parse(line: str) -> Record:
    """One record out of its line."""
    fields_given = json.loads(line)
    kind = KINDS[fields_given["kind"]]
    return kind(**{field.name: fields_given[field.name] for field in fields(kind)})
