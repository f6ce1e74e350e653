"""The kernel's counters of a rank's resource usage: CPU time, throttled time, bytes on its interface."""

import resource
import time
from dataclasses import dataclass
from typing import Self

from app.cluster.members import Cluster
from app.machine.cpus import CGROUP, busy_seconds, throttled_seconds
from app.machine.interfaces import LOOPBACK, ByteCounter


class Interface:
    """A network interface, whose counters include headers and acknowledgements."""

    def __init__(self, rank: int, name: str | None) -> None:
        """Without a name, nothing is counted."""
        self._sent = None if name is None else ByteCounter(rank, name, "tx")
        self._received = None if name is None else ByteCounter(rank, name, "rx")

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """This rank's interface. It counts nothing if other ranks use the same one."""
        alone = sum(member.address == cluster.me.address for member in cluster.members) == 1
        return cls(cluster.rank, cluster.me.interface if alone and cluster.me.interface != LOOPBACK else None)

    @property
    def sent(self) -> int | None:
        """Bytes since the interface was created."""
        return None if self._sent is None else self._sent.read()

    @property
    def received(self) -> int | None:
        """Bytes since the interface was created."""
        return None if self._received is None else self._received.read()


@dataclass(frozen=True)
class Counters:
    """A reading, or the difference of two; None if the kernel keeps no count."""

    seconds: float
    user_seconds: float
    system_seconds: float
    throttled_seconds: float | None
    sent_bytes: int | None
    received_bytes: int | None
    machine_busy_seconds: float  # of all processes on all CPUs

    @classmethod
    def read(cls, interface: Interface) -> Self:
        """Read the counts of this process and its control group since they were created."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        return cls(
            time.monotonic(),
            own.ru_utime,
            own.ru_stime,
            throttled_seconds(CGROUP),
            interface.sent,
            interface.received,
            busy_seconds(),
        )

    def since(self, before: "Counters") -> "Counters":
        return Counters(
            self.seconds - before.seconds,
            self.user_seconds - before.user_seconds,
            self.system_seconds - before.system_seconds,
            _less(self.throttled_seconds, before.throttled_seconds),
            _less(self.sent_bytes, before.sent_bytes),
            _less(self.received_bytes, before.received_bytes),
            self.machine_busy_seconds - before.machine_busy_seconds,
        )


def _less[Number: (int, float)](now: Number | None, before: Number | None) -> Number | None:
    return None if now is None or before is None else now - before
