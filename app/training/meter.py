"""Measures steps: phases by a monotonic clock, payload by the communicator, wire traffic by the kernel."""

import math
import time
from dataclasses import dataclass
from typing import Protocol, Self

from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator, Passage
from app.errors import DivergedError, LockstepError
from app.machine.cpus import CGROUP, Throttling
from app.machine.scheduler import Threads
from app.records.lines import OverlappedMessage, Step
from app.records.spans import covered
from app.sync.contract import GradientSync, Overlap
from app.sync.periodic import Periodic
from app.training.counters import Counters, Interface
from app.training.optimiser import Update
from app.training.processor import PhaseProcessor


class PhaseClock:
    """Each mark ends a phase and starts the next one, so the phases add up to the step."""

    def __init__(self) -> None:
        self.began = self._last = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._ends: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """End the phase that has run since the last mark."""
        now = time.monotonic()
        self._seconds[phase] = now - self._last
        self._ends[phase] = now - self.began
        self._last = now

    def ended(self, phase: str) -> float:
        """When a phase ended, in seconds since the step began."""
        return self._ends[phase]

    def seconds(self, phase: str) -> float:
        return self._seconds[phase]

    def measured(self, phase: str) -> float | None:
        """The seconds that a phase took, or None if the step did not have it."""
        return self._seconds.get(phase)

    @property
    def total(self) -> float:
        """Seconds from the start to the last mark."""
        return self._last - self.began


def check_finite(rank: int, step: int, loss: float, gradient_norm: float | None) -> None:
    """Raise DivergedError if a value is NaN or infinite."""
    for name, value in (("loss", loss), ("gradient norm", gradient_norm)):
        if value is not None and not math.isfinite(value):
            raise DivergedError(
                f"rank {rank}: training diverged at step {step}: the {name} is {value}. "
                "Lower LEARNING_RATE, or raise WARMUP_STEPS."
            )


@dataclass(frozen=True)
class StepOutcome:
    """The result of a step on this rank's part of the batch."""

    samples: int
    loss_sum: float
    correct: int
    update: Update


class Meter(Protocol):
    """Observes the phases of the training loop."""

    def begin(self, step: int) -> None: ...

    def mark(self, phase: str) -> None: ...

    def wait_for_peers(self) -> None:
        """Separate the wait for other ranks from the synchronisation that follows."""


class StepMeter:
    """Measures a rank's steps, and creates the record of each."""

    def __init__(
        self,
        cluster: Cluster,
        clock: RunClock,
        communicator: Communicator,
        statistics: Communicator | None,
        sync: GradientSync,
    ) -> None:
        """`statistics` is the communicator of synchronised batch normalisation, if there is one."""
        self._before_sync = "optimiser" if isinstance(sync, Periodic) else "backward"
        self._rank, self._run_clock = cluster.rank, clock
        self._communicator, self._statistics = communicator, statistics
        self._interface = Interface.of(cluster)
        self._threads, self._throttling = Threads(), Throttling(CGROUP)

    def begin(self, step: int) -> None:
        self._step = step
        self._communicator.begin_step(step)
        self._before = Counters.read(self._interface)
        self._processor = PhaseProcessor(self._threads, self._throttling, self._before_sync)
        self._clock = PhaseClock()

    def mark(self, phase: str) -> None:
        self._clock.mark(phase)
        self._processor.mark(phase)

    def wait_for_peers(self) -> None:
        """Wait for the slowest rank first: its delay must not be mistaken for the cost of synchronisation."""
        self._communicator.wait_for_peers()
        self.mark("wait")

    def record(self, epoch: int, outcome: StepOutcome, overlap: Overlap | None) -> Step:
        """The record of the step that has just ended."""
        samples, update = outcome.samples, outcome.update
        check_finite(self._rank, self._step, outcome.loss_sum, update.gradient_norm)
        clock, traffic = self._clock, self._communicator.traffic
        statistics = None if self._statistics is None else self._statistics.traffic
        used = Counters.read(self._interface).since(self._before)
        hidden = HiddenSync.of(clock, overlap)
        return Step(
            rank=self._rank,
            epoch=epoch,
            step=self._step,
            samples=samples,
            loss=outcome.loss_sum / samples if samples else None,
            correct=outcome.correct,
            learning_rate=update.learning_rate,
            gradient_norm=update.gradient_norm,
            at_seconds=self._run_clock.since(clock.began),
            seconds=clock.total,
            data_seconds=clock.seconds("data"),
            forward_seconds=clock.seconds("forward") - hidden.before_forward,
            backward_seconds=clock.seconds("backward") - hidden.behind_backward,
            wait_seconds=clock.measured("wait"),
            sync_seconds=clock.measured("sync"),
            hidden_sync_seconds=hidden.hidden,
            exposed_sync_seconds=hidden.exposed,
            optimiser_seconds=clock.seconds("optimiser"),
            bytes_sent=round(traffic.sent),
            bytes_received=round(traffic.received),
            communication_seconds=traffic.seconds,
            batch_norm_bytes_sent=None if statistics is None else round(statistics.sent),
            batch_norm_seconds=None if statistics is None else statistics.seconds,
            interface_bytes_sent=used.sent_bytes,
            interface_bytes_received=used.received_bytes,
            throttled_seconds=used.throttled_seconds,
            buckets=hidden.buckets,
            buffers=hidden.buffers,
            cpu_seconds=self._processor.used(),
            no_core_seconds=self._processor.lost_to_others(),
            quota_seconds=self._processor.lost_to_quota(),
            wire_rounding_error=traffic.rounding_error,
        )


@dataclass(frozen=True)
class HiddenSync:
    """A step's overlapped communication: how much of it is hidden, and how much delays the step."""

    before_forward: float = 0.0
    behind_backward: float = 0.0
    hidden: float | None = None
    exposed: float | None = None
    buckets: list[OverlappedMessage] | None = None
    buffers: list[OverlappedMessage] | None = None

    @classmethod
    def of(cls, clock: PhaseClock, overlap: Overlap | None) -> Self:
        """This rank's backward ends when its last bucket is ready.

        Communication after that is exposed, and so is the broadcast of buffers before forward.
        """
        if overlap is None:
            return cls()
        buckets, buffers = (
            [_message(passage, clock.began) for passage in passages] for passages in (overlap.buckets, overlap.buffers)
        )
        before_forward = sum(message.end_seconds - message.ready_seconds for message in buffers)
        behind_backward = hidden = 0.0
        if buckets:
            last_ready = buckets[-1].ready_seconds
            behind_backward = clock.ended("backward") - last_ready
            hidden = covered((each.ready_seconds, min(each.end_seconds, last_ready)) for each in buckets)
        return cls(before_forward, behind_backward, hidden, before_forward + behind_backward, buckets, buffers)


def _message(passage: Passage, began: float) -> OverlappedMessage:
    ended = passage.ended
    if ended is None:
        raise LockstepError("internal error, please report: a bucket outlasted backward.", "internal-error")
    return OverlappedMessage(passage.bytes, passage.ready - began, ended - began)
