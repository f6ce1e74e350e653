"""The key-value store through which the backend connects, over the connections of the join and with a deadline."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist

STORE_SECONDS = 300.0  # if Gloo sets no limit


class Values(Protocol):
    """A store of small values for all ranks: rank 0's registrar, or a connection to it."""

    def put(self, key: str, value: bytes, deadline: float) -> None:
        """Store a value for all ranks; raises TimeoutError at the deadline."""

    def get(self, key: str, deadline: float) -> bytes:
        """Wait for a value; raises TimeoutError at the deadline."""


class Rendezvous(dist.Store):
    """The store for PyTorch, whose own store waits forever for a rank 0 that stops responding."""

    def __init__(self, values: Values, attempt: int = 0) -> None:
        """Each attempt has its own keys, so that it cannot read an earlier attempt's values."""
        super().__init__()
        self._values, self._attempt = values, attempt
        self._found: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else value
        self._values.put(self._name(key), content, time.monotonic() + STORE_SECONDS)

    def get(self, key: str) -> bytes:
        self.wait([key], timedelta(seconds=STORE_SECONDS))
        return self._found[key]

    def wait(self, keys: Sequence[str], timeout: timedelta = timedelta(seconds=STORE_SECONDS)) -> None:
        deadline = time.monotonic() + timeout.total_seconds()
        for key in keys:
            if key not in self._found:
                self._found[key] = self._values.get(self._name(key), deadline)

    def _name(self, key: str) -> str:
        return f"attempt {self._attempt}: {key}"


def within(seconds: float, work: Callable[[], None]) -> None:
    """Run this in a thread, which is abandoned at the time limit.

    Raises the error of `work`, or TimeoutError at the limit, even while the backend waits.
    """
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="rendezvous", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise TimeoutError("the backend did not connect in time")
