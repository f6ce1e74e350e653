"""The kernel scheduler's account of this process: how long its threads were ready to run and had no CPU."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path

TASKS = Path("/proc/self/task")
LONGEST_LINE = 128


class Threads:
    """For each thread, seconds in which it was ready to run and another had the CPU, or a quota had run out."""

    def __init__(self) -> None:
        """Belongs to the thread that makes it."""
        self._own = threading.get_native_id()
        self._files: dict[int, int] = {}  # kept open, because a step reads them several times

    def own_delay(self) -> float | None:
        """Of the thread that made this; None where the kernel keeps no such account."""
        return self._delay(self._own)

    def delays(self) -> dict[int, float]:
        """Of every thread that there is, by its number."""
        threads = [int(task.name) for task in TASKS.iterdir()]
        for gone in self._files.keys() - threads:
            os.close(self._files.pop(gone))
        return self._of(threads)

    def delays_of_known(self) -> dict[int, float]:
        """Of those that there were when all were last looked for, which takes most of the time."""
        return self._of(list(self._files))

    def _of(self, threads: Iterable[int]) -> dict[int, float]:
        found = {thread: self._delay(thread) for thread in threads}
        return {thread: delay for thread, delay in found.items() if delay is not None}

    def _delay(self, thread: int) -> float | None:
        try:
            if thread not in self._files:
                self._files[thread] = os.open(TASKS / str(thread) / "schedstat", os.O_RDONLY)
            line = os.pread(self._files[thread], LONGEST_LINE, 0)
        except OSError:  # the kernel keeps no such account, or the thread has just ended
            return None
        return int(line.split()[1]) * 1e-9

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)
