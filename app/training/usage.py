"""Samples a rank's resource usage over time, in its own thread."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.errors import NetworkLostError, WriteError
from app.records.journal import Recorder
from app.records.lines import Usage
from app.training.counters import Counters, Interface


class UsageSampler:
    """Records a rank's usage at a fixed interval, from entry to exit."""

    def __init__(self, cluster: Cluster, clock: RunClock, recorder: Recorder, interval: float) -> None:
        self._rank, self._clock, self._recorder, self._interval = cluster.rank, clock, recorder, interval
        self._interface = Interface.of(cluster)
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="usage", daemon=True)

    def __enter__(self) -> Self:
        self._before = Counters.read(self._interface)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        with suppress(WriteError, NetworkLostError):  # the next step fails with the same error
            while not self._over.wait(self._interval):
                self._recorder.write(self._take())
            self._recorder.write(self._take())  # the rest, shorter than an interval

    def _take(self) -> Usage:
        now = Counters.read(self._interface)
        used, self._before = now.since(self._before), now
        return Usage(
            rank=self._rank,
            at_seconds=self._clock.since(now.seconds),
            seconds=used.seconds,
            cpu_user_percent=used.user_seconds / used.seconds * 100,
            cpu_system_percent=used.system_seconds / used.seconds * 100,
            throttled_seconds=used.throttled_seconds,
            memory_bytes=self._process.memory_info().rss,
            network_sent_bytes=used.sent_bytes,
            network_received_bytes=used.received_bytes,
            machine_busy_percent=max(0.0, used.machine_busy_seconds) / used.seconds * 100,
        )
