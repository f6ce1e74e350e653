"""Measures latency and bandwidth between two ranks, and verifies the numbers that arrive."""

import statistics
import time
from dataclasses import dataclass

import torch

from app.cluster.wire.communicator import Communicator
from app.cluster.wire.messages import answer_pings, give, ping, take
from app.tools.doctor.programs import numbers

PINGS = 20
WARM_UP_PINGS = 3  # the first ones wake the other rank up
TRANSFERS = 5  # the fastest counts: other work on the host can only slow one down
TRANSFER_SECONDS = 0.05  # the intended duration of a bandwidth message
ELEMENT_BYTES = 8
FEWEST_ELEMENTS = 2**16 // ELEMENT_BYTES  # 64 KiB
MOST_ELEMENTS = 2**23 // ELEMENT_BYTES  # 8 MiB


@dataclass(frozen=True)
class PairFigures:
    """The measurements of one direction between two ranks."""

    latency_seconds: float  # one way: half the median round trip of 8 bytes
    quickest_latency_seconds: float  # half the fastest round trip: closest to the link's own latency
    bytes_per_second: float
    wrong_elements: int  # numbers that arrived corrupted


def measure_pair(communicator: Communicator, sender: int, receiver: int) -> PairFigures | None:
    """Measure one direction between two ranks. Every rank must call this, but only the sender receives figures."""
    figures = None
    if communicator.rank == sender:
        round_trips = [ping(communicator, receiver) for _ in range(WARM_UP_PINGS + PINGS)][WARM_UP_PINGS:]
        one_way = min(round_trips) / 2
        speed, wrong = 0.0, 0
        for _ in range(TRANSFERS):
            # The first message is small. Later ones are sized by the highest speed so far.
            elements = int(min(max(speed * TRANSFER_SECONDS / ELEMENT_BYTES, FEWEST_ELEMENTS), MOST_ELEMENTS))
            reached, damaged = _send(communicator, receiver, elements, one_way)
            speed, wrong = max(speed, reached), wrong + damaged
        figures = PairFigures(statistics.median(round_trips) / 2, one_way, speed, wrong)
    elif communicator.rank == receiver:
        answer_pings(communicator, sender, WARM_UP_PINGS + PINGS)
        for _ in range(TRANSFERS):
            _receive(communicator, sender)
    communicator.wait_for_peers()
    return figures


def _send(communicator: Communicator, receiver: int, elements: int, one_way: float) -> tuple[float, int]:
    """Bytes per second until the receiver's confirmation, and the number of elements that arrived corrupted."""
    message = numbers(communicator.rank, elements)
    give(communicator, receiver, elements)
    take(communicator, receiver)  # its buffer is ready
    began = time.perf_counter()
    communicator.start_send(message, receiver).wait()
    take(communicator, receiver)
    seconds = time.perf_counter() - began
    # Subtract the latency of the confirmation, but at most half of the total.
    return message.nbytes / max(seconds - one_way, seconds / 2), int(take(communicator, receiver))


def _receive(communicator: Communicator, sender: int) -> None:
    elements = int(take(communicator, sender))
    message = torch.full((elements,), -1, dtype=torch.float64)
    receiving = communicator.start_receive(message, sender)
    give(communicator, sender, 0)
    receiving.wait()
    give(communicator, sender, 0)
    give(communicator, sender, int((message != numbers(sender, elements)).sum()))
