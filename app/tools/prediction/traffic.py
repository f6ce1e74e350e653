"""The exchanges of a step, as the mode makes them: which schedule, how many bytes, and which costs it has."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np
import torch

from app.settings.averaging import AveragingSettings
from app.sync.compressors import compressor_class
from app.sync.exchange import Exchange, OneByOne
from app.sync.modes import mode_class
from app.sync.modes.bucketed_all_reduce import BUCKET_BYTES
from app.sync.modes.gather_scatter import GatherScatter
from app.sync.modes.ring_all_reduce import ring
from app.sync.rounds import Scheduled
from app.sync.schedules.schedule import Message, Schedule, elements_in
from app.tools.prediction.exchange import Passing
from app.tools.prediction.waves import Figures, Wave, limit_in_flight, waves_of

# Whose costs: of our own rounds of messages, of the backend's all-reduce, of its gather and scatter, of its barrier.
Family = Literal["rounds", "all_reduce", "star", "barrier"]

ELEMENT_BYTES = 4  # of gradients in PRECISION=fp32
ONE_BIT = 1 / 8  # in bytes
DDP_FIRST_BYTES, DDP_BYTES = 1 << 20, 25 << 20  # of PyTorch, unless BUCKET_BYTES asks for others
# Gloo cuts what travels in a round of its ring in two, or into pieces of at most so many bytes, of which a rank has so
# many under way.
SEGMENT_BYTES, SEGMENTS = 1 << 20, 2


@dataclass(frozen=True)
class SimulatedExchange:
    """One exchange of a vector."""

    family: Family
    waves: list[Wave]
    element_bytes: float

    @cached_property
    def in_turn(self) -> bool:
        """Whether no message passes at the same time as another."""
        return all(len(wave.senders) == 1 for wave in self.waves)

    def passed(self, ranks: int) -> Figures:
        """By rank: 1 exchange, how many messages it sends and receives, how many bytes it sends, receives and adds."""
        passed = np.zeros((3, ranks))
        passed[0] = 1
        _, messages, sizes = passed
        for wave in self.waves:
            size = wave.elements * self.element_bytes
            messages[wave.senders] += 1
            messages[wave.receivers] += 1
            sizes[wave.senders] += size
            sizes[wave.receivers] += size * (1 + wave.adds)
        return passed

    def cpu(self, costs: Passing, ranks: int) -> Figures:
        """Seconds by rank."""
        return np.array([costs.call, costs.message, costs.byte]) @ self.passed(ranks)


def overlaps(averaging: AveragingSettings) -> bool:
    return averaging.sync_mode != "none" and not issubclass(mode_class(averaging.sync_mode), Exchange)


@cache
def barrier(ranks: int) -> SimulatedExchange:
    """The backend's own: in each round a rank tells one twice as far away, and what it carries is nothing."""
    nothing = range(1)  # of which each element has no bytes: only so a message waits for the one before it
    distances = [1 << number for number in range((ranks - 1).bit_length())]
    rounds = [[Message(r, (r + far) % ranks, nothing, adds=False) for r in range(ranks)] for far in distances]
    return SimulatedExchange("barrier", waves_of(Schedule.of(*rounds), ranks), 0.0)


def traffic(averaging: AveragingSettings, shapes: Sequence[torch.Size], ranks: int) -> list[SimulatedExchange]:
    """What passes the wire in a step in which ranks average, one exchange after another."""
    mode = mode_class(averaging.sync_mode)
    if ranks == 1 or averaging.sync_mode == "none":
        return []
    if not issubclass(mode, Exchange):
        return [part for _, part in buckets(averaging, shapes, ranks)]
    return [_part(mode, *each, averaging, ranks) for each in _vectors(mode, averaging, shapes)]


def buckets(
    averaging: AveragingSettings, shapes: Sequence[torch.Size], ranks: int
) -> list[tuple[int, SimulatedExchange]]:
    """Each with how many gradients have to be there, the last parameter's first; the one that fills it closes it."""
    asked, element_bytes = averaging.bucket_bytes, ELEMENT_BYTES
    if averaging.sync_mode == "ddp":
        limits = [DDP_FIRST_BYTES if asked is None else asked, DDP_BYTES if asked is None else asked]
    else:
        limits = [asked or BUCKET_BYTES] * 2
    found: list[tuple[int, SimulatedExchange]] = []
    elements = 0
    for number, shape in enumerate(reversed(shapes), 1):
        elements += shape.numel()
        if elements * element_bytes >= limits[min(len(found), 1)] or number == len(shapes):
            found.append((number, all_reduce_of(elements, element_bytes, ranks)))
            elements = 0
    return found


def all_reduce_of(elements: int, element_bytes: float, ranks: int) -> SimulatedExchange:
    most = min(max(1, math.ceil(elements / ranks / SEGMENTS)), elements_in(SEGMENT_BYTES, element_bytes))
    return SimulatedExchange(
        "all_reduce", limit_in_flight(SEGMENTS, waves_of(ring(elements, ranks), ranks, most)), element_bytes
    )


def _vectors(
    mode: type[Exchange], averaging: AveragingSettings, shapes: Sequence[torch.Size]
) -> Iterator[tuple[int, float]]:
    """How many elements each has, and of how many bytes."""
    sizes, element_bytes = [shape.numel() for shape in shapes], ELEMENT_BYTES
    if averaging.compression != "none":
        messages = compressor_class(averaging.compression).messages(shapes, element_bytes, averaging)
        yield from ((message.elements, message.element_bytes) for message in messages)
        if not messages:  # signs, through the mode's own exchange
            yield sum(sizes), ONE_BIT
    elif issubclass(mode, OneByOne):
        yield from ((size, element_bytes) for size in sizes)
    else:
        yield sum(sizes), element_bytes


def _part(
    mode: type[Exchange], elements: int, element_bytes: float, averaging: AveragingSettings, ranks: int
) -> SimulatedExchange:
    schedule: Schedule | None = mode.schedule(elements, ranks, averaging)
    if schedule is None:
        return all_reduce_of(elements, element_bytes, ranks)
    if issubclass(mode, GatherScatter):
        return SimulatedExchange("star", waves_of(schedule, ranks), element_bytes)
    if issubclass(mode, Scheduled):
        most = elements_in(mode.piece_bytes, element_bytes)
        return SimulatedExchange("rounds", waves_of(schedule, ranks, most, requests=True), element_bytes)
    return SimulatedExchange("rounds", waves_of(schedule, ranks), element_bytes)
