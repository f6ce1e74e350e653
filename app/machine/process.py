"""When this process began, by the kernel's account: long before its first line of Python runs."""

import os
import time
from pathlib import Path

STAT = Path("/proc/self/stat")
STARTED = 19  # its place behind the name, which may have spaces and brackets in it


def began() -> float:
    """The moment on the clock of `time.monotonic`, within the kernel's tick, mostly 10 ms.

    An entrypoint that replaced itself by the program counts as part of it: it was the same process.
    """
    ticks = int(STAT.read_text().rpartition(")")[2].split()[STARTED])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age
