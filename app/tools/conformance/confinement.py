"""Limits on processes that run untrusted code, and the protection of the checker from them."""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from app.machine.interfaces import LOOPBACK

MEGABYTE = 1 << 20
MOST_MEMORY = 512 * MEGABYTE  # of a rank, in addition to its memory at the start
MOST_FILES = 256
MOST_PRINTED = MEGABYTE

NOT_DUMPABLE = (4, 0)  # for prctl: processes of the same user cannot inspect this one or write to its files

LIMITS = {
    resource.RLIMIT_NOFILE: MOST_FILES,
    resource.RLIMIT_FSIZE: MOST_PRINTED,
    resource.RLIMIT_CORE: 0,
}


def confine() -> None:
    """Limit this process, and let the kernel kill it before others if memory runs out."""
    limits = LIMITS | {resource.RLIMIT_DATA: _memory() + MOST_MEMORY}
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _memory() -> int:
    """Bytes of this process's writable memory, including unused pages."""
    words = Path("/proc/self/statm").read_text().split()
    return int(words[5]) * resource.getpagesize()


def keep_out_of_reach() -> None:
    """Protect the checker: processes of the same user can neither trace it, write to its output nor interrupt it."""
    ctypes.CDLL(None).prctl(*NOT_DUMPABLE)
    if os.getpid() == 1:
        # The kernel discards signals from inside a container to its first process unless that has a handler for them.
        # Ranks must still ignore SIGXFSZ and SIGPIPE, because an error explains more than a killed process does.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


def carried() -> int | None:
    """Bytes that the loopback device has carried; None outside the checker's container, where others use it too."""
    return psutil.net_io_counters(pernic=True)[LOOPBACK].bytes_sent if os.getpid() == 1 else None


def end_all_others() -> None:
    """Kill all processes that a submission left behind, but only if this is the first process of a container."""
    if os.getpid() != 1:
        return
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0):
            pass
