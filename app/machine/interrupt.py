"""Ends the process at once, on a signal or after a loss, even during a wait inside the backend.

Python cannot interrupt such a wait.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)

CleanUps = list[Callable[[], object]]

_ending = threading.Lock()  # a process ends once


def end_on_signal() -> CleanUps:
    """Let SIGTERM and SIGINT end the process with the shell's code for them, after the clean-ups in the list returned.

    Call it before any thread starts (importing torch starts some): all threads then leave these signals to the one
    that waits here.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    clean_ups: CleanUps = []

    def wait() -> None:
        number = signal.sigwait(SIGNALS)
        _end(f"stopped by {signal.Signals(number).name}", clean_ups, 128 + number)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return clean_ups


def end_now(error: str, clean_ups: CleanUps) -> NoReturn:
    """End the process with an error, whatever its other threads are doing."""
    _end(f"error: {error}", clean_ups, 1)


def _end(message: str, clean_ups: CleanUps, code: int) -> NoReturn:
    _ending.acquire()
    try:
        print(message, file=sys.stderr, flush=True)
        for clean_up in clean_ups:
            clean_up()
    finally:
        os._exit(code)
