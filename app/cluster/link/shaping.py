"""Shapes this rank's link with the kernel's traffic control.

It runs as root with the capability NET_ADMIN. The entrypoint drops both before the program starts.
"""

import subprocess
from collections.abc import Iterator

from app.cluster.identity import interface_of, place_of
from app.errors import SettingError
from app.machine import interfaces
from app.machine.interfaces import LOOPBACK
from app.settings.links import LinkSettings, RequestedLink
from app.settings.place import PlaceSettings

INCOMING = "ifb0"  # the kernel queues only outgoing packets, so incoming ones pass through this device

BURST_SECONDS = 0.002  # the burst of an idle link: with a smaller one, a busy host cannot keep the rate
LEAST_BURST_BYTES = 25_000
QUEUE_SECONDS = 0.05  # after which packets are dropped, as in a switch
PACKET_BYTES = 1500
LARGEST_SEGMENT_BYTES = 65_536  # the kernel's limit for a segment, which holds several packets
SEGMENT_SECONDS = 0.005  # longest time of a segment on the link, because its bytes arrive all at once
FEWEST_PACKETS = 2  # in a segment, however slow the link is
USUAL_QUEUE_PACKETS = 1000
UNSHAPED_BITS_PER_SECOND = 40e9  # assumed for the queue length without a requested rate

Command = list[str]


def shape_link(links: LinkSettings, place: PlaceSettings) -> None:
    number, address = place_of(place)
    # A worker's number is its rank unless the numbers have gaps. Then the join refuses the wrong rate.
    requested = links.of(number)
    if requested:
        _check_own_network()
        _carry_out(requested, interface_of(address))


def rehearse(links: LinkSettings) -> None:
    """Check on the loopback device that this kernel can shape a link, and undo it."""
    _check_own_network()
    try:
        _carry_out(links.of_any_rank, LOOPBACK)
    finally:
        for command in undoing(LOOPBACK):
            _call(command)


def _check_own_network() -> None:
    """Refuse to shape the host's interfaces, which would stay slow. A container's interfaces are ends of pairs."""
    for name in interfaces.names():
        if not interfaces.is_one_end_of_a_pair(name) and name != LOOPBACK:
            raise SettingError(
                f"LINK_*: this container has {name}, an interface of the host, so nothing is shaped. "
                "Give the container its own network, or unset LINK_*.",
                "cannot-shape-link",
            )


def commands(requested: RequestedLink, interface: str) -> Iterator[Command]:
    if segment := largest_segment(requested):
        yield ["ip", "link", "set", "dev", interface, *segment]
    yield from _queue(requested, interface)
    yield ["ip", "link", "add", "name", INCOMING, "type", "ifb"]
    yield ["ip", "link", "set", "dev", INCOMING, "up"]
    yield from _queue(requested, INCOMING)
    yield ["tc", "qdisc", "add", "dev", interface, "handle", "ffff:", "ingress"]
    everything = ["protocol", "all", "u32", "match", "u32", "0", "0"]
    redirect = ["action", "mirred", "egress", "redirect", "dev", INCOMING]
    yield ["tc", "filter", "add", "dev", interface, "parent", "ffff:", *everything, *redirect]


def undoing(interface: str) -> Iterator[Command]:
    """The commands that remove all shaping, complete or not."""
    yield ["tc", "qdisc", "del", "dev", interface, "root"]
    yield ["tc", "qdisc", "del", "dev", interface, "ingress"]
    yield ["ip", "link", "del", "dev", INCOMING]


def burst_bytes(bits_per_second: float) -> int:
    return max(LEAST_BURST_BYTES, round(bits_per_second / 8 * BURST_SECONDS))


def largest_segment(requested: RequestedLink) -> list[str]:
    """Arguments that limit a segment: to less than a burst, and with loss to a single packet."""
    if requested.loss:
        return ["gso_max_segs", "1"]
    if requested.bits_per_second:
        per_time = max(round(requested.bits_per_second / 8 * SEGMENT_SECONDS), FEWEST_PACKETS * PACKET_BYTES)
        most = min(LARGEST_SEGMENT_BYTES, burst_bytes(requested.bits_per_second) * 2 // 3, per_time)
        return ["gso_max_size", str(most)]
    return []


def _queue(requested: RequestedLink, device: str) -> Iterator[Command]:
    """Chain the queueing disciplines: first delay and loss, then the rate."""
    parent = ["root", "handle", "1:"]
    if requested.delay_seconds or requested.loss:
        yield ["tc", "qdisc", "add", "dev", device, *parent, "netem", *_delay_and_loss(requested)]
        parent = ["parent", "1:1", "handle", "10:"]
    if requested.bits_per_second:
        rate = ["rate", f"{requested.bits_per_second:.0f}bit", "burst", str(burst_bytes(requested.bits_per_second))]
        queue = ["latency", f"{QUEUE_SECONDS * 1e6:.0f}us"]
        yield ["tc", "qdisc", "add", "dev", device, *parent, "tbf", *rate, *queue]


def _delay_and_loss(requested: RequestedLink) -> list[str]:
    """Arguments of netem, with a queue for twice the packets in flight."""
    in_flight = (
        (requested.bits_per_second or UNSHAPED_BITS_PER_SECOND) / 8 * (requested.delay_seconds or 0) / PACKET_BYTES
    )
    arguments = ["limit", str(USUAL_QUEUE_PACKETS + round(2 * in_flight))]
    if requested.delay_seconds:
        arguments += ["delay", f"{requested.delay_seconds * 1e6:.0f}us"]
    if requested.loss:
        arguments += ["loss", f"{requested.loss * 100:.7f}%"]
    return arguments


def _carry_out(requested: RequestedLink, interface: str) -> None:
    for command in commands(requested, interface):
        done = _call(command)
        if done.returncode:
            raise _error(command, " ".join(done.stderr.split()) or f"exit code {done.returncode}")


def _call(command: Command) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # no argument comes from outside


def _error(command: Command, answer: str) -> SettingError:
    if "netem" in command:
        return SettingError(
            f"LINK_DELAY, LINK_LOSS: the kernel's netem does not work here ({answer}). "
            "Run `modprobe sch_netem` on the host, or unset both: LINK_RATE works without netem.",
            "cannot-shape-link",
        )
    if "not permitted" in answer:
        return SettingError(
            f"LINK_*: shaping a link requires the capability NET_ADMIN, which this container lacks ({answer}). "
            "Start it through compose.yaml, or with --cap-add NET_ADMIN.",
            "no-permission",
        )
    return SettingError(
        f"LINK_*: this kernel cannot shape the link: `{' '.join(command)}` failed ({answer}). It needs the modules "
        "sch_tbf, sch_ingress, cls_u32, act_mirred and ifb. Unset LINK_* to run unshaped.",
        "cannot-shape-link",
    )
