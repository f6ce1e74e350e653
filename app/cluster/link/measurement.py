"""Measures every rank's link before a run, in about a second: throughput while all ranks send, and round-trip time.

In each of three rounds, every rank sends to one other rank and receives from one, all at once, as the algorithms do.
Each direction of each link then carries one flow, limited only by the link or the host. If links are shaped, each rank
in turn also sends to all others and receives from all, which shows that its own link is the limit.
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

ROUNDS = 3  # each with other partners, as long as there are any
PINGS = 10
PINGS_SECONDS = 0.1  # fewer pings if they would take longer
LEAST_PINGS = 2
TIMES = (1, 2, 4)  # an interruption of some milliseconds counts less in a longer flow


@dataclass(frozen=True)
class LinkSamples:
    """One rank's measurements."""

    round_trip: float  # seconds
    flows: list[float]  # bytes per second, each from one rank
    stars: list[tuple[float, float]]  # seconds outwards and inwards, by the rank in the centre
    mtu: int


def measure_links(requested: LinkSettings, cluster: Cluster, communicator: Communicator) -> list[Link] | None:
    """Every rank's link, by rank, the same on all ranks; None for a single rank, or if LINK_CHECK is off.

    Only the communicator's ranks take part, but all ranks of the cluster call this.
    Figures that miss the request are measured again, for longer: other work can spoil a quarter of a second.
    """
    if requested.link_check == "off" or communicator.world_size == 1:
        return None
    asked = [requested.of(rank) for rank in range(communicator.world_size)]
    for times in TIMES:
        links = _measure(cluster, communicator, asked, times)
        if not deviations(links):
            break
    return links


def insist_on(links: Sequence[Link] | None, requested: LinkSettings, cluster: Cluster) -> None:
    """End a run whose links miss what was requested, if LINK_CHECK is strict."""
    found = deviations(links or [])
    if found and requested.link_check == "strict":
        error = LinkError(
            f"rank {cluster.rank}: the network misses the LINK_* settings by more than 10 %: {'; '.join(found)}.\n"
            "Either the links were not shaped (the image's entrypoint does it, with the capability NET_ADMIN), or this "
            "host cannot move that much (start without LINK_RATE to see its limit), or something else uses it. "
            "LINK_CHECK=warn trains anyway."
        )
        error.comes_again = cluster.attempt == 0  # later something else may have kept the host busy
        raise error


def describe(links: Sequence[Link]) -> str:
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


def _measure(cluster: Cluster, communicator: Communicator, asked: Sequence[RequestedLink], times: int) -> list[Link]:
    world_size = communicator.world_size
    distances = [number % (world_size - 1) + 1 for number in range(ROUNDS)]
    own = None
    if cluster.rank < world_size:
        own = LinkSamples(
            _round_trip(communicator, asked),
            flow_rates(communicator, distances, asked, times),
            [star_seconds(communicator, centre, asked) for centre in range(world_size)],
            _mtu(cluster),
        )
    everyones = [LinkSamples(**each) for each in cluster.exchange("links", own and asdict(own)) if each]
    flows = [
        Flow((rank - distance) % world_size, rank, rate)
        for rank, each in enumerate(everyones)
        for distance, rate in zip(distances, each.flows, strict=True)
    ]
    stars = [star_rates(centre, asked, [each.stars[centre] for each in everyones]) for centre in range(world_size)]
    return links_of(flows, stars, [each.round_trip for each in everyones], asked, [each.mtu for each in everyones])


def _mtu(cluster: Cluster) -> int:
    try:
        return mtu_bytes(cluster.me.interface)
    except OSError:
        raise cut_off(cluster.rank, cluster.me.interface) from None


def _round_trip(communicator: Communicator, asked: Sequence[RequestedLink]) -> float:
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
