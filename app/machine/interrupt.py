"""Ends the process at once, on a signal or after a loss, even during a wait inside the backend.

Python cannot interrupt such a wait.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from app.errors import LockstepError

SIGNALS = (signal.SIGTERM, signal.SIGINT)

CleanUps = list[Callable[[], object]]

PATIENCE_SECONDS = 10.0  # for the work that has begun to end by itself
STOP_SECONDS = 20.0  # for work that stops where it can go on later; compose.yaml leaves it ten more

_first = threading.Lock()  # held by whoever ends the process: once, and until it has ended
_by_its_work = threading.Event()
_causes: list[Callable[[], LockstepError | None]] = []
_stops: list[Callable[[int], None]] = []


def end_on_signal() -> CleanUps:
    """Let SIGTERM and SIGINT end the process with the shell's code for them, after the clean-ups in the list returned.

    Call it before any thread starts (importing torch starts some): all threads then leave these signals to the one
    that waits here.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    clean_ups: CleanUps = []

    def wait() -> None:
        number = signal.sigwait(SIGNALS)
        for cause in _causes:
            if error := cause():
                end_now(error, clean_ups)
        if stops := list(_stops):
            for stop in stops:
                stop(number)
            if again := signal.sigtimedwait(SIGNALS, STOP_SECONDS):
                number = again.si_signo
        _end(f"stopped by {signal.Signals(number).name}", clean_ups, 128 + number)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return clean_ups


def ask_on_signal(cause: Callable[[], LockstepError | None]) -> None:
    """When a signal comes, ask this for an error that the process ends with instead, if it knows one.

    Whoever stops all ranks after a failure also stops those that were about to say what had failed.
    """
    _causes.append(cause)


@contextmanager
def stopping_on_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """While the work inside goes on, the first signal only asks it to stop; a second one ends the process."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def end_now(error: LockstepError, clean_ups: CleanUps) -> NoReturn:
    """End the process with an error, whatever its other threads are doing."""
    _end(error.line, clean_ups, 1)


def ignore_further_signals() -> None:
    """From here on the process ends by its own work; if a signal or a loss has begun to end it, this never returns.

    So a process ends once: with one message, one report and one exit code.
    """
    if not _by_its_work.is_set():
        _first.acquire()
        _by_its_work.set()


def _end(message: str, clean_ups: CleanUps, code: int) -> NoReturn:
    _first.acquire(timeout=PATIENCE_SECONDS if _by_its_work.is_set() else -1)
    try:
        print(message, file=sys.stderr, flush=True)
        for clean_up in clean_ups:
            clean_up()
    finally:
        os._exit(code)
