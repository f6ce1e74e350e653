"""Measures every rank's link before a run, in about a second: throughput while all ranks send, and round-trip time.

In each of three rounds, every rank sends to one other rank and receives from one, all at once, as in collectives.
Each direction of each link then carries one flow, limited only by the link or the host. On shaped links, each rank in
turn also sends to all others and receives from all, which shows that its own link is the limit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from app.cluster.link.flows import flow_rates, star_rates, star_seconds
from app.cluster.link.measured import Flow, deviations, links_of
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.cluster.wire.messages import answer_pings, ping
from app.errors import LinkError
from app.machine.interfaces import cut_off, mtu_bytes
from app.records.manifest import Link
from app.settings.links import LinkSettings, RequestedLink

ROUNDS = 3  # each with different partners, if there are enough ranks
PINGS = 10
PINGS_SECONDS = 0.1  # fewer pings if they would take longer
LEAST_PINGS = 2
TIMES = (1, 2, 4)  # an interruption of some milliseconds counts less in a longer flow


@dataclass(frozen=True)
class LinkSamples:
    """The measurements of one rank, before they are combined with the others'."""

    round_trip: float  # seconds
    flows: list[float]  # bytes per second, each from one rank
    stars: list[tuple[float, float]]  # seconds outwards and inwards, by central rank
    mtu: int


def measure_links(requested: LinkSettings, cluster: Cluster, communicator: Communicator) -> list[Link] | None:
    """Every rank's link, by rank, the same on all ranks; None for a single rank, or if LINK_CHECK is off.

    Only the communicator's ranks take part, but all ranks of the cluster must call this.
    If a figure is outside the tolerance, all are measured again for longer: other work can disturb short measurements.
    """
    if requested.link_check == "off" or communicator.world_size == 1:
        return None
    requests = [requested.of(rank) for rank in range(communicator.world_size)]
    for times in TIMES:
        links = _measure(cluster, communicator, requests, times)
        if not deviations(links):
            break
    return links


def insist_on(links: Sequence[Link] | None, requested: LinkSettings, cluster: Cluster) -> None:
    """Raise LinkError if the links do not meet the LINK_ settings and LINK_CHECK is strict."""
    found = deviations(links or [])
    if found and requested.link_check == "strict":
        error = LinkError(
            f"rank {cluster.rank}: the network misses the LINK_* settings by more than 10 %: {'; '.join(found)}.\n"
            "Possible causes: the links were not shaped (the image's entrypoint shapes them, with the capability "
            "NET_ADMIN), other programs use the host, or it is too slow. To see its limit, unset LINK_RATE. "
            "To train anyway, set LINK_CHECK=warn."
        )
        error.deterministic = cluster.attempt == 0  # later, other programs may have kept the host busy
        raise error


def describe(links: Sequence[Link]) -> str:
    sent = [link.sent.measured_bytes_per_second / 1e6 for link in links]
    received = [link.received.measured_bytes_per_second / 1e6 for link in links]
    trips = [link.round_trip.measured_seconds * 1e3 for link in links]
    expected = [rate / 1e6 for link in links if (rate := link.sent.expected_bytes_per_second)]
    limit = f"; requested: at most {_range(expected)}" if expected else ""
    return (
        f"links, measured in MB/s of payload while all are busy: {_range(sent)} sent, {_range(received)} received"
        f"{limit}; round trips {_range(trips)} ms"
    )


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


def _measure(cluster: Cluster, communicator: Communicator, requests: Sequence[RequestedLink], times: int) -> list[Link]:
    world_size = communicator.world_size
    distances = [number % (world_size - 1) + 1 for number in range(ROUNDS)]
    own = None
    if cluster.rank < world_size:
        own = LinkSamples(
            _round_trip(communicator, requests),
            flow_rates(communicator, distances, requests, times),
            [star_seconds(communicator, centre, requests) for centre in range(world_size)],
            _mtu(cluster),
        )
    everyones = [LinkSamples(**each) for each in cluster.exchange("links", own and asdict(own)) if each]
    flows = [
        Flow((rank - distance) % world_size, rank, rate)
        for rank, each in enumerate(everyones)
        for distance, rate in zip(distances, each.flows, strict=True)
    ]
    stars = [star_rates(centre, requests, [each.stars[centre] for each in everyones]) for centre in range(world_size)]
    return links_of(flows, stars, [each.round_trip for each in everyones], requests, [each.mtu for each in everyones])


def _mtu(cluster: Cluster) -> int:
    try:
        return mtu_bytes(cluster.me.interface)
    except OSError:
        raise cut_off(cluster.rank, cluster.me.interface) from None


def _round_trip(communicator: Communicator, requests: Sequence[RequestedLink]) -> float:
    """The fastest of a few round trips to the next rank, while the other ranks are silent.

    Each rank starts after it has answered the rank before it, so no barrier is needed between them.
    """
    rank, world_size = communicator.rank, communicator.world_size
    longest = 4 * max(each.delay_seconds or 0 for each in requests)
    pings = PINGS if longest == 0 else min(PINGS, max(LEAST_PINGS, int(PINGS_SECONDS / longest)))
    communicator.wait_for_peers()
    if rank > 0:
        answer_pings(communicator, rank - 1, pings)
    own = min(ping(communicator, (rank + 1) % world_size) for _ in range(pings))
    if rank == 0:
        answer_pings(communicator, world_size - 1, pings)
    return own
