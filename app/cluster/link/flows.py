"""Timed flows between ranks: the throughput of a link while all are busy, and of a rank's own link alone."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from app.cluster.link.measured import Star
from app.cluster.wire.communicator import Communicator, Transfer
from app.settings.links import RequestedLink

FLOW_SECONDS = (0.1, 0.2)  # a trial, in which TCP ramps up, and the measurement, sized by the trial
UNSHAPED_FLOW_SECONDS = (0.05, 0.1)  # without LINK_ settings, where a few per cent do not matter
STAR_SECONDS = 0.1
PIECES_AHEAD = 4  # receives posted in advance, unless all are; also the number of buffers
ELEMENT_BYTES = 4
PIECES_IN_A_FLOW = 20
UNCOUNTED_PART = 5  # the first 1/5 of the pieces is not counted: it holds an idle link's burst and TCP's start
LEAST_PIECES = 4
LEAST_PIECE_BYTES = 1 << 15
MOST_PIECE_BYTES = 1 << 22


class Pieces(NamedTuple):
    """The number and size of the pieces of a flow."""

    number: int
    size: int  # bytes


PROBE = Pieces(8, 1 << 14)


def flow_rates(
    communicator: Communicator, distances: Sequence[int], requested: Sequence[RequestedLink], times: int
) -> list[float]:
    """The rates of flows over these distances, in bytes per second. Each flow takes `times` its usual duration.

    Without LINK_ settings, each flow also replaces the trial of the next one.
    """
    rates: list[float] = []
    for distance in distances:
        tried = rates[-1] if rates and not any(requested) else None
        rates.append(_flow(communicator, distance, requested, tried, times))
    return rates


def _flow(
    communicator: Communicator, distance: int, requested: Sequence[RequestedLink], tried: float | None, times: int
) -> float:
    """Payload per second from the rank `distance` before this one, while this one sends to the rank `distance` after.

    It starts with a trial, unless `tried`, an earlier flow's rate, is given. Without LINK_ settings all flows have the
    same size, because otherwise the largest would end alone on the host.
    """
    to = (communicator.rank + distance) % communicator.world_size
    source = (communicator.rank - distance) % communicator.world_size
    limits = [_most(requested, each, each - distance) for each in range(communicator.world_size)]
    at_once = limits[communicator.rank] < math.inf
    trial, measurement = FLOW_SECONDS if any(requested) else UNSHAPED_FLOW_SECONDS
    rate = tried or _pass(communicator, to, PROBE, source, PROBE, at_once)
    for seconds in (measurement * times,) if tried else (trial, measurement * times):
        rates = [float(each) for each in communicator.all_gather(torch.tensor(rate, dtype=torch.float64))]
        if any(requested):  # a probe fits into a link's burst, so it can be faster than the link
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
    """Bytes of a piece on a link with this limit in bytes per second."""
    in_order = communicator.bytes_in_order
    return MOST_PIECE_BYTES if in_order is None or limit == math.inf else in_order


def _most(requested: Sequence[RequestedLink], *ends: int) -> float:
    """The requested limit for these ranks' links, in bytes per second, headers included."""
    return min((requested[end].bits_per_second or math.inf) / 8 for end in ends)


def star_seconds(communicator: Communicator, centre: int, requested: Sequence[RequestedLink]) -> tuple[float, float]:
    """Seconds until all has arrived at this rank: with `centre` sending to all others, then receiving from all.

    A flow between two ranks passes two shaped directions and does not show which one limits it. Here only the centre's
    link can be the limit, unless the others' are slower together. Without a requested rate for it, nothing is measured.
    """
    pieces = _star_pieces(centre, requested)
    if not pieces:
        return 0.0, 0.0
    if communicator.rank == centre:
        return _exchange(communicator, pieces, {}), _exchange(communicator, {}, pieces)
    own = {centre: pieces[communicator.rank]}
    return _exchange(communicator, {}, own), _exchange(communicator, own, {})


def _exchange(communicator: Communicator, to: Mapping[int, Pieces], sources: Mapping[int, Pieces]) -> float:
    """Send pieces to each of `to`, and receive pieces from each source; returns seconds until all has arrived."""
    outgoing = {rank: torch.ones(pieces.size // ELEMENT_BYTES) for rank, pieces in to.items()}
    communicator.wait_for_peers()
    began = time.monotonic()
    transfers = [
        communicator.start_receive(torch.empty(pieces.size // ELEMENT_BYTES), source, tag=piece)
        for source, pieces in sources.items()
        for piece in range(pieces.number)
    ]
    transfers += [
        communicator.start_send(outgoing[rank], rank, tag=piece)
        for rank, pieces in to.items()
        for piece in range(pieces.number)
    ]
    for transfer in transfers:
        transfer.wait()
    return time.monotonic() - began


def star_rates(centre: int, requested: Sequence[RequestedLink], seconds: Sequence[tuple[float, float]]) -> Star:
    """The centre's rates, from each rank's seconds outwards and inwards."""
    others = [outwards for rank, (outwards, _) in enumerate(seconds) if rank != centre]
    _, inwards = seconds[centre]
    total = sum(pieces.number * pieces.size for pieces in _star_pieces(centre, requested).values())
    return Star(total / max(others), total / inwards) if total else Star(0.0, 0.0)


def _star_pieces(centre: int, requested: Sequence[RequestedLink]) -> dict[int, Pieces]:
    """The pieces between the centre and each other rank; none without a requested rate, or with two ranks.

    Each rank's share is proportional to its link's rate, so that a slow link does not delay the end.
    """
    rate = requested[centre].bits_per_second
    if rate is None or len(requested) == 2:
        return {}
    limits = {
        rank: min(rate, link.bits_per_second or math.inf) for rank, link in enumerate(requested) if rank != centre
    }
    together = sum(limits.values())
    total = max(min(rate, together) / 8 * STAR_SECONDS, len(limits) * LEAST_PIECES * LEAST_PIECE_BYTES)
    shares = {rank: total * limit / together for rank, limit in limits.items()}
    return {
        rank: _pieces_for(share, least=min(LEAST_PIECE_BYTES, share / LEAST_PIECES)) for rank, share in shares.items()
    }


def _pieces_for(payload: float, largest: int = MOST_PIECE_BYTES, least: float = LEAST_PIECE_BYTES) -> Pieces:
    """Pieces that add up to about this many bytes."""
    size = int(min(max(payload / PIECES_IN_A_FLOW, least), largest))
    return Pieces(max(LEAST_PIECES, int(payload / size)), size)


def _pass(communicator: Communicator, to: int, given: Pieces, source: int, wanted: Pieces, at_once: bool) -> float:
    """Send and receive some pieces; returns the payload received per second once the flow had started.

    A sender waits until the receiver has requested a piece. If the receiver also sends to that rank, its requests queue
    behind its own data in their shared connection. A flow of small pieces is then slower than a flow of large pieces in
    the other direction by the ratio of the sizes, whatever the link's rate. So on a link with a requested rate, all
    requests are sent `at_once`, before any data. A link without a limit is as fast as the host, and there a few
    outstanding requests keep the flow in step with this rank's work.

    If a backend does not keep pieces in order, all requested pieces complete together, and after the first one nothing
    is left to time. So on links with a requested rate the pieces are small enough to arrive in order, and a probe,
    which may have arrived completely before the first wait, is timed from the start.
    """
    # Ones, not zeros, and more than the caches hold, like gradients: all zeros would map to a single page.
    outgoing = [torch.ones(given.size // ELEMENT_BYTES) for _ in range(PIECES_AHEAD)]
    buffers = [torch.empty(wanted.size // ELEMENT_BYTES) for _ in range(PIECES_AHEAD)]
    sums = torch.zeros_like(buffers[0])
    receives: list[Transfer] = []

    def request(pieces: int) -> None:
        while len(receives) < min(pieces, wanted.number):
            buffer = buffers[len(receives) % PIECES_AHEAD]
            receives.append(communicator.start_receive(buffer, source, tag=len(receives)))

    request(wanted.number if at_once else 0)
    communicator.wait_for_peers()
    sends = [communicator.start_send(outgoing[piece % PIECES_AHEAD], to, tag=piece) for piece in range(given.number)]
    from_the_start = wanted == PROBE and communicator.bytes_in_order is not None
    uncounted = 0 if from_the_start else wanted.number // UNCOUNTED_PART or 1
    began = time.monotonic()
    for piece in range(wanted.number):
        request(piece + PIECES_AHEAD)
        receives[piece].wait()
        if piece % 2 == 0:  # an all-reduce also sums half of its data, on the same cores
            sums += buffers[piece % PIECES_AHEAD]
        if piece + 1 == uncounted:
            began = time.monotonic()
    seconds = time.monotonic() - began
    for transfer in sends:
        transfer.wait()
    return (wanted.number - uncounted) * buffers[0].nbytes / seconds
