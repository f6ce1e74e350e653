"""What ranks use of their CPUs and of the network while they train, and what each cell's messages amount to."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from app.analysis.run import Run
from app.analysis.run_records import RankRecords
from app.analysis.units import COUNT, DIGITS, MEGABYTES_PER_SECOND, TEXT, Unit, digits
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.series import Series, left_out, of_usage, thinned
from app.pages.table import Column, Table
from app.pages.traces import Panel
from app.tools.experiment.reading.results import Measure, MeasuredCell, Results
from app.tools.experiment.views import traffic
from app.tools.experiment.views.columns import CellRank, of_member
from app.tools.experiment.views.drawn import curve
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listing

MOST_PANELS = 8
Kind = Literal["user", "system"]
Way = Literal["sent", "received"]
KINDS: tuple[Kind, ...] = ("user", "system")


def _told(name: str, published: Published | None, unit: Unit = DIGITS, scale: float = 1.0) -> Column[CellRank]:
    """A rank's published figure where there is one for each, and their mean; a single one is of all ranks."""

    def value(member: CellRank) -> float | None:
        told = published.values.get(member.cell.name) if published else None
        if isinstance(told, list):
            known = [each for each in (told if member.rank is None else told[member.rank :][:1]) if each is not None]
            return scale * sum(known) / len(known) if known else None
        return None if told is None or member.rank is not None else scale * told

    return Column("published", f"published_{name}", unit, value)


class UsageByRank(View):
    """CPU and network by cell and rank."""

    baseline: str | None = Field(None, description="the cell that traffic is related to")
    published_cpu_user: Published | None = Field(None, description="percent of a node's CPUs, by cell")
    published_cpu_system: Published | None = Field(None, description="the same in the kernel")
    published_network_mb: Published | None = Field(None, description="MB/s that a node sends, by cell")
    published_ratio: Published | None = Field(None, description="MB/s that a node sends by the baseline's, by cell")

    def _sentences(self, results: Results) -> Iterator[str]:
        yield from traffic.sentences(results, self.baseline)
        parts = []
        for cell in results.cells:
            user, system = (cell.middle(_node_percent(kind)) for kind in KINDS)
            if user is not None and system is not None:
                parts.append(f"{cell.name} {digits(user)} % user and {digits(system)} % system")
        yield from listing("Of the CPUs that a rank has, it uses on average", parts)

    def _tables(self, results: Results, name: str) -> list[Table]:
        tables = [self._usage(results, name)]
        if _several_ranks(results):
            tables.append(traffic.table(results, f"{name}-traffic", self.baseline, self.published_ratio))
        return tables

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        drawings = [draw(f"{name}-cpu", "CPU over time", _cpu, results)]
        if _several_ranks(results):
            drawings.append(draw(f"{name}-network", "Network over time", _network, results))
        return drawings

    def _usage(self, results: Results, name: str) -> Table:
        columns: list[Column[CellRank]] = [
            Column("", "cell", TEXT, lambda member: member.cell.name),
            Column("", "rank", TEXT, lambda member: "all" if member.rank is None else f"rank {member.rank}"),
            of_member("CPUs", "cpus", _cpus_of),
            of_member("user, % of a CPU", "cpu_user_percent", lambda rank: _cpu_percent("user", rank)),
            of_member("system, % of a CPU", "cpu_system_percent", lambda rank: _cpu_percent("system", rank)),
            of_member("user, % of its CPUs", "node_user_percent", lambda rank: _node_percent("user", rank)),
            _told("user_percent", self.published_cpu_user),
            of_member("system, % of its CPUs", "node_system_percent", lambda rank: _node_percent("system", rank)),
            _told("system_percent", self.published_cpu_system),
            of_member("sent", "sent_bytes_per_second", lambda rank: _rate_of("sent", rank), MEGABYTES_PER_SECOND),
            _told("sent_bytes_per_second", self.published_network_mb, MEGABYTES_PER_SECOND, 1e6),
            of_member(
                "received", "received_bytes_per_second", lambda rank: _rate_of("received", rank), MEGABYTES_PER_SECOND
            ),
            Column("rounds", "rounds", COUNT, lambda member: len(member.cell.runs)),
        ]
        members = [CellRank(cell, rank) for cell in results.cells for rank in (*range(cell.world_size), None)]
        note = (
            "Means over the time of the training steps without the first, evaluation left out; the median over rounds; "
            "all: the mean over ranks. CPUs: what a rank can count on, its quota or its part of the cores. "
            "Network: the kernel's counters of the rank's interface, headers and answers included."
        )
        note += self._sources(self.published_cpu_user, self.published_cpu_system, self.published_network_mb)
        return Table.of(name, "CPU and network", columns, members, note)


def _several_ranks(results: Results) -> bool:
    return any(cell.world_size > 1 for cell in results.cells)


def _cpu(results: Results) -> tuple[Chart, str]:
    if not any(rank.usage for cell in results.cells for rank in cell.first.ranks):
        raise Missing("no sample of usage is there.")

    def lines(run: Run) -> dict[str, list[Series]]:
        return {kind: [of_usage(rank, kind, f"cpu_{kind}_percent") for rank in run.ranks] for kind in KINDS}

    what = "Each rank's CPU time in its program and in the kernel, by sample"
    return _over_time(results, results.cells, lines, Axis("CPU use of each rank", "% of one CPU"), what)


def _network(results: Results) -> tuple[Chart, str]:
    cells = [cell for cell in results.cells if _has_network(cell.first)]
    if not cells:
        raise Missing("the interface is shared with others, or no sample is there.")

    def lines(run: Run) -> dict[str, list[Series]]:
        return {f"rank {rank.rank}": [of_usage(rank, "sent", "network_sent_bytes")] for rank in run.ranks}

    what = "What each rank's interface sends, headers and all, by sample"
    return _over_time(results, cells, lines, Axis("sent", "B/s"), what)


def _has_network(run: Run) -> bool:
    samples = [sample for rank in run.ranks for sample in rank.usage]
    return len(run.ranks) > 1 and any(sample.network_sent_bytes is not None for sample in samples)


def _over_time(
    results: Results,
    cells: Sequence[MeasuredCell],
    lines_of: Callable[[Run], dict[str, list[Series]]],
    y: Axis,
    what: str,
) -> tuple[Chart, str]:
    """A panel for each cell, over the time of one run."""
    shown = {cell.name: lines_of(cell.first) for cell in cells[:MOST_PANELS]}
    panels = [
        Panel([curve(name, *own, most_marks=1) for name, own in lines.items()], cell) for cell, lines in shown.items()
    ]
    rounds = " of the first finished round" if results.grid.repeats > 1 else ""
    every = [each for lines in shown.values() for own in lines.values() for each in own]
    chart = Plot(f"{what}, by cell", Axis("time since the run began", "s"), y, panels)
    return chart, f"{what}{rounds}.{left_out(len(cells), MOST_PANELS, 'cells')}{thinned(every, 'samples')}"


def _cpu_percent(kind: Kind, rank: int | None = None) -> Measure:
    """A rank's CPU time in percent of one CPU, or the mean over ranks."""
    return lambda run: _mean(_while_training(each, f"cpu_{kind}_percent") for each in _chosen(run, rank))


def _node_percent(kind: Kind, rank: int | None = None) -> Measure:
    """The same in percent of the CPUs that a rank can count on."""

    def of_rank(run: Run, each: RankRecords) -> float | None:
        used, cpus = _while_training(each, f"cpu_{kind}_percent"), _cpus_of(each.rank)(run)
        return None if used is None or not cpus else used / cpus

    return lambda run: _mean(of_rank(run, each) for each in _chosen(run, rank))


def _cpus_of(rank: int | None) -> Measure:
    """CPUs that a rank can count on, or the mean over ranks: its quota, or its part of the cores that it shares."""
    return lambda run: _mean(each.fair_share_cpus for each in run.manifest.ranks if rank in (None, each.rank))


def _rate_of(way: Way, rank: int | None) -> Measure:
    """Bytes by the second that the kernel saw on a rank's interface in its steps, or the mean over ranks."""
    return lambda run: _mean(_rate(each, way) for each in _chosen(run, rank))


def _while_training(rank: RankRecords, field: str) -> float | None:
    """The mean of a field of usage samples, each counted for as long as it shares with the steps but the first."""
    if not rank.warm:
        return None
    moments = np.array([moment for step in rank.warm for moment in (step.at_seconds, step.at_seconds + step.seconds)])
    trained = np.array([part for step in rank.warm for part in (0.0, step.seconds)]).cumsum()  # until each moment
    weights = [
        float(np.interp(sample.at_seconds, moments, trained))
        - float(np.interp(sample.at_seconds - sample.seconds, moments, trained))
        for sample in rank.usage
    ]
    total = sum(weights)
    values = [getattr(sample, field) for sample in rank.usage]
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / total if total > 0 else None


def _rate(rank: RankRecords, way: Way) -> float | None:
    passed = [getattr(step, f"interface_bytes_{way}") for step in rank.warm]
    return None if not passed or None in passed else sum(passed) / sum(step.seconds for step in rank.warm)


def _chosen(run: Run, rank: int | None) -> list[RankRecords]:
    return run.ranks if rank is None else [run.ranks[rank]]


def _mean(values: Iterable[float | None]) -> float | None:
    """None where one of them is missing."""
    found = list(values)
    measured = [value for value in found if value is not None]
    return float(np.mean(measured)) if measured and len(measured) == len(found) else None
