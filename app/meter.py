"""What is measured in a step: phases by one monotonic clock, payload by the communicator, the wire by the kernel."""

import math
import time
from pathlib import Path

from app.cluster import Cluster
from app.communicator import Communicator
from app.errors import LockstepError
from app.optimiser import Update
from app.records import Step

INTERFACES = Path("/sys/class/net")
LOOPBACK = "lo"


class PhaseClock:
    """Each mark ends a phase and begins the next, so that the phases add up to the step."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._seconds: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """End the phase that has run since the last mark."""
        now = time.monotonic()
        self._seconds[phase] = now - self._last
        self._last = now

    def seconds(self, phase: str) -> float:
        """How long a phase took."""
        return self._seconds[phase]

    def measured(self, phase: str) -> float | None:
        """How long a phase took, or None where the step had no such phase."""
        return self._seconds.get(phase)

    @property
    def total(self) -> float:
        """From the beginning to the last mark."""
        return self._last - self._began


class InterfaceMeter:
    """The kernel's counters of a network interface: all that crosses it, headers and answers included."""

    def __init__(self, name: str | None) -> None:
        """Without a name there is nothing to measure."""
        self._counters = None if name is None else INTERFACES / name / "statistics"
        self._before = self._read()

    def begin(self) -> None:
        """Count from here."""
        self._before = self._read()

    def passed(self) -> tuple[int, int] | tuple[None, None]:
        """Bytes sent and received since the beginning."""
        now = self._read()
        if now is None or self._before is None:
            return None, None
        return now[0] - self._before[0], now[1] - self._before[1]

    def _read(self) -> tuple[int, int] | None:
        if self._counters is None:
            return None
        return int((self._counters / "tx_bytes").read_text()), int((self._counters / "rx_bytes").read_text())


def own_interface(cluster: Cluster) -> str | None:
    """The interface of this rank, or None where other traffic than its own passes there as well."""
    alone = sum(member.address == cluster.me.address for member in cluster.members) == 1
    return cluster.me.interface if alone and cluster.me.interface != LOOPBACK else None


def check_finite(rank: int, step: int, loss: float, gradient_norm: float | None) -> None:
    """End a training of which nothing more can come."""
    for what, value in (("loss", loss), ("norm of the gradient", gradient_norm)):
        if value is not None and not math.isfinite(value):
            raise LockstepError(
                f"rank {rank}: the {what} at step {step} is {value}: the training has diverged. "
                "Lower LEARNING_RATE, or raise WARMUP_STEPS."
            )


class StepMeter:
    """Measures a rank's steps, one after another, and writes each into a record."""

    def __init__(self, cluster: Cluster, communicator: Communicator, statistics: Communicator | None) -> None:
        """`statistics` is the communicator of synchronised batch normalisation, where there is one."""
        self._rank = cluster.rank
        self._communicator, self._statistics = communicator, statistics
        self._interface = InterfaceMeter(own_interface(cluster))

    def begin(self, step: int) -> None:
        """Set everything to zero."""
        self._step = step
        self._communicator.begin_step(step)
        self._interface.begin()
        self._clock = PhaseClock()

    def mark(self, phase: str) -> None:
        """A phase is over."""
        self._clock.mark(phase)

    def record(self, epoch: int, samples: int, loss_sum: float, correct: int, update: Update) -> Step:
        """The step as it was, with what it has computed."""
        check_finite(self._rank, self._step, loss_sum, update.gradient_norm)
        clock, traffic = self._clock, self._communicator.traffic
        statistics = None if self._statistics is None else self._statistics.traffic
        interface_sent, interface_received = self._interface.passed()
        return Step(
            rank=self._rank,
            epoch=epoch,
            step=self._step,
            samples=samples,
            loss=loss_sum / samples if samples else None,
            correct=correct,
            learning_rate=update.learning_rate,
            gradient_norm=update.gradient_norm,
            seconds=clock.total,
            data_seconds=clock.seconds("data"),
            forward_seconds=clock.seconds("forward"),
            backward_seconds=clock.seconds("backward"),
            wait_seconds=clock.measured("wait"),
            sync_seconds=clock.measured("sync"),
            hidden_sync_seconds=None,
            optimiser_seconds=clock.seconds("optimiser"),
            bytes_sent=round(traffic.sent),
            bytes_received=round(traffic.received),
            communication_seconds=traffic.seconds,
            batch_norm_bytes_sent=None if statistics is None else round(statistics.sent),
            batch_norm_seconds=None if statistics is None else statistics.seconds,
            interface_bytes_sent=interface_sent,
            interface_bytes_received=interface_received,
        )
