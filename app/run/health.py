"""What a rank says of its health, for Docker: that it trains, or for whom it waits. docker/health reads it."""

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
# It stalls when nothing has come for so many times the longest wait so far, but never so soon.
TIMES_THE_LONGEST, LEAST_SECONDS, FIRST_SECONDS = 5.0, 10.0, 60.0
OVER = "training is over"


class Progress:
    """Whether anything new was recorded in time, judged by how long it took before. It reads no clock."""

    def __init__(self, now: float) -> None:
        self._count, self._since = 0, now
        self._longest: float | None = None

    def look(self, count: int, now: float) -> float | None:
        """For how many seconds nothing has come, if that is longer than it ought to be."""
        waited = now - self._since
        if count != self._count:
            self._longest = max(self._longest or 0.0, waited)
            self._count, self._since = count, now
            return None
        patience = FIRST_SECONDS if self._longest is None else max(LEAST_SECONDS, TIMES_THE_LONGEST * self._longest)
        return waited if waited > patience else None


@contextmanager
def told(cluster: Cluster, recorder: Recorder) -> Iterator[None]:
    """Tell while the work inside goes on, in a container of Compose; elsewhere nobody asks."""
    if not compose.CONTAINER.fullmatch(cluster.me.name):
        yield
        return
    over = threading.Event()

    def tell() -> None:
        progress = Progress(time.monotonic())
        while True:
            FILE.write_text(_line(cluster, recorder, progress.look(recorder.milestones, time.monotonic())))
            if over.wait(LOOK_SECONDS):
                return

    thread = threading.Thread(target=tell, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        FILE.write_text(f"{OVER}\n")


def _line(cluster: Cluster, recorder: Recorder, stalled: float | None) -> str:
    if stalled is None:
        return f"training: {recorder.milestones} steps, evaluations and states recorded\n"
    silent = [cluster.members[rank].title for rank in cluster.detector.silent()]
    whom = f"waiting for {', '.join(silent)}" if silent else "every rank answers, so one of them takes long"
    return f"stalled: nothing recorded for {stalled:.0f} s; {whom}\n"
