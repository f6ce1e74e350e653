"""What a process that runs a stranger's code may use, and how the checker keeps out of its reach."""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from app.machine.interfaces import LOOPBACK

MEGABYTE = 1 << 20
MOST_MEMORY = 512 * MEGABYTE  # of a rank, beside what it has from the start
MOST_FILES = 256
MOST_PRINTED = MEGABYTE

NOT_DUMPABLE = (4, 0)  # of prctl: no process of the same user may look into this one or write to its files

LIMITS = {
    resource.RLIMIT_NOFILE: MOST_FILES,
    resource.RLIMIT_FSIZE: MOST_PRINTED,
    resource.RLIMIT_CORE: 0,
}


def confine() -> None:
    """Limit this process, and let the kernel end it before others where memory runs out."""
    limits = LIMITS | {resource.RLIMIT_DATA: _memory() + MOST_MEMORY}
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _memory() -> int:
    """Bytes that this process may write to, used or not."""
    words = Path("/proc/self/statm").read_text().split()
    return int(words[5]) * resource.getpagesize()


def keep_out_of_reach() -> None:
    """For the checker: what runs as the same user can neither trace it, write into its output nor interrupt it."""
    ctypes.CDLL(None).prctl(*NOT_DUMPABLE)
    if os.getpid() == 1:
        # The kernel spares a container's first process all signals from inside for which it has no handler. Ranks must
        # go on ignoring SIGXFSZ and SIGPIPE: an error says more than the end of the process.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


def carried() -> int | None:
    """Bytes that the loopback device has carried; only in a container of its own, where nobody else uses it."""
    return psutil.net_io_counters(pernic=True)[LOOPBACK].bytes_sent if os.getpid() == 1 else None


def end_all_others() -> None:
    """Whatever a submission has left behind; only in a container of its own, where this is the first process."""
    if os.getpid() != 1:
        return
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0):
            pass
