"""The measured rates of each link, compared with the requested ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median_high
from typing import NamedTuple

from app.cluster.wire.bandwidth import LinkSpeed
from app.records.manifest import Direction, Link, RoundTrip
from app.settings.links import RequestedLink

TOLERANCE = 0.10
# Allowed in a short measurement with all others, in which an unshaped direction has at least twice the rate.
EXCESS = 1.5
# A round trip wakes two processes. Below this time, their wake-up may dominate.
HOST_SECONDS = 0.0005
CROSSINGS = 4  # of shaped devices in a round trip: out of one rank, into the other, and back
HEADERS_IN_PACKET = 52  # bytes of IP and TCP, part of the MTU
HEADERS_ON_WIRE = 14  # bytes of Ethernet, beyond the MTU


class Flow(NamedTuple):
    """Payload from one rank to another while every rank sends to one and receives from one."""

    sender: int
    receiver: int
    bytes_per_second: float


@dataclass(frozen=True)
class Star:
    """Payload per second while one rank exchanges with all others at once; 0 if not measured."""

    sent: float
    received: float


def speed_of(link: Link) -> LinkSpeed:
    return LinkSpeed(link.sent.measured_bytes_per_second, link.received.measured_bytes_per_second)


def links_of(
    flows: Sequence[Flow],
    stars: Sequence[Star],
    round_trips: Sequence[float],
    requested: Sequence[RequestedLink],
    mtu_bytes: Sequence[int],
) -> list[Link]:
    carries = [payload_rate(each.bits_per_second, mtu) for each, mtu in zip(requested, mtu_bytes, strict=True)]
    links = []
    for rank, own in enumerate(requested):
        sent = [flow for flow in flows if flow.sender == rank]
        received = [flow for flow in flows if flow.receiver == rank]
        links.append(
            Link(
                _direction(rank, own, sent, stars[rank].sent, carries),
                _direction(rank, own, received, stars[rank].received, carries),
                _round_trip(own, round_trips[rank]),
                own.loss,
            )
        )
    return links


def payload_rate(bits_per_second: float | None, mtu_bytes: int) -> float | None:
    """Payload per second of a link with this rate, in full packets."""
    if bits_per_second is None:
        return None
    return bits_per_second / 8 * (mtu_bytes - HEADERS_IN_PACKET) / (mtu_bytes + HEADERS_ON_WIRE)


def rate_of(payload_bytes_per_second: float, mtu_bytes: int) -> float:
    """The rate, in bits per second, of a link with this payload per second, in full packets."""
    return payload_bytes_per_second * 8 * (mtu_bytes + HEADERS_ON_WIRE) / (mtu_bytes - HEADERS_IN_PACKET)


def deviations(links: Sequence[Link]) -> list[str]:
    """One phrase for every figure outside the tolerance."""
    return list(chain.from_iterable(_deviations(rank, link) for rank, link in enumerate(links)))


def _direction(
    rank: int,
    own: RequestedLink,
    flows: Sequence[Flow],
    star: float,
    carries: Sequence[float | None],
) -> Direction:
    """Take only the flows with the fastest partners, because a slower partner hides the link's limit."""
    expected = [
        min((rate for end in (flow.sender, flow.receiver) if (rate := carries[end]) is not None), default=None)
        for flow in flows
    ]
    widest = max((rate for rate in expected if rate is not None), default=None)
    if None in expected:
        widest = None  # some pair of ranks is unshaped
    seen = [flow.bytes_per_second for flow, rate in zip(flows, expected, strict=True) if rate == widest]
    # The fastest flow shows a shaped link's limit, because other work can only slow a flow down. An unshaped link is
    # limited by the host, and its median flow is typical.
    measured = max(seen) if own.bits_per_second else median_high(seen)
    together = _together(rank, carries)
    if own.bits_per_second and together and star > together * EXCESS:
        widest, measured = together, star
    error = measured / widest - 1 if own.bits_per_second and widest else None
    return Direction(own.bits_per_second, widest, measured, error)


def _together(rank: int, carries: Sequence[float | None]) -> float | None:
    """The rate at which a rank can exchange with all others at once."""
    others = [rate for other, rate in enumerate(carries) if other != rank]
    limits = [carries[rank], None if None in others else sum(rate for rate in others if rate is not None)]
    return min((rate for rate in limits if rate is not None), default=None)


def _round_trip(own: RequestedLink, measured: float) -> RoundTrip:
    expected = CROSSINGS * own.delay_seconds if own.delay_seconds else None
    return RoundTrip(expected, measured, measured / expected - 1 if expected else None)


def _deviations(rank: int, link: Link) -> list[str]:
    found = []
    # TCP never fills a link that loses packets, and fills one with a delay only after some time.
    least = -1.0 if link.asked_loss or link.round_trip.asked_seconds else -TOLERANCE
    for name, each in (("sending", link.sent), ("receiving", link.received)):
        if each.error is None or each.expected_bytes_per_second is None:
            continue
        if not least <= each.error <= TOLERANCE:
            found.append(
                f"rank {rank}, {name}: {each.measured_bytes_per_second / 1e6:.2f} MB/s, "
                f"expected {each.expected_bytes_per_second / 1e6:.2f} ({each.error:+.0%})"
            )
    trip = link.round_trip
    if trip.asked_seconds is not None:
        least, most = trip.asked_seconds * (1 - TOLERANCE), trip.asked_seconds * (1 + TOLERANCE) + HOST_SECONDS
        if not least <= trip.measured_seconds <= most:
            found.append(
                f"rank {rank}, round trip: {trip.measured_seconds * 1e3:.2f} ms, "
                f"expected {trip.asked_seconds * 1e3:.2f} ({trip.error:+.0%})"
            )
    return found
