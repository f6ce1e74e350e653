"""What all ranks of a host use of its CPUs together, against what there is."""

from dataclasses import dataclass
from typing import Self

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


@dataclass(frozen=True)
class CoreSamples:
    """What one rank used, interval by interval."""

    ends: Numbers  # on the clock of all ranks
    seconds: Numbers
    percent: Numbers  # of one CPU, in program and kernel

    @classmethod
    def of(cls, rank: RankRecords) -> Self:
        """Those that a rank left."""
        if not rank.usage:
            raise Missing(f"rank {rank.rank} left no sample of usage, without which the sum lacks its part.")
        kept = long_enough(rank)
        percent = rank.sampled["cpu_user_percent"] + rank.sampled["cpu_system_percent"]
        return cls(rank.sampled["ends"][kept], rank.sampled["seconds"][kept], percent[kept])

    def at(self, moments: Numbers) -> Numbers:
        """What it used in the intervals that hold these moments."""
        places = np.searchsorted(self.ends, moments)
        held: Numbers = self.percent[np.minimum(places, len(self.ends) - 1)]
        return held


@dataclass(frozen=True)
class Host:
    """The ranks on one host."""

    name: str
    cpus: float  # its cores, or the ranks' quotas where those are less
    ranks: list[CoreSamples]

    @property
    def used(self) -> float:
        """The ranks' mean CPU time, in percent of one CPU."""
        return float(sum(np.average(rank.percent, weights=rank.seconds) for rank in self.ranks))

    @property
    def line(self) -> Series:
        """The sum of the ranks, while all of them were there."""
        begin = max(rank.ends[0] - rank.seconds[0] for rank in self.ranks)
        end = min(rank.ends[-1] for rank in self.ranks)
        ends = np.unique(np.concatenate([rank.ends for rank in self.ranks]))
        moments = ends[(ends > begin) & (ends <= end)]
        total = np.sum([rank.at(moments) for rank in self.ranks], axis=0)
        return series(self.name, moments, total)


def hosts_of(run: Run) -> list[Host]:
    """Every host, with its ranks' samples and the CPUs that they can count on together."""
    there: dict[str, list[Participant]] = {}
    for participant in run.manifest.ranks:
        there.setdefault(participant.host_boot_id, []).append(participant)
    return [
        Host(
            f"host {boot_id[:8]}",
            sum(each.fair_share_cpus for each in ranks),
            [CoreSamples.of(run.ranks[each.rank]) for each in ranks],
        )
        for boot_id, ranks in there.items()
    ]


def cores(run: Run) -> tuple[Plot, str]:
    """The figure and its caption."""
    hosts = hosts_of(run)
    lines = [host.line for host in hosts]
    if all(line.empty for line in lines):
        raise Missing("the ranks left no samples of the same time.")
    panels = [
        Panel(
            [curve(line.name, line)] if not line.empty else [],
            host.name if len(hosts) > 1 else "",
            levels=[(100 * host.cpus, f"{host.cpus:g} CPUs")],
        )
        for host, line in zip(hosts, lines, strict=True)
    ]
    found = ", ".join(
        f"{f'{host.name}: ' if len(hosts) > 1 else ''}{host.used:.0f} of {100 * host.cpus:.0f} %" for host in hosts
    )
    words = "CPU time of all ranks of a host"
    return Plot(words, Axis("since the start of the run", "s"), Axis("of one CPU", "%"), panels), (
        f"On average {found}. The sum over the ranks of a host, in program and kernel. Dotted: its cores, or the "
        f"ranks' quotas if those are less.{thinned(lines, 'samples')}"
    )
