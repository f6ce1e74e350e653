"""What ranks use of their CPUs and of the network while they train, and what each cell's messages amount to."""

from collections.abc import Iterator

from pydantic import Field

from app.experiment.reading.results import Results
from app.experiment.views import traffic, usage_figures
from app.experiment.views.training_usage import Kind, cpu_percent, cpus_of, rate_of
from app.experiment.views.view import (
    Published,
    Section,
    View,
    cell_column,
    middle,
    missing_sentences,
)
from app.report.drawing import draw
from app.report.table import Column, Table, Value, digits, megabytes, plain

ALL = "all"
KINDS: tuple[Kind, ...] = ("user", "system")


class Usage(View):
    """CPU and network by cell and rank."""

    baseline: str | None = Field(None, description="the cell that traffic is related to")
    published_cpu_user: Published | None = Field(None, description="percent of a node's CPUs, by cell")
    published_cpu_system: Published | None = Field(None, description="the same in the kernel")
    published_network_mb: Published | None = Field(None, description="MB/s that a node sends, by cell")
    published_ratio: Published | None = Field(None, description="MB/s that a node sends by the baseline's, by cell")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        published = (
            self.published_cpu_user,
            self.published_cpu_system,
            self.published_network_mb,
            self.published_ratio,
        )
        named = [name for each in published if each for name in each.values]
        return [*([self.baseline] if self.baseline else []), *dict.fromkeys(named)]

    def section(self, results: Results, name: str) -> Section:
        """CPU and network over time and as means, and the bytes of each step."""
        sentences = [*traffic.sentences(results, self.baseline), *self._about_cpu(results)]
        drawings = [draw(f"{name}-cpu", "CPU over time", usage_figures.cpu, results, png=True)]
        tables = [self._table(results, name)]
        if any(cell.world_size > 1 for cell in results.cells):
            drawings.append(draw(f"{name}-network", "Network over time", usage_figures.network, results, png=True))
            tables.append(traffic.table(results, f"{name}-traffic", self.baseline, self.published_ratio))
        sentences += [*missing_sentences(results), *([self.note] if self.note else [])]
        return Section(name, self.title, sentences, drawings, tables)

    def _about_cpu(self, results: Results) -> Iterator[str]:
        parts = []
        for cell in results.cells:
            runs = results.runs(cell.name)
            user, system = (middle(runs, cpu_percent(kind, of_node=True)) for kind in KINDS)
            if user is not None and system is not None:
                parts.append(f"{cell.name} {digits(user)} % user and {digits(system)} % system")
        if parts:
            yield f"Of the CPUs that a rank has, it uses on average: {'; '.join(parts)}."

    def _table(self, results: Results, name: str) -> Table:
        columns = [
            cell_column(),
            Column("", "rank", plain),
            Column("CPUs", "cpus", digits),
            Column("user, % of a CPU", "cpu_user_percent", digits),
            Column("system, % of a CPU", "cpu_system_percent", digits),
            Column("user, % of its CPUs", "node_user_percent", digits),
            Column("published", "published_user_percent", digits),
            Column("system, % of its CPUs", "node_system_percent", digits),
            Column("published", "published_system_percent", digits),
            Column("sent MB/s", "sent_bytes_per_second", megabytes),
            Column("published", "published_sent_bytes_per_second", megabytes),
            Column("received MB/s", "received_bytes_per_second", megabytes),
            Column("rounds", "rounds", digits),
        ]
        rows: list[list[Value]] = []
        for cell in results.cells:
            runs = results.runs(cell.name)
            for rank in (*range(cell.world_size), None):
                published = [
                    _published(each, cell.name, rank)
                    for each in (self.published_cpu_user, self.published_cpu_system, self.published_network_mb)
                ]
                rows.append(
                    [
                        cell.name,
                        ALL if rank is None else f"rank {rank}",
                        middle(runs, cpus_of(rank)),
                        middle(runs, cpu_percent("user", rank)),
                        middle(runs, cpu_percent("system", rank)),
                        middle(runs, cpu_percent("user", rank, of_node=True)),
                        published[0],
                        middle(runs, cpu_percent("system", rank, of_node=True)),
                        published[1],
                        middle(runs, rate_of("sent", rank)),
                        None if published[2] is None else published[2] * 1e6,
                        middle(runs, rate_of("received", rank)),
                        len(runs),
                    ]
                )
        shown = (self.published_cpu_user, self.published_cpu_system, self.published_network_mb)
        sources = dict.fromkeys(each.source for each in shown if each)
        note = (
            "Means over the time of the training steps without the first, evaluation left out; the median over rounds; "
            "all: the mean over ranks. CPUs: what a rank can count on, its quota or its part of the cores. "
            "Network: the kernel's counters of the rank's interface, headers and answers included."
        )
        note += f" Published: {'; '.join(sources)}." if sources else ""
        return Table(name, "CPU and network", columns, rows, note)


def _published(published: Published | None, cell: str, rank: int | None) -> float | None:
    """A rank's figure where there is one for each, and their mean; where there is but one, it is of all."""
    value = published.values.get(cell) if published else None
    if published is None or not isinstance(value, list):
        return value if rank is None and not isinstance(value, list) else None
    known = [each for each in value if each is not None]
    return published.at(cell, rank) if rank is not None else sum(known) / len(known) if known else None
