"""This process by the kernel's account: when it began, long before its first line of Python, and its peak memory."""

import os
import re
import time
from pathlib import Path

STAT = Path("/proc/self/stat")
STARTED = 19  # its place behind the name, which may have spaces and brackets in it
STATUS = Path("/proc/self/status")
MAPS = Path("/proc/self/maps")
BLAS = re.compile(r"/(lib[^/\s]*(?:blas|blis|mkl|atlas)[^/\s]*)$", re.MULTILINE)


def began() -> float:
    """The moment on the clock of `time.monotonic`, within the kernel's tick, mostly 10 ms.

    An entrypoint that replaced itself by the program counts as part of it: it was the same process.
    """
    ticks = int(STAT.read_text().rpartition(")")[2].split()[STARTED])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def peak_memory_bytes(status: Path = STATUS) -> int | None:
    """The most memory that it had resident; None where the kernel does not say.

    It counts from the start of the program, where the peak that `getrusage` tells includes what the entrypoint and its
    parents had. Of files that are mapped, such as the data set, it counts the pages that were read.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE) if status.is_file() else None
    return int(found[1]) * 1024 if found else None


def blas() -> str | None:
    """The BLAS libraries that this process has loaded; None where the kernel does not say."""
    return ", ".join(sorted(set(BLAS.findall(MAPS.read_text())))) if MAPS.is_file() else None
