"""Other programs on the ranks' machines: what they took of the CPUs while the ranks trained."""

from collections.abc import Iterator

import numpy as np

from app.analysis.run_records import RankRecords, RunRecords

WORTH_A_WORD = 25.0  # percent of one CPU: less is what Docker and the system need themselves
LEAST_SECONDS = 5.0  # shorter runs see the end of their own start: Docker is still at work


def warnings(run: RunRecords) -> Iterator[str]:
    """A sentence for each host whose other programs make the run's times longer."""
    hosts: dict[str, list[RankRecords]] = {}
    for participant, rank in zip(run.manifest.ranks, run.ranks, strict=False):
        hosts.setdefault(participant.host_boot_id, []).append(rank)
    for ranks in hosts.values():
        others = others_percent(ranks)
        if others is not None and others >= WORTH_A_WORD:
            where = "this machine" if len(hosts) == 1 else f"the machine of rank {ranks[0].rank}"
            yield (
                f"other programs used {others / 100:.1f} CPUs of {where} during training. For reliable times, stop them"
            )


def others_percent(ranks: list[RankRecords]) -> float | None:
    """CPU time of all but these ranks of one host, in percent of one CPU; None where it was not watched for long."""
    own = 0.0
    for rank in ranks:
        seconds = rank.sampled["seconds"]
        if not seconds.sum():
            return None
        used = rank.sampled["cpu_user_percent"] + rank.sampled["cpu_system_percent"]
        own += float(used @ seconds) / float(seconds.sum())
    busy = ranks[0].sampled["machine_busy_percent"]
    known = ~np.isnan(busy)
    seconds = ranks[0].sampled["seconds"][known]
    watched = float(seconds.sum())
    if watched < LEAST_SECONDS:
        return None
    return max(0.0, float(busy[known] @ seconds) / watched - own)
