"""The LINK_ settings that emulate on one host the links measured between machines."""

from statistics import median

from app.cluster.link.measured import CROSSINGS, HOST_SECONDS, TOLERANCE, rate_of
from app.machine.interfaces import LOOPBACK
from app.records.manifest import Manifest, Participant

USUAL_MTU_BYTES = 1500
COMPOSE_ADDRESS = "rank0"  # MASTER_ADDR in compose.yaml


def emulating(manifest: Manifest) -> str | None:
    """The settings; None for a run on one machine, with emulated links or without measured links."""
    settings = manifest.settings
    within = settings.get("nodes") is None and settings.get("master_addr") in (None, COMPOSE_ADDRESS)
    measured = [rank for rank in manifest.ranks if rank.link and rank.interface != LOOPBACK]
    requested = any(settings.get(name) for name in ("link_rate", "link_rate_by_rank", "link_delay", "link_loss"))
    if within or requested or not measured:
        return None
    rates = {rank.rank: _megabits(rank) for rank in measured}
    usual = median(rates.values())
    others = {rank: rate for rank, rate in rates.items() if abs(rate / usual - 1) > TOLERANCE}
    assignments = [f"LINK_RATE={usual:.0f}mbit"]
    if others:
        assignments.append("LINK_RATE_BY_RANK=" + ",".join(f"{rank}={rate:.0f}mbit" for rank, rate in others.items()))
    trip = median(rank.link.round_trip.measured_seconds for rank in measured if rank.link)
    if trip > HOST_SECONDS:
        assignments.append(f"LINK_DELAY={trip / CROSSINGS * 1e6:.0f}us")
    return " ".join(assignments)


def _megabits(rank: Participant) -> float:
    """The link rate, headers included, that carries the measured payload: the mean of both directions."""
    link = rank.link
    mtu = next((each.mtu_bytes for each in rank.interfaces or [] if each.name == rank.interface), USUAL_MTU_BYTES)
    payload = (link.sent.measured_bytes_per_second + link.received.measured_bytes_per_second) / 2 if link else 0.0
    return max(1.0, rate_of(payload, mtu) / 1e6)
