"""How the backend's processes find each other: through the connections of the join, within a limit of our own."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist

STORE_SECONDS = 300.0  # if Gloo names no limit


class Values(Protocol):
    """What keeps small values for all ranks: rank 0's registrar, or the way to it."""

    def put(self, key: str, value: bytes, deadline: float) -> None:
        """Keep a value."""

    def get(self, key: str, deadline: float) -> bytes:
        """A value, once it is there."""


class Rendezvous(dist.Store):
    """The store that PyTorch asks for. PyTorch's own waits without a limit for a rank 0 that falls silent."""

    def __init__(self, values: Values, attempt: int = 0) -> None:
        """What one attempt of a run says, no other one hears."""
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
    """Connect, in a thread that is left behind if it takes longer.

    An error is a RuntimeError or a TimeoutError, at the limit at the latest, whatever the backend waits for.
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
