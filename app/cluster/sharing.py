"""The table of ranks that rank 0 prints, and warnings about shared cores and different CPUs."""

import math
from collections.abc import Sequence

from app.cluster.members import Member
from app.machine.say import counted, numbered


def members_table(members: Sequence[Member]) -> str:
    """The table that rank 0 prints once, with a warning if too many threads share the cores."""
    lines = [f"{len(members)} ranks have joined:" if len(members) > 1 else "1 rank has joined:"]
    width = max(len(member.name) for member in members)
    for member in members:
        sharing = sum(other.machine.boot_id == member.machine.boot_id for other in members) - 1
        cores = len(member.machine.cores)
        quota = "" if member.machine.quota_cpus is None else f", quota {member.machine.quota_cpus:g} CPUs"
        threads, shared = counted(member.threads, "thread"), counted(sharing, "other rank")
        lines.append(
            f"  rank {member.rank:<3} {member.name:<{width}}  {member.address:<15}  {threads} on "
            f"{counted(cores, 'core')} shared with {shared}{quota}"
        )
    if warning := oversubscription(members):
        lines.append(f"warning: {warning}")
    return "\n".join(lines)


def oversubscription(members: Sequence[Member]) -> str | None:
    """A warning if the ranks of a host use more CPUs than it has cores."""
    for boot_id in dict.fromkeys(member.machine.boot_id for member in members):
        here = [member for member in members if member.machine.boot_id == boot_id]
        cores = len({core for member in here for core in member.machine.cores})
        wanted = sum(min(member.threads, member.machine.quota_cpus or member.threads) for member in here)
        if wanted > cores and len(here) == 1:
            return (
                f"{here[0].title} uses {wanted:g} CPUs but has {counted(cores, 'core')}, so its threads slow each "
                f"other down. Set THREADS_PER_RANK={cores}."
            )
        if wanted > cores:
            return (
                f"{len(here)} ranks use {wanted:g} CPUs but share {cores} cores, so they slow each other down: steps "
                "take longer than on separate nodes, and part of their communication time is spent waiting for a core. "
                f"Set RANK_CPUS={math.floor(100 * cores / len(here)) / 100:g} for a fixed share."
            )
    return None


def unlike(members: Sequence[Member]) -> str | None:
    """A warning if the ranks run on different CPU models."""
    models: dict[str, list[str]] = {}
    for member in members:
        models.setdefault(member.machine.cpu_model, []).append(str(member.rank))
    if len(models) < 2:
        return None
    each = "; ".join(f"{model or 'unnamed'}: {numbered('rank', ranks)}" for model, ranks in models.items())
    return f"the ranks run on different CPU models, so the slower ones delay the others ({each})"
