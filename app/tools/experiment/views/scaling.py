"""More ranks for the same global batch (strong) or for the same batch per rank (weak): speedup and efficiency."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field

from app.analysis.statistics import Comparison, Interval
from app.analysis.units import DIGITS, MEGABYTES_PER_SECOND, PERCENT, SECONDS, TEXT, digits
from app.analysis.words import percent
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.intervals import interval, with_interval
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.pages.traces import Trace
from app.tools.experiment.plan.cells import Cell, alone_like, conditions
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views import measures
from app.tools.experiment.views.columns import CELL, RANKS, ROUNDS, STEPS, estimated, measured, told
from app.tools.experiment.views.drawn import interval_line, plot
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import noise_sentence

PER_RANK = "BATCH_SIZE_PER_RANK"  # cells that set it are about weak scaling


class Scaling(View):
    """Speedup over the number of ranks."""

    kind: Literal["strong", "weak"] = Field(description="strong: one global batch; weak: one batch per rank")
    published_seconds: Published | None = Field(None, description="seconds per epoch, by cell")
    published_network_mb: Published | None = Field(None, description="MB/s that a node sends, by cell")

    def _planned(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        return [cell for cell in cells if self._concerns(cell)]

    def _concerns(self, cell: Cell) -> bool:
        return (PER_RANK in cell.settings) == (self.kind == "weak")

    def _speedups(self, results: Results) -> "_Speedups":
        return _Speedups(
            [cell for cell in results.cells if self._concerns(cell)], results, strong=self.kind == "strong"
        )

    def _sentences(self, results: Results) -> Iterator[str]:
        speedups = self._speedups(results)
        yield self._at_the_end(speedups)
        yield from _step_by_step(speedups)
        yield noise_sentence(speedups.times, results, what="seconds per step")
        yield (
            "Seconds per epoch are as many median steps as an epoch has: they were not measured as a whole."
            if speedups.cells
            else f"No run about {self.kind} scaling is finished."
        )

    def _at_the_end(self, speedups: "_Speedups") -> str:
        if speedups.base is None:
            return "No speedup can be told: one rank alone was not measured."
        parts = []
        for mode, line in speedups.lines.items():
            last = line[-1]
            if speedup := speedups.of(last):
                alike = ", which is no difference beyond the noise" if speedup.beyond_noise is False else ""
                parts.append(
                    f"{mode} {digits(speedup.value)}{interval(speedup)} on {last.world_size}{alike}, an efficiency of "
                    f"{_efficiency(speedup, last.world_size)}"
                )
        if not parts:
            return "No speedup can be told: nothing but one rank was measured."
        of_what = "a step of the same global batch" if self.kind == "strong" else "images per second"
        return f"Speedup ({of_what}, one rank is 1) on the most ranks: {'; '.join(parts)}."

    def _tables(self, results: Results, name: str) -> list[Table]:
        speedups = self._speedups(results)

        def published(cell: MeasuredCell) -> float | None:
            return self._published_speedup(speedups, cell)

        columns = [
            CELL,
            RANKS,
            STEPS,
            Column[MeasuredCell]("mode", "mode", TEXT, _mode_of),
            *estimated("step", "seconds", speedups.times, SECONDS),
            measured("images/s", "images_per_second", measures.images_per_second),
            *with_interval("speedup", "speedup", speedups.of),
            Column("published", "published_speedup", DIGITS, published),
            Column("efficiency", "efficiency", PERCENT, lambda cell: _by_rank(cell, speedups.of(cell))),
            Column("published", "published_efficiency", PERCENT, lambda cell: _by_rank(cell, published(cell))),
            measured("epoch, computed", "epoch_seconds", measures.epoch_seconds, SECONDS),
            told("epoch_seconds", self.published_seconds, SECONDS),
            measured("of a rank, counted", "bytes_per_second", measures.payload_rate, MEGABYTES_PER_SECOND),
            measured("of a rank, kernel", "interface_bytes_per_second", measures.interface_rate, MEGABYTES_PER_SECOND),
            told("bytes_per_second", self.published_network_mb, MEGABYTES_PER_SECOND, 1e6),
            ROUNDS,
        ]
        note = (
            (
                "Speedup: the seconds per step of one rank by the cell's, of the same global batch. "
                if self.kind == "strong"
                else "Speedup: images per second of all ranks by those of one rank; the batch grows with the ranks. "
            )
            + "Efficiency: speedup by ranks. Epoch: the median step times the steps of an epoch, not measured. "
            + (definitions.IMAGES)
        )
        return [Table.of(name, self.title, columns, speedups.cells, note + self._sources())]

    def _published_speedup(self, speedups: "_Speedups", cell: Cell) -> float | None:
        """By the documents' seconds per epoch."""
        published, base = self.published_seconds, speedups.base_of(cell)
        return published.ratio(base.name, cell.name) if published and base else None

    def _figure(self, results: Results) -> tuple[Chart, str]:
        speedups = self._speedups(results)
        if speedups.base is None or not speedups.lines:
            raise Missing("speedup needs a run of one rank, and one of more.")
        traces = [
            interval_line(mode, [(cell.world_size, each) for cell in own if (each := speedups.of(cell))])
            for mode, own in speedups.lines.items()
        ]
        sizes = sorted({cell.world_size for cell in speedups.cells})
        traces.append(Trace("as many times as ranks", sizes, sizes, look="curve", hollow=[True] * len(sizes)))
        told_of = [(cell, self._published_speedup(speedups, cell)) for cell in speedups.cells]
        published = [(cell, speedup) for cell, speedup in told_of if speedup]
        if published:
            ranks, values = [cell.world_size for cell, _ in published], [value for _, value in published]
            notes = [f"{cell.name}, published: {digits(value)}" for cell, value in published]
            traces.append(Trace("as published", ranks, values, look="diamond", notes=notes, role="ink"))
        x = Axis("ranks", labels=[(ranks, str(ranks)) for ranks in sizes])
        caption = f"One rank is 1. Upright lines are {definitions.INTERVALS}; dotted: as many times as ranks."
        source = self._sources(self.published_seconds) if published else ""
        return plot(self.title, x, Axis("speedup"), traces), f"{caption}{source}"


class _Speedups:
    """The cells of one kind, and how much more each gets done in the same time than one rank."""

    def __init__(self, cells: Sequence[MeasuredCell], results: Results, *, strong: bool) -> None:
        self.cells = sorted(cells, key=lambda cell: cell.world_size)
        self.base = next((cell for cell in self.cells if cell.world_size == 1), None)
        self.times = results.blocks(measures.step_seconds, self.cells)
        self._speeds = None if strong else results.blocks(measures.images_per_second, self.cells)
        # One rank synchronises nothing, so that it is where the line of every mode begins.
        self.lines: dict[str, list[MeasuredCell]] = {}
        several = [cell for cell in self.cells if cell.world_size > 1]
        shared = conditions(several, "WORKERS", "SYNC_MODE")
        for cell in several:
            base = self.base_of(cell)
            line = ", ".join(filter(None, (_mode_of(cell), shared[cell.name])))
            if any(each.world_size == cell.world_size for each in self.lines.get(line, [])):
                line = f"{line}, {cell.name}"  # the same settings, of which one cell leaves a default unset
            self.lines.setdefault(line, [base] if base else []).append(cell)

    def base_of(self, cell: Cell) -> MeasuredCell | None:
        return alone_like(cell, self.cells)

    def of(self, cell: MeasuredCell) -> Comparison | None:
        """Against one rank."""
        base = self.base_of(cell)
        return self.between(cell, base) if base else None

    def between(self, cell: MeasuredCell, other: MeasuredCell) -> Comparison | None:
        """Against another cell."""
        if self._speeds:
            return self._speeds.compare(cell.name, other.name)
        return self.times.compare(other.name, cell.name)


def _step_by_step(speedups: _Speedups) -> Iterator[str]:
    """What each larger number of ranks brings."""
    for mode, line in speedups.lines.items():
        gains = [(one, other, speedups.between(other, one)) for one, other in pairwise(line)]
        words = [
            (gain, f"from {one.world_size} to {other.world_size} ({digits(gain.value)} times{interval(gain)})")
            for one, other, gain in gains
            if gain
        ]
        nothing = [text for gain, text in words if gain.beyond_noise is False]
        less = [text for gain, text in words if gain.beyond_noise and gain.value < 1]
        if nothing:
            yield f"With {mode}, more ranks bring nothing beyond the noise {', '.join(nothing)}."
        if less:
            yield f"With {mode}, more ranks are slower {', '.join(less)}."
        if gains and not nothing and not less and all(gain and gain.beyond_noise for *_, gain in gains):
            yield f"With {mode}, each larger number of ranks brings more, beyond the noise."


def _mode_of(cell: MeasuredCell) -> str:
    return cell.settings.get("SYNC_MODE") or cell.first.mode


def _by_rank(cell: Cell, speedup: Interval | float | None) -> float | None:
    value = speedup.value if isinstance(speedup, Interval) else speedup
    return None if value is None else value / cell.world_size


def _efficiency(speedup: Comparison, ranks: int) -> str:
    text = percent(speedup.value / ranks)
    if speedup.low is None or speedup.high is None:
        return text
    return f"{text} ({percent(speedup.low / ranks)} to {percent(speedup.high / ranks)})"
