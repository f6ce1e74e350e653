"""Messages of a single number between two ranks, and round-trip times."""

import time

import torch

from app.cluster.wire.communicator import Communicator


def give(communicator: Communicator, to: int, value: float) -> None:
    communicator.start_send(torch.tensor(value, dtype=torch.float64), to).wait()


def take(communicator: Communicator, source: int) -> float:
    value = torch.empty((), dtype=torch.float64)
    communicator.start_receive(value, source).wait()
    return value.item()


def ping(communicator: Communicator, other: int) -> float:
    """Seconds of a round trip of 8 bytes to a rank that runs `answer_pings`."""
    began = time.perf_counter()
    give(communicator, other, 0)
    take(communicator, other)
    return time.perf_counter() - began


def answer_pings(communicator: Communicator, asking: int, pings: int) -> None:
    """Return each number at once, for a rank that calls `ping`."""
    for _ in range(pings):
        give(communicator, asking, take(communicator, asking))
