"""Batch sizes by numbers of ranks: an epoch's seconds, what is communication in them, accuracy, bandwidth."""

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Results
from app.experiment.reading.statistics import Blocks
from app.experiment.views import epoch_measures as measures
from app.experiment.views import epoch_words
from app.experiment.views.epoch_cells import base_of, batch_of, in_order
from app.experiment.views.learned import training_accuracy
from app.experiment.views.measures import gradient_bytes, steps_per_epoch
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
from app.report.table import Column, Table, Value, digits, megabytes, percent

PARTS = {"compute": "backward", "communication": "sync"}  # in which phase's colour each is drawn


class Epochs(View):
    """Seconds of an epoch by batch size and number of ranks."""

    published_seconds: Published | None = Field(None, description="seconds per epoch, by cell")
    published_speedup: Published | None = Field(None, description="speedup against one device, by cell")
    published_communication: Published | None = Field(None, description="seconds of communication per epoch, by cell")
    published_bandwidth_mb: Published | None = Field(None, description="MB/s, by cell")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        return list(dict.fromkeys(name for each in self._published() for name in each.values))

    def section(self, results: Results, name: str) -> Section:
        """Seconds and speedups in one table, communication and its bandwidth in another."""
        blocks = results.blocks(measures.epoch_seconds)
        return Section(
            name,
            self.title,
            [*epoch_words.sentences(results, blocks), *([self.note] if self.note else [])],
            [draw(name, self.title, lambda subject: _figure(*subject), (results, blocks), png=True)],
            [self._table(results, blocks, name), self._bandwidth(results, f"{name}-bandwidth")],
        )

    def _published(self) -> list[Published]:
        every = (
            self.published_seconds,
            self.published_speedup,
            self.published_communication,
            self.published_bandwidth_mb,
        )
        return [each for each in every if each]

    def _sources(self) -> str:
        sources = dict.fromkeys(each.source for each in self._published())
        return f" Published: {'; '.join(sources)}." if sources else ""

    def _table(self, results: Results, blocks: Blocks, name: str) -> Table:
        columns = [
            cell_column(),
            Column("batch per rank", "batch_size_per_rank", digits),
            Column("ranks", "world_size", digits),
            Column("steps an epoch", "steps_per_epoch", digits),
            *estimate_columns("s/epoch, computed", "epoch_seconds"),
            Column("published", "published_epoch_seconds", digits),
            *estimate_columns("speedup", "speedup"),
            Column("published", "published_speedup", digits),
            Column("compute s", "compute_seconds", digits),
            Column("communication s", "communication_seconds", digits),
            Column("published", "published_communication_seconds", digits),
            Column("hidden s", "hidden_seconds", digits),
            Column("training accuracy", "training_accuracy", percent),
            Column("rounds", "rounds", digits),
        ]
        rows: list[list[Value]] = []
        for cell in in_order(results):
            runs, base = results.runs(cell.name), base_of(results, cell)
            rows.append(
                [
                    cell.name,
                    batch_of(cell),
                    cell.world_size,
                    middle(runs, steps_per_epoch),
                    *estimate_values(blocks.estimate(cell.name)),
                    _of(self.published_seconds, cell),
                    *estimate_values(blocks.compare(base.name, cell.name) if base else None),
                    _of(self.published_speedup, cell),
                    middle(runs, measures.compute),
                    middle(runs, measures.communication),
                    _of(self.published_communication, cell),
                    middle(runs, measures.hidden),
                    middle(runs, training_accuracy),
                    len(runs),
                ]
            )
        note = (
            "Seconds per epoch: the steps of an epoch times the median step without the first; no epoch was measured "
            "as a whole. Compute (data, forward, backward, optimiser), communication (wait and sync, as far as they "
            "delay steps) and hidden (behind backward, in addition) are mean seconds of a step times the steps of an "
            "epoch. Speedup: against one rank with the same batch per rank. Accuracy: on the images of the last epoch "
            "that was begun, each as the model took it." + self._sources()
        )
        return Table(name, self.title, columns, rows, note)

    def _bandwidth(self, results: Results, name: str) -> Table:
        columns = [
            cell_column(),
            Column("ranks", "world_size", digits),
            Column("S in MB", "gradient_bytes", megabytes),
            Column("sync s of a step", "sync_seconds", digits),
            Column("algorithm, S/t: MB/s", "algorithm_bytes_per_second", megabytes),
            Column("bus, 2(N-1)/N S/t: MB/s", "bus_bytes_per_second", megabytes),
            Column("slowest link MB/s", "link_bytes_per_second", megabytes),
            Column("of the link", "utilisation", percent),
            Column("2(N-1) S/t: MB/s", "document_bytes_per_second", megabytes),
            Column("of the link", "document_utilisation", percent),
            Column("ring at least s", "ring_seconds", digits),
            Column("log2(N) S/link s", "document_seconds", digits),
            Column("S by an epoch's communication: MB/s", "epoch_bytes_per_second", megabytes),
            Column("published", "published_bytes_per_second", megabytes),
        ]
        rows: list[list[Value]] = []
        for cell in in_order(results):
            runs = results.runs(cell.name)
            if cell.world_size == 1 or not any(run.summary.run.bandwidth for run in runs):
                continue
            published = _of(self.published_bandwidth_mb, cell)
            figures = (
                gradient_bytes,
                *map(measures.bandwidth, ("sync_seconds", "algorithm_bytes_per_second", "bus_bytes_per_second")),
                *map(measures.bandwidth, ("link_bytes_per_second", "utilisation")),
                measures.document_rate,
                measures.document_utilisation,
                measures.ring_seconds,
                measures.document_seconds,
                measures.epoch_rate,
            )
            row: list[Value] = [cell.name, cell.world_size, *(middle(runs, figure) for figure in figures)]
            rows.append([*row, None if published is None else published * 1e6])
        note = (
            "S: all gradients of one rank, once. t: the median seconds in which a step's gradients were on their way, "
            "hidden or not. A ring passes 2(N-1)/N S over each link (bus). 2(N-1) S is what all ranks together send, "
            "and log2(N) S/link the time of a tree: neither says how far a ring uses a link. Not measured where the "
            "links were not." + self._sources()
        )
        return Table(name, f"{self.title}: bandwidth", columns, rows, note)


def _figure(results: Results, blocks: Blocks) -> tuple[Figure, str]:
    cells = in_order(results)
    if not cells:
        raise Missing("no run is finished.")
    figure = theme.new_figure(1.4 + 0.42 * len(cells))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    places = np.arange(len(cells))
    begin = np.zeros(len(cells))
    for (part, phase), measure in zip(PARTS.items(), (measures.compute, measures.communication), strict=True):
        widths = np.array([middle(results.runs(cell.name), measure) or 0.0 for cell in cells])
        left.barh(places, widths, 0.6, left=begin, color=theme.PHASES[phase], label=part)
        begin += widths
    for place, cell in enumerate(cells):
        base = base_of(results, cell)
        speedup = blocks.compare(base.name, cell.name) if base else None
        if speedup:
            right.barh(place, speedup.value, 0.6, color=theme.colour(0))
            if speedup.low is not None and speedup.high is not None and cell is not base:
                right.plot([speedup.low, speedup.high], [place, place], color=theme.INK, linewidth=1.2)
    left.set_yticks(places, theme.shorten([cell.name for cell in cells]))
    left.invert_yaxis()
    left.set_xlim(0, max(1.05 * begin.max(), 1e-9))
    right.set_xlim(left=0)
    for axes, what in ((left, "seconds per epoch"), (right, "speedup")):
        axes.set_xlabel(what)
        axes.grid(visible=False, axis="y")
    theme.legend_above(left, 2)
    return figure, (
        "Mean seconds of a step times the steps of an epoch, and the speedup against one rank with the same batch per "
        "rank; medians over rounds, lines are intervals of 95 % confidence."
    )


def _of(published: Published | None, cell: Cell) -> float | None:
    return published.of(cell.name) if published else None
