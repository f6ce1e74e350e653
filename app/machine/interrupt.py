"""Ends on a signal at once, even during a wait inside the backend, where Python cannot be interrupted."""

import os
import signal
import sys
import threading
from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)

CleanUps = list[Callable[[], object]]


def end_on_signal() -> CleanUps:
    """Let SIGTERM and SIGINT end the process with the shell's code for them, after the clean-ups in the list returned.

    Call it before any thread starts (importing torch starts some): all threads then leave these signals to the one
    that waits here.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    clean_ups: CleanUps = []

    def wait() -> None:
        number = signal.sigwait(SIGNALS)
        try:
            print(f"stopped by {signal.Signals(number).name}", file=sys.stderr, flush=True)
            for clean_up in clean_ups:
                clean_up()
        finally:
            os._exit(128 + number)

    threading.Thread(target=wait, name="signals", daemon=True).start()
    return clean_ups
