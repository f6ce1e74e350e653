"""The kernel's figures for this process: its start time, peak memory and loaded libraries."""

import os
import re
import time
from pathlib import Path

STAT = Path("/proc/self/stat")
STARTED = 19  # index after the name, which may contain spaces and brackets
STATUS = Path("/proc/self/status")
MAPS = Path("/proc/self/maps")
BLAS = re.compile(r"/(lib[^/\s]*(?:blas|blis|mkl|atlas)[^/\s]*)$", re.MULTILINE)


def began() -> float:
    """The start of this process on the clock of `time.monotonic`, to within the kernel's tick, usually 10 ms.

    This includes an entrypoint that replaced itself with the program by exec, because it was the same process.
    """
    ticks = int(STAT.read_text().rpartition(")")[2].split()[STARTED])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def peak_memory_bytes(status: Path = STATUS) -> int | None:
    """Peak resident memory of this process; None if the kernel does not report it.

    Unlike the peak from `getrusage`, it does not include the entrypoint and its parents. Of mapped files, for example
    the data set, it includes the pages that were read.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE) if status.is_file() else None
    return int(found[1]) * 1024 if found else None


def blas() -> str | None:
    """The BLAS libraries that this process has loaded; None if the kernel does not report them."""
    return ", ".join(sorted(set(BLAS.findall(MAPS.read_text())))) if MAPS.is_file() else None
