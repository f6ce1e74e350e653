"""What all ranks of a host use of its CPUs together, against what there is."""

import numpy as np

from app.analysis.run import Run
from app.analysis.run_records import RankRecords
from app.analysis.statistics import Numbers
from app.pages.drawing import Missing
from app.pages.drawn import curve
from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.series import Series, long_enough, series, thinned
from app.pages.traces import Panel
from app.records.manifest import Participant


def cores(run: Run) -> tuple[Plot, str]:
    """A panel for each host, with the CPUs that its ranks can count on together."""
    hosts: dict[str, list[Participant]] = {}
    for participant in run.manifest.ranks:
        hosts.setdefault(participant.host_boot_id, []).append(participant)
    panels, lines, found = [], [], []
    for boot_id, ranks in hosts.items():
        name, there = f"host {boot_id[:8]}", [run.ranks[each.rank] for each in ranks]
        line, cpus = sum_of(name, there), sum(each.fair_share_cpus for each in ranks)
        title, level = name if len(hosts) > 1 else "", (100 * cpus, f"{cpus:g} CPUs")
        used = sum(float(np.average(_percent(rank), weights=_kept(rank, "seconds"))) for rank in there)
        panels.append(Panel([] if line.empty else [curve(name, line)], title, levels=[level]))
        lines.append(line)
        found.append(f"{f'{title}: ' if title else ''}{used:.0f} of {100 * cpus:.0f} %")
    if all(line.empty for line in lines):
        raise Missing("the ranks left no samples of the same time.")
    words = "CPU time of all ranks of a host"
    return Plot(words, Axis("since the start of the run", "s"), Axis("of one CPU", "%"), panels), (
        f"On average {', '.join(found)}. The sum over the ranks of a host, in program and kernel. Dotted: its cores, "
        f"or the ranks' quotas if those are less.{thinned(lines, 'samples')}"
    )


def sum_of(name: str, ranks: list[RankRecords]) -> Series:
    """What these ranks used, in percent of one CPU, while all of them were there."""
    for rank in ranks:
        if not rank.usage:
            raise Missing(f"rank {rank.rank} left no sample of usage, without which the sum lacks its part.")
    ends = [_kept(rank, "ends") for rank in ranks]
    begin = max(own[0] - _kept(rank, "seconds")[0] for rank, own in zip(ranks, ends, strict=True))
    every = np.unique(np.concatenate(ends))
    moments = every[(every > begin) & (every <= min(own[-1] for own in ends))]
    # Each sample holds from the end of the one before to its own.
    held = [_percent(rank)[np.searchsorted(own, moments)] for rank, own in zip(ranks, ends, strict=True)]
    return series(name, moments, np.sum(held, axis=0))


def _kept(rank: RankRecords, name: str) -> Numbers:
    return rank.sampled[name][long_enough(rank)]


def _percent(rank: RankRecords) -> Numbers:
    """In program and kernel."""
    return _kept(rank, "cpu_user_percent") + _kept(rank, "cpu_system_percent")
