"""The state of this rank for Docker's health check: training, or stalled. docker/health reads the file."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cluster import compose
from app.cluster.members import Cluster
from app.records.journal import Recorder

FILE = Path("/tmp/health")  # noqa: S108  # in a container of its own, whose /tmp is new at each start
LOOK_SECONDS = 1.0
# A rank is stalled after this multiple of the longest wait so far, and never before LEAST_SECONDS.
TIMES_THE_LONGEST, LEAST_SECONDS, FIRST_SECONDS = 5.0, 10.0, 60.0
OVER = "training is over"


class Progress:
    """Detects a stall by comparing the wait for a new record with the longest so far. The caller passes the time."""

    def __init__(self, now: float) -> None:
        self._count, self._since = 0, now
        self._longest: float | None = None

    def look(self, count: int, now: float) -> float | None:
        """Seconds since the last new record if the rank is stalled, else None."""
        waited = now - self._since
        if count != self._count:
            self._longest = max(self._longest or 0.0, waited)
            self._count, self._since = count, now
            return None
        patience = FIRST_SECONDS if self._longest is None else max(LEAST_SECONDS, TIMES_THE_LONGEST * self._longest)
        return waited if waited > patience else None


@contextmanager
def reported(cluster: Cluster, recorder: Recorder) -> Iterator[None]:
    """Keep the file up to date during the block. Only Compose's containers have a health check that reads it."""
    if not compose.CONTAINER.fullmatch(cluster.me.name):
        yield
        return
    over = threading.Event()

    def report() -> None:
        progress = Progress(time.monotonic())
        while True:
            FILE.write_text(_line(cluster, recorder, progress.look(recorder.milestones, time.monotonic())))
            if over.wait(LOOK_SECONDS):
                return

    thread = threading.Thread(target=report, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        FILE.write_text(f"{OVER}\n")


def _line(cluster: Cluster, recorder: Recorder, stalled: float | None) -> str:
    if stalled is None:
        return f"training: {recorder.milestones} steps, evaluations and checkpoints recorded\n"
    silent = [cluster.members[rank].title for rank in cluster.detector.silent()]
    cause = f"waiting for {', '.join(silent)}" if silent else "all ranks respond, so one of them is slow"
    return f"stalled: no new record for {stalled:.0f} s, {cause}\n"
