"""Ends the process at once, on a signal or after a loss, even during a wait in the backend.

Python cannot interrupt that wait.
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

PATIENCE_SECONDS = 10.0  # for work that is already ending by itself
STOP_SECONDS = 20.0  # for work to stop at a resume point; compose.yaml allows ten more

_first = threading.Lock()  # held by the thread that ends the process, until it has ended
_ends_by_itself = threading.Event()
_causes: list[Callable[[], LockstepError | None]] = []
_stops: list[Callable[[int], None]] = []


def end_on_signal() -> CleanUps:
    """On SIGTERM or SIGINT, run the clean-ups in the returned list and exit with the shell's code for the signal.

    Call this before any thread starts (importing torch starts some), because all threads must inherit the mask that
    leaves these signals to the thread started here.
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
            if second := signal.sigtimedwait(SIGNALS, STOP_SECONDS):
                number = second.si_signo
        _end(f"stopped by {signal.Signals(number).name}", clean_ups, 128 + number)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return clean_ups


def ask_on_signal(cause: Callable[[], LockstepError | None]) -> None:
    """On a signal, end the process with the error that `cause` returns, if any.

    A launcher that stops all ranks after a failure also stops the ranks that were about to report it.
    """
    _causes.append(cause)


@contextmanager
def stopping_on_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """In the body, the first signal only calls `stop`. A second one ends the process."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def end_now(error: LockstepError, clean_ups: CleanUps) -> NoReturn:
    """End the process with an error, whatever other threads are doing."""
    _end(error.line, clean_ups, 1)


def ignore_further_signals() -> None:
    """From here on, the process ends by itself. If a signal or a loss is already ending it, this never returns.

    So a process ends only once, with one message, one report and one exit code.
    """
    if not _ends_by_itself.is_set():
        _first.acquire()
        _ends_by_itself.set()


def _end(message: str, clean_ups: CleanUps, code: int) -> NoReturn:
    _first.acquire(timeout=PATIENCE_SECONDS if _ends_by_itself.is_set() else -1)
    try:
        print(message, file=sys.stderr, flush=True)
        for clean_up in clean_ups:
            clean_up()
    finally:
        os._exit(code)
