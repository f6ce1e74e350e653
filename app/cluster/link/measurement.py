"""Measures every rank's link before a run, in about a second: what it carries while all are busy, and its round trip.

In each of three rounds, every rank sends to one other rank and receives from one, all at once, as the algorithms do.
So each direction of each link carries one flow, and only the link or the host limits it. If links are shaped, each
rank in turn then sends to all others and receives from all, which shows that its own link is the limit.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from app.cluster.link.measured import Flow, Star, deviations, links_of
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator, Transfer
from app.cluster.wire.messages import answer_pings, ping
from app.errors import LockstepError
from app.machine.interfaces import cut_off, mtu_bytes
from app.records.manifest import Link
from app.settings.fields import Settings
from app.settings.links import Asked

ROUNDS = 3  # each with other partners, as long as there are any
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
PINGS = 10
PINGS_SECONDS = 0.1  # fewer pings if they would take longer
LEAST_PINGS = 2
ATTEMPTS = 3


class Pieces(NamedTuple):
    """The pieces that a flow is cut into."""

    number: int
    size: int  # bytes


PROBE = Pieces(8, 1 << 14)


@dataclass(frozen=True)
class Seen:
    """One rank's measurements."""

    round_trip: float  # seconds
    flows: list[float]  # bytes per second, each from one rank
    stars: list[tuple[float, float]]  # seconds outwards and inwards, by the rank in the centre
    mtu: int


class LinkError(LockstepError):
    """The network misses what the LINK_ settings request."""


def measure_links(settings: Settings, cluster: Cluster, communicator: Communicator) -> list[Link] | None:
    """Every rank's link, by rank, the same on all ranks; None for a single rank, or if LINK_CHECK is off.

    Only the communicator's ranks take part, but all ranks of the cluster call this.
    Figures that miss the request are measured again: other work on the host can spoil a quarter of a second.
    """
    if settings.link_check == "off" or communicator.world_size == 1:
        return None
    asked = [Asked.of(settings, rank) for rank in range(communicator.world_size)]
    for _ in range(ATTEMPTS):
        links = _measure(cluster, communicator, asked)
        if not deviations(links):
            break
    return links


def insist_on(links: Sequence[Link] | None, settings: Settings, cluster: Cluster) -> None:
    """End a run whose links miss what was requested, if LINK_CHECK is strict."""
    found = deviations(links or [])
    if found and settings.link_check == "strict":
        error = LinkError(
            f"rank {cluster.rank}: the network misses the LINK_* settings by more than 10 %: {'; '.join(found)}.\n"
            "Either the links were not shaped (the image's entrypoint does it, with the capability NET_ADMIN), or this "
            "host cannot move that much (start without LINK_RATE to see its limit), or something else uses it. "
            "LINK_CHECK=warn trains anyway."
        )
        error.comes_again = cluster.attempt == 0  # later something else may have kept the host busy
        raise error


def describe(links: Sequence[Link]) -> str:
    """One line about all links."""
    sent = [link.sent.measured_bytes_per_second / 1e6 for link in links]
    received = [link.received.measured_bytes_per_second / 1e6 for link in links]
    trips = [link.round_trip.measured_seconds * 1e3 for link in links]
    expected = [rate / 1e6 for link in links if (rate := link.sent.expected_bytes_per_second)]
    asked = f"; requested: at most {_range(expected)}" if expected else ""
    return (
        f"links, measured in MB/s of payload while all are busy: {_range(sent)} sent, {_range(received)} received"
        f"{asked}; round trips {_range(trips)} ms"
    )


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


def _measure(cluster: Cluster, communicator: Communicator, asked: Sequence[Asked]) -> list[Link]:
    world_size = communicator.world_size
    distances = [number % (world_size - 1) + 1 for number in range(ROUNDS)]
    own = None
    if cluster.rank < world_size:
        own = Seen(
            _round_trip(communicator, asked),
            _flows(communicator, distances, asked),
            [_star(communicator, centre, asked[centre]) for centre in range(world_size)],
            _mtu(cluster),
        )
    everyones = [Seen(**each) for each in cluster.exchange("links", own and asdict(own)) if each]
    flows = [
        Flow((rank - distance) % world_size, rank, rate)
        for rank, each in enumerate(everyones)
        for distance, rate in zip(distances, each.flows, strict=True)
    ]
    stars = [
        _star_rates(centre, asked[centre], [each.stars[centre] for each in everyones]) for centre in range(world_size)
    ]
    return links_of(flows, stars, [each.round_trip for each in everyones], asked, [each.mtu for each in everyones])


def _mtu(cluster: Cluster) -> int:
    try:
        return mtu_bytes(cluster.me.interface)
    except OSError:
        raise cut_off(cluster.rank, cluster.me.interface) from None


def _round_trip(communicator: Communicator, asked: Sequence[Asked]) -> float:
    """The fastest of a few round trips to the next rank, while the other ranks are silent.

    Each rank asks when it has answered the one before it, so it needs no barrier to know that its turn has come.
    """
    rank, world_size = communicator.rank, communicator.world_size
    longest = 4 * max(each.delay_seconds or 0 for each in asked)
    pings = PINGS if longest == 0 else min(PINGS, max(LEAST_PINGS, int(PINGS_SECONDS / longest)))
    communicator.wait_for_peers()
    if rank > 0:
        answer_pings(communicator, rank - 1, pings)
    own = min(ping(communicator, (rank + 1) % world_size) for _ in range(pings))
    if rank == 0:
        answer_pings(communicator, world_size - 1, pings)
    return own


def _flows(communicator: Communicator, distances: Sequence[int], asked: Sequence[Asked]) -> list[float]:
    """The rates of flows over these distances. Where nothing is asked of any link, one is the next one's trial."""
    rates: list[float] = []
    for distance in distances:
        rates.append(_flow(communicator, distance, asked, rates[-1] if rates and not any(asked) else None))
    return rates


def _flow(communicator: Communicator, distance: int, asked: Sequence[Asked], tried: float | None) -> float:
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


def _most(asked: Sequence[Asked], *ends: int) -> float:
    """Bytes per second that the links of these ranks should let pass, headers included."""
    return min((asked[end].bits_per_second or math.inf) / 8 for end in ends)


def _star(communicator: Communicator, centre: int, asked: Asked) -> tuple[float, float]:
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


def _star_rates(centre: int, asked: Asked, seconds: Sequence[tuple[float, float]]) -> Star:
    """The centre's rates, from the seconds that each rank took outwards and inwards."""
    others = [outwards for rank, (outwards, _) in enumerate(seconds) if rank != centre]
    _, inwards = seconds[centre]
    pieces = _star_pieces(asked, len(others))
    if not pieces.number:
        return Star(0.0, 0.0)
    total = pieces.number * pieces.size * len(others)
    return Star(total / max(others), total / inwards)


def _star_pieces(asked: Asked, others: int) -> Pieces:
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
