"""Messages of a single number between two ranks, and the time of a round trip."""

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
    """Send each number back at once."""
    for _ in range(pings):
        give(communicator, asking, take(communicator, asking))
