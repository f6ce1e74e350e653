"""Timed flows between ranks: what a link carries while all are busy, and what a rank's own link carries alone."""

import math
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from app.cluster.link.measured import Star
from app.cluster.wire.communicator import Communicator, Transfer
from app.settings.links import RequestedLink

FLOW_SECONDS = (0.1, 0.2)  # a trial, in which TCP finds its pace, and the measurement, which the trial sizes
UNASKED_FLOW_SECONDS = (0.05, 0.1)  # where nothing is asked of any link: nothing depends on the last few per cent
STAR_SECONDS = 0.1
PIECES_AHEAD = 4  # that a receiver has asked for, unless it asks for all; so many are in memory
ELEMENT_BYTES = 4
PIECES_IN_A_FLOW = 20
UNCOUNTED_PART = 5  # the first 1/5 of the pieces is not counted: a rested link's burst and TCP's start fall into it
LEAST_PIECES = 4
LEAST_PIECE_BYTES = 1 << 15
MOST_PIECE_BYTES = 1 << 22


class Pieces(NamedTuple):
    """The pieces that a flow is cut into."""

    number: int
    size: int  # bytes


PROBE = Pieces(8, 1 << 14)


def flow_rates(communicator: Communicator, distances: Sequence[int], asked: Sequence[RequestedLink]) -> list[float]:
    """The rates of flows over these distances. Where nothing is asked of any link, one is the next one's trial."""
    rates: list[float] = []
    for distance in distances:
        rates.append(_flow(communicator, distance, asked, rates[-1] if rates and not any(asked) else None))
    return rates


def _flow(communicator: Communicator, distance: int, asked: Sequence[RequestedLink], tried: float | None) -> float:
    """Payload per second from the rank `distance` before this one, while this one sends to the rank `distance` after.

    It begins with a trial, unless a rate has been tried. If nothing is asked of any link, all flows are equally long:
    otherwise the last one would have the host to itself.
    """
    to = (communicator.rank + distance) % communicator.world_size
    source = (communicator.rank - distance) % communicator.world_size
    limits = [_most(asked, each, each - distance) for each in range(communicator.world_size)]
    at_once = limits[communicator.rank] < math.inf
    trial, measurement = FLOW_SECONDS if any(asked) else UNASKED_FLOW_SECONDS
    rate = tried or _pass(communicator, to, PROBE, source, PROBE, at_once)
    for seconds in (measurement,) if tried else (trial, measurement):
        rates = [float(each) for each in communicator.all_gather(torch.tensor(rate, dtype=torch.float64))]
        if any(asked):  # a probe fits into a link's burst, so it can be faster than the link
            expected = [min(pair) for pair in zip(rates, limits, strict=True)]
        else:
            expected = [statistics.median(rates)] * len(rates)
        given, wanted = (
            _pieces_for(expected[each] * seconds, _largest_piece(communicator, limits[each]))
            for each in (to, communicator.rank)
        )
        rate = _pass(communicator, to, given, source, wanted, at_once)
    return rate


def _largest_piece(communicator: Communicator, limit: float) -> int:
    """Bytes of a piece on a link that is asked to carry at most so much."""
    in_order = communicator.bytes_in_order
    return MOST_PIECE_BYTES if in_order is None or limit == math.inf else in_order


def _most(asked: Sequence[RequestedLink], *ends: int) -> float:
    """Bytes per second that the links of these ranks should let pass, headers included."""
    return min((asked[end].bits_per_second or math.inf) / 8 for end in ends)


def star_seconds(communicator: Communicator, centre: int, asked: RequestedLink) -> tuple[float, float]:
    """Seconds until all has arrived here: while one rank sends to all others, and then while all send to that one.

    A flow between two ranks passes two shaped directions and does not show which one limits it. Here only the centre's
    link can. If no rate was requested for it, there is nothing to find out.
    """
    others = [rank for rank in range(communicator.world_size) if rank != centre]
    pieces = _star_pieces(asked, len(others))
    if not pieces.number:
        return 0.0, 0.0
    if communicator.rank == centre:
        return _exchange(communicator, others, [], pieces), _exchange(communicator, [], others, pieces)
    return _exchange(communicator, [], [centre], pieces), _exchange(communicator, [centre], [], pieces)


def _exchange(communicator: Communicator, to: Sequence[int], sources: Sequence[int], pieces: Pieces) -> float:
    """Send these pieces to each of `to`, receive as many from each source; seconds until all has arrived."""
    outgoing = torch.ones(pieces.size // ELEMENT_BYTES)
    communicator.wait_for_peers()
    began = time.monotonic()
    transfers = [
        communicator.start_receive(torch.empty_like(outgoing), source, tag=piece)
        for piece in range(pieces.number)
        for source in sources
    ]
    transfers += [communicator.start_send(outgoing, other, tag=piece) for piece in range(pieces.number) for other in to]
    for transfer in transfers:
        transfer.wait()
    return time.monotonic() - began


def star_rates(centre: int, asked: RequestedLink, seconds: Sequence[tuple[float, float]]) -> Star:
    """The centre's rates, from the seconds that each rank took outwards and inwards."""
    others = [outwards for rank, (outwards, _) in enumerate(seconds) if rank != centre]
    _, inwards = seconds[centre]
    pieces = _star_pieces(asked, len(others))
    if not pieces.number:
        return Star(0.0, 0.0)
    total = pieces.number * pieces.size * len(others)
    return Star(total / max(others), total / inwards)


def _star_pieces(asked: RequestedLink, others: int) -> Pieces:
    """The pieces between the centre and each other rank; none if they would show nothing."""
    if asked.bits_per_second is None or others == 1:
        return Pieces(0, 0)
    return _pieces_for(asked.bits_per_second / 8 * STAR_SECONDS / others)


def _pieces_for(payload: float, largest: int = MOST_PIECE_BYTES) -> Pieces:
    """Pieces that add up to about this many bytes."""
    size = int(min(max(payload / PIECES_IN_A_FLOW, LEAST_PIECE_BYTES), largest))
    return Pieces(max(LEAST_PIECES, int(payload / size)), size)


def _pass(communicator: Communicator, to: int, given: Pieces, source: int, wanted: Pieces, at_once: bool) -> float:
    """Send and receive some pieces; payload received per second once the flow was under way.

    A sender waits until the receiver has asked for a piece. Where the receiver also sends to that rank, its request
    queues behind its own data in their one connection: a flow of small pieces then is as much slower than one of large
    pieces in the other direction as its pieces are smaller, whatever the link carries. So on a link that is asked to
    be slow all requests go `at_once`, ahead of all data. A link without a limit is as fast as the host, and there the
    few requests keep the flow in step with the work of this rank.

    Where a backend keeps no order among pieces, all that were asked for end together, and after the first of them
    nothing is left to time. So on links that are asked to be slow the pieces are small enough to arrive in order, and a
    probe, of which all may be there at the first look, is timed from the start.
    """
    # Real memory, and more than the caches hold, as gradients are: zeros would be one page, again and again.
    outgoing = [torch.ones(given.size // ELEMENT_BYTES) for _ in range(PIECES_AHEAD)]
    places = [torch.empty(wanted.size // ELEMENT_BYTES) for _ in range(PIECES_AHEAD)]
    sums = torch.zeros_like(places[0])
    receives: list[Transfer] = []

    def ask_for(pieces: int) -> None:
        while len(receives) < min(pieces, wanted.number):
            place = places[len(receives) % PIECES_AHEAD]
            receives.append(communicator.start_receive(place, source, tag=len(receives)))

    ask_for(wanted.number if at_once else 0)
    communicator.wait_for_peers()
    sends = [communicator.start_send(outgoing[piece % PIECES_AHEAD], to, tag=piece) for piece in range(given.number)]
    from_the_start = wanted == PROBE and communicator.bytes_in_order is not None
    uncounted = 0 if from_the_start else wanted.number // UNCOUNTED_PART or 1
    began = time.monotonic()
    for piece in range(wanted.number):
        ask_for(piece + PIECES_AHEAD)
        receives[piece].wait()
        if piece % 2 == 0:  # an all-reduce adds up half of what it moves, on the cores that move it
            sums += places[piece % PIECES_AHEAD]
        if piece + 1 == uncounted:
            began = time.monotonic()
    seconds = time.monotonic() - began
    for transfer in sends:
        transfer.wait()
    return (wanted.number - uncounted) * places[0].nbytes / seconds
