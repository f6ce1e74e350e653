"""More ranks for the same global batch (strong) or for the same batch per rank (weak): speedup and efficiency."""

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from pydantic import Field

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Results
from app.experiment.views.epoch_measures import epoch_seconds
from app.experiment.views.measures import images_per_second, interface_rate, payload_rate
from app.experiment.views.speedups import Kind, Speedups, mode_of
from app.experiment.views.view import (
    Published,
    Section,
    View,
    cell_column,
    estimate_columns,
    estimate_values,
    middle,
)
from app.report import theme
from app.report.drawing import Missing, draw
from app.report.table import Column, Table, Value, digits, megabytes, percent, plain


class Scaling(View):
    """Speedup over the number of ranks."""

    kind: Kind = Field(description="strong: one global batch; weak: one batch per rank")
    published_seconds: Published | None = Field(None, description="seconds per epoch, by cell")
    published_network_mb: Published | None = Field(None, description="MB/s that a node sends, by cell")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        published = (self.published_seconds, self.published_network_mb)
        return list(dict.fromkeys(name for each in published if each for name in each.values))

    def section(self, results: Results, name: str) -> Section:
        """The table, the speedup as lines, and what is gained at the end."""
        speedups = Speedups(self.kind, results)
        return Section(
            name,
            self.title,
            [*speedups.sentences(), *([self.note] if self.note else [])],
            [draw(name, self.title, self._figure, speedups, png=True)],
            [self._table(results, speedups, name)],
        )

    def _published_speedup(self, speedups: Speedups, cell: Cell) -> float | None:
        """By the documents' seconds per epoch."""
        published, base = self.published_seconds, speedups.base
        return published.ratio(base.name, cell.name) if published and base else None

    def _table(self, results: Results, speedups: Speedups, name: str) -> Table:
        columns = [
            cell_column(),
            Column("ranks", "world_size", digits),
            Column("mode", "mode", plain),
            *estimate_columns("s/step", "seconds"),
            Column("images/s", "images_per_second", digits),
            *estimate_columns("speedup", "speedup"),
            Column("published", "published_speedup", digits),
            Column("efficiency", "efficiency", percent),
            Column("published", "published_efficiency", percent),
            Column("s/epoch, computed", "epoch_seconds", digits),
            Column("published", "published_epoch_seconds", digits),
            Column("MB/s of a rank, counted", "bytes_per_second", megabytes),
            Column("MB/s, kernel", "interface_bytes_per_second", megabytes),
            Column("published", "published_bytes_per_second", megabytes),
            Column("rounds", "rounds", digits),
        ]
        rows: list[list[Value]] = []
        for cell in speedups.cells:
            runs, ranks = results.runs(cell.name), cell.world_size
            speedup, published = speedups.speedup(cell, speedups.base), self._published_speedup(speedups, cell)
            network = self.published_network_mb.of(cell.name) if self.published_network_mb else None
            rows.append(
                [
                    cell.name,
                    ranks,
                    mode_of(cell),
                    *estimate_values(speedups.times.estimate(cell.name)),
                    middle(runs, images_per_second),
                    *estimate_values(speedup),
                    published,
                    speedup.value / ranks if speedup else None,
                    None if published is None else published / ranks,
                    middle(runs, epoch_seconds),
                    self.published_seconds.of(cell.name) if self.published_seconds else None,
                    middle(runs, payload_rate),
                    middle(runs, interface_rate),
                    None if network is None else network * 1e6,
                    len(runs),
                ]
            )
        note = (
            "Speedup: the seconds per step of one rank by the cell's, of the same global batch. "
            if self.kind == "strong"
            else "Speedup: images per second of all ranks by those of one rank; the batch grows with the ranks. "
        ) + "Efficiency: speedup by ranks. Seconds per epoch: median step times steps of an epoch, not measured."
        sources = dict.fromkeys(each.source for each in (self.published_seconds, self.published_network_mb) if each)
        note += f" Published: {'; '.join(sources)}." if sources else ""
        return Table(name, self.title, columns, rows, note)

    def _figure(self, speedups: Speedups) -> tuple[Figure, str]:
        if speedups.base is None or not speedups.lines:
            raise Missing("speedup needs a run of one rank, and one of more.")
        figure = theme.new_figure(3.4)
        axes = figure.subplots()
        sizes = sorted({cell.world_size for cell in speedups.cells})
        for number, (mode, line) in enumerate(speedups.lines.items()):
            known = [(cell.world_size, each) for cell in line if (each := speedups.speedup(cell, speedups.base))]
            axes.plot(
                [ranks for ranks, _ in known],
                [each.value for _, each in known],
                color=theme.colour(number),
                label=mode,
                marker="o",
                markersize=4,
            )
            for ranks, each in known:
                if each.low is not None and each.high is not None and ranks > 1:
                    axes.plot([ranks, ranks], [each.low, each.high], color=theme.colour(number), linewidth=1.0)
        published = {
            cell.world_size: told for cell in speedups.cells if (told := self._published_speedup(speedups, cell))
        }
        if published:
            axes.plot([*published], [*published.values()], "D", color=theme.INK, markersize=5, label="published")
        axes.plot([1, sizes[-1]], [1, sizes[-1]], color=theme.MUTED, linewidth=0.8, linestyle="--", label="ideal")
        axes.set_xticks(sizes)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("ranks")
        axes.set_ylabel("speedup")
        theme.legend_above(axes, 4)
        caption = "One rank is 1. Upright lines are intervals of 95 % confidence; dashed: as many times as ranks."
        source = self.published_seconds.source if self.published_seconds and published else None
        return figure, caption + (f" Published: {source}." if source else "")
