"""Shapes this rank's link with the kernel's traffic control.

It runs as root with the capability NET_ADMIN, both of which the entrypoint gives up before the program starts.
"""

import subprocess
from collections.abc import Iterator

from app.cluster.identity import interface_of, place_of
from app.errors import SettingError
from app.machine import interfaces
from app.machine.interfaces import LOOPBACK
from app.settings.links import LinkSettings, RequestedLink
from app.settings.place import PlaceSettings

INCOMING = "ifb0"  # the kernel queues only what leaves, so arriving packets leave through this device first

BURST_SECONDS = 0.002  # what a rested link lets pass at once; with less, a busy host cannot keep the rate
LEAST_BURST_BYTES = 25_000
QUEUE_SECONDS = 0.05  # packets that wait longer are dropped, as in a switch
PACKET_BYTES = 1500
LARGEST_SEGMENT_BYTES = 65_536  # the kernel handles several packets as one: the most that may hold,
SEGMENT_SECONDS = 0.005  # how long it may occupy the link, as its bytes arrive all at once,
FEWEST_PACKETS = 2  # and how many packets it may hold on any link, however slow
USUAL_QUEUE_PACKETS = 1000
UNSHAPED_BITS_PER_SECOND = 40e9  # for the length of a queue, if no rate is requested

Command = list[str]


def shape_link(links: LinkSettings, place: PlaceSettings) -> None:
    """Shape this container's link as its rank's settings ask."""
    number, address = place_of(place)
    # A worker's number is its rank unless the numbers have gaps; the join then refuses the wrong rate.
    asked = links.of(number)
    if asked:
        _check_own_network()
        _carry_out(asked, interface_of(address))


def rehearse(links: LinkSettings) -> None:
    """Before any rank starts, try on the loopback device whether this kernel can shape a link; leave nothing behind."""
    _check_own_network()
    try:
        _carry_out(links.of_any_rank, LOOPBACK)
    finally:
        for command in undoing(LOOPBACK):
            _call(command)


def _check_own_network() -> None:
    """Refuse to shape the host's interfaces, which would stay slow for everybody; a container's are ends of pairs."""
    for name in interfaces.names():
        if not interfaces.is_one_end_of_a_pair(name) and name != LOOPBACK:
            raise SettingError(
                f"LINK_*: this container sees {name}, an interface of the host, so nothing is shaped. "
                "Give the container its own network, or unset LINK_*."
            )


def commands(asked: RequestedLink, interface: str) -> Iterator[Command]:
    if segment := largest_segment(asked):
        yield ["ip", "link", "set", "dev", interface, *segment]
    yield from _queue(asked, interface)
    yield ["ip", "link", "add", "name", INCOMING, "type", "ifb"]
    yield ["ip", "link", "set", "dev", INCOMING, "up"]
    yield from _queue(asked, INCOMING)
    yield ["tc", "qdisc", "add", "dev", interface, "handle", "ffff:", "ingress"]
    everything = ["protocol", "all", "u32", "match", "u32", "0", "0"]
    redirect = ["action", "mirred", "egress", "redirect", "dev", INCOMING]
    yield ["tc", "filter", "add", "dev", interface, "parent", "ffff:", *everything, *redirect]


def undoing(interface: str) -> Iterator[Command]:
    """The commands that undo it all, however far it got."""
    yield ["tc", "qdisc", "del", "dev", interface, "root"]
    yield ["tc", "qdisc", "del", "dev", interface, "ingress"]
    yield ["ip", "link", "del", "dev", INCOMING]


def burst_bytes(bits_per_second: float) -> int:
    return max(LEAST_BURST_BYTES, round(bits_per_second / 8 * BURST_SECONDS))


def largest_segment(asked: RequestedLink) -> list[str]:
    """How much the kernel may handle as one packet: less than a burst, and with loss a single one."""
    if asked.loss:
        return ["gso_max_segs", "1"]
    if asked.bits_per_second:
        on_the_link = max(round(asked.bits_per_second / 8 * SEGMENT_SECONDS), FEWEST_PACKETS * PACKET_BYTES)
        most = min(LARGEST_SEGMENT_BYTES, burst_bytes(asked.bits_per_second) * 2 // 3, on_the_link)
        return ["gso_max_size", str(most)]
    return []


def _queue(asked: RequestedLink, device: str) -> Iterator[Command]:
    """Delay and loss first, then the rate."""
    place = ["root", "handle", "1:"]
    if asked.delay_seconds or asked.loss:
        yield ["tc", "qdisc", "add", "dev", device, *place, "netem", *_delay_and_loss(asked)]
        place = ["parent", "1:1", "handle", "10:"]
    if asked.bits_per_second:
        rate = ["rate", f"{asked.bits_per_second:.0f}bit", "burst", str(burst_bytes(asked.bits_per_second))]
        queue = ["latency", f"{QUEUE_SECONDS * 1e6:.0f}us"]
        yield ["tc", "qdisc", "add", "dev", device, *place, "tbf", *rate, *queue]


def _delay_and_loss(asked: RequestedLink) -> list[str]:
    """Room for twice the packets in flight."""
    on_the_way = (asked.bits_per_second or UNSHAPED_BITS_PER_SECOND) / 8 * (asked.delay_seconds or 0) / PACKET_BYTES
    words = ["limit", str(USUAL_QUEUE_PACKETS + round(2 * on_the_way))]
    if asked.delay_seconds:
        words += ["delay", f"{asked.delay_seconds * 1e6:.0f}us"]
    if asked.loss:
        words += ["loss", f"{asked.loss * 100:.7f}%"]
    return words


def _carry_out(asked: RequestedLink, interface: str) -> None:
    for command in commands(asked, interface):
        done = _call(command)
        if done.returncode:
            raise SettingError(_explanation(command, " ".join(done.stderr.split()) or f"exit code {done.returncode}"))


def _call(command: Command) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # all words are our own


def _explanation(command: Command, answer: str) -> str:
    if "netem" in command:
        return (
            "LINK_DELAY, LINK_LOSS: delay and loss need the kernel's netem, which does not work here: "
            f"{answer} On the host `modprobe sch_netem` may load it. Or unset both: LINK_RATE works without it."
        )
    if "not permitted" in answer:
        return (
            f"LINK_*: shaping a link needs the capability NET_ADMIN, which this container lacks: {answer} "
            "Start it through compose.yaml, or with --cap-add NET_ADMIN."
        )
    return (
        f"LINK_*: this kernel cannot shape the link: `{' '.join(command)}` answered: {answer} It needs the modules "
        "sch_tbf, sch_ingress, cls_u32, act_mirred and ifb. Unset LINK_* to run unshaped."
    )
