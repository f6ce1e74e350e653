"""Scheduling delays of this process: the time for which its threads were ready to run without a CPU."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

TASKS = Path("/proc/self/task")
LONGEST_LINE = 128


class Threads:
    """Scheduling delay per thread, in seconds: ready to run, but others had the CPU or the quota was used up."""

    def __init__(self) -> None:
        """`own_delay` refers to the thread that creates this object."""
        self._own = threading.get_native_id()
        self._files: dict[int, int] = {}  # kept open, because each step reads them several times

    def own_delay(self) -> float | None:
        """Delay of the thread that created this object; None if the kernel does not report it."""
        return self._delay(self._own)

    def delays(self) -> dict[int, float]:
        """Delays of all current threads, by thread ID."""
        threads = [int(task.name) for task in TASKS.iterdir()]
        for gone in self._files.keys() - threads:
            os.close(self._files.pop(gone))
        return self._of(threads)

    def delays_of_known(self) -> dict[int, float]:
        """Delays of the threads found by the last `delays`. Listing threads takes most of the time."""
        return self._of(list(self._files))

    def _of(self, threads: Iterable[int]) -> dict[int, float]:
        found = {thread: self._delay(thread) for thread in threads}
        return {thread: delay for thread, delay in found.items() if delay is not None}

    def _delay(self, thread: int) -> float | None:
        try:
            if thread not in self._files:
                self._files[thread] = os.open(TASKS / str(thread) / "schedstat", os.O_RDONLY)
            line = os.pread(self._files[thread], LONGEST_LINE, 0)
        except OSError:  # the kernel does not report it, or the thread has just ended
            return None
        return int(line.split()[1]) * 1e-9

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)
