"""Saves the state periodically, at the end, and when a run is stopped."""

import math
import time
from collections.abc import Callable

from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.errors import LockstepError, StoppedError
from app.records.journal import Recorder
from app.records.lines import Checkpoint
from app.training.checkpoint.keeper import Keeper
from app.training.checkpoint.state import State

NOTICE_SECONDS = 0.25  # for a stop request to reach all ranks, unless it is lost
AGREE_SECONDS = 10.0


class Saving:
    """Saves the state and stops the run between two steps. All ranks call it together."""

    def __init__(
        self, cluster: Cluster, keeper: Keeper, every: int, planned: int, recorder: Recorder, clock: RunClock
    ) -> None:
        """Save every `every` steps, and after the last step `planned`."""
        self._cluster, self._keeper, self._recorder, self._clock = cluster, keeper, recorder, clock
        self._every, self._planned = every, planned
        self._began, self._taken = time.monotonic(), 0  # by this attempt
        cluster.detector.stopping.begin(keeper.newest or 0)

    def between(self, step: int, state: Callable[[], State]) -> None:
        """Save the state after `step` steps if it is due. Raises StoppedError if the run must stop."""
        stops = self._stops(step)
        if step % self._every == 0 or step == self._planned or stops:
            began = time.monotonic()
            size = self._keeper.save(step, state())
            record = Checkpoint(self._cluster.rank, step, size, self._clock.since(began), time.monotonic() - began)
            self._recorder.write(record)
        if step == self._planned:
            self._keeper.finish()
        elif stops:
            self._keeper.settle()
            raise StoppedError(
                f"rank {self._cluster.rank}: stopped after step {step - 1}, as requested. A checkpoint is saved. To "
                "resume, repeat the command."
            )

    def _stops(self, step: int) -> bool:
        self._taken += 1
        seconds = (time.monotonic() - self._began) / self._taken
        ahead = 1 + math.ceil(NOTICE_SECONDS / seconds)
        try:
            return self._cluster.detector.stopping.due(step, ahead, AGREE_SECONDS)
        except TimeoutError:
            raise LockstepError(
                f"rank {self._cluster.rank}: cannot stop after step {step - 1}: the other ranks did not agree within "
                f"{AGREE_SECONDS:g} s. An earlier checkpoint, if any, is kept. To resume, repeat the command.",
                "stop-incomplete",
            ) from None
