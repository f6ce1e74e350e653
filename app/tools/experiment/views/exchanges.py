"""What each exchange costs by the number of ranks, beside the least time that its messages need on the links."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pydantic import Field

from app.analysis.run import Run
from app.analysis.statistics import Blocks
from app.analysis.units import SECONDS, TEXT, digits
from app.pages import definitions, palette
from app.pages.chart import Chart
from app.pages.drawing import Missing
from app.pages.intervals import NO_DIFFERENCE
from app.pages.scale import Axis
from app.pages.series import left_out
from app.pages.table import Column, Table
from app.pages.traces import Trace
from app.tools.experiment.plan.cells import conditions
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, RANKS, ROUNDS, estimated, measured
from app.tools.experiment.views.drawn import MOST_LINES, interval_line, plot
from app.tools.experiment.views.measures import gradient_bytes, ratio, sent_by_rank, step_seconds, sync_seconds
from app.tools.experiment.views.measures import least_sync_seconds as least
from app.tools.experiment.views.order import EXPLANATION, Order, changes_within
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import noise_sentence, times

MODE = "SYNC_MODE"


@dataclass(frozen=True)
class Placed(MeasuredCell):
    """A cell, and what it has in common with those that differ in mode and ranks alone."""

    shared: str = ""

    @property
    def mode(self) -> str:
        return self.settings.get(MODE) or self.first.mode

    @property
    def place(self) -> str:
        """Cells of one place differ in their mode alone."""
        return ", ".join(filter(None, (f"{self.world_size} ranks", self.shared)))

    @property
    def line(self) -> str:
        """The cells of a line differ in their number of ranks alone."""
        return ", ".join(filter(None, (self.mode, self.shared)))


class Exchanges(View):
    """Seconds of synchronisation by mode and number of ranks, and the least that the links allow."""

    pair: list[str] | None = Field(
        None, min_length=2, max_length=2, description="two modes: on how many ranks the first one is faster"
    )

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks, cells = results.blocks(sync_seconds), _by_ranks(results)
        if self.pair:
            yield _against(self.pair[0], self.pair[1], cells, blocks)
        groups: dict[str, list[Order]] = {}
        for (shared, place), group in groupby(cells, key=lambda cell: (cell.shared, cell.place)):
            there = {cell.name: cell.mode for cell in group if cell.name in blocks.cells}
            if len(there) > 1:
                groups.setdefault(shared, []).append(Order.of(place, there, blocks, slowest_is_largest=True))
        if groups:
            yield f"Synchronisation, slowest first: {'; '.join(each.words for own in groups.values() for each in own)}."
            yield EXPLANATION
            yield from changes_within(groups)
        yield from _beside_least(cells)
        yield noise_sentence(blocks, results)

    def _tables(self, results: Results, name: str) -> list[Table]:
        columns: list[Column[Any]] = [
            CELL,
            RANKS,
            Column[Placed](MODE, "sync_mode", TEXT, lambda cell: cell.mode),
            *estimated("step", "seconds", results.blocks(step_seconds), SECONDS),
            *estimated("sync", "sync_seconds", results.blocks(sync_seconds), SECONDS),
            measured("at least", "sync_seconds_at_least", least, SECONDS),
            measured("times that", "times_the_least", ratio(sync_seconds, least)),
            measured("busiest rank sends, in S", "busiest_in_gradients", ratio(_sent_by_busiest, gradient_bytes)),
            ROUNDS,
        ]
        note = (
            f"Step and sync: medians {definitions.BUT_THE_FIRST} of a run, then over rounds, with "
            f"{definitions.INTERVALS}. At least: the schedule's messages on the measured links, if only they took "
            "time. S: all gradients of one rank, once."
        )
        return [Table.of(name, self.title, columns, _by_ranks(results), note)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        blocks, cells = results.blocks(sync_seconds), [each for each in _by_ranks(results) if each.middle(sync_seconds)]
        if not cells:
            raise Missing("no run with a synchronisation is finished.")
        lines = list(dict.fromkeys(cell.line for cell in cells))
        measured_times, bounds = [], []
        for number, line in enumerate(lines[:MOST_LINES]):
            own = [cell for cell in cells if cell.line == line]
            points = [(cell.world_size, found) for cell in own if (found := blocks.estimate(cell.name))]
            measured_times.append(interval_line(line, points))
            least_times = {cell.world_size: bound for cell in own if (bound := cell.middle(least))}
            if least_times:
                bounds.append(_dotted(f"{line}, at least", least_times, palette.series(number)))
        x = Axis("ranks", labels=[(ranks, str(ranks)) for ranks in sorted({cell.world_size for cell in cells})])
        y = Axis("time of synchronisation per step", "s", log=True)
        return plot(self.title, x, y, [*measured_times, *bounds]), (
            f"Medians over rounds; upright lines are {definitions.INTERVALS}; dotted: the least time of the schedule "
            f"on the measured links. The scale is logarithmic.{left_out(len(lines), MOST_LINES, 'lines')}"
        )


def _dotted(name: str, values: Mapping[int, float], role: str) -> Trace:
    return Trace(name, [*values], [*values.values()], look="curve", hollow=[True] * len(values), role=role)


def _against(one: str, other: str, cells: Sequence[Placed], blocks: Blocks) -> str:
    """On how many ranks the one synchronises faster than the other."""
    verdicts: dict[str, list[str]] = {}
    for cell in cells:
        rival = next((e for e in cells if (e.place, e.mode) == (cell.place, other)), None)
        found = blocks.compare(cell.name, rival.name if rival else None)
        if cell.mode == one and found:
            known = found.beyond_noise
            verdict = "one round does not tell" if known is None else "faster" if found.value < 1 else "slower"
            verdict = NO_DIFFERENCE if known is False else verdict
            verdicts.setdefault(verdict, []).append(f"{cell.place} ({times(found)})")
    if not verdicts:
        return f"{one} and {other} were not measured on the same number of ranks."
    parts = (f"{verdict} on {', '.join(places)}" for verdict, places in verdicts.items())
    return f"Time of synchronisation, {one} against {other}: {'; '.join(parts)}."


def _beside_least(cells: Sequence[Placed]) -> Iterator[str]:
    """Which cells are nearest to their own least time, and which the farthest from it."""
    over = {cell.name: found for cell in cells if (found := cell.middle(ratio(sync_seconds, least))) is not None}
    if over:
        near, far = min(over, key=lambda cell: over[cell]), max(over, key=lambda cell: over[cell])
        yield (
            f"Nearest to the least time of its own messages is {near}, with {digits(over[near])} times that"
            f"{f'; farthest is {far}, with {digits(over[far])} times' if near != far else ''}."
        )


def _by_ranks(results: Results) -> list[Placed]:
    shared = conditions(results.cells, "WORKERS", MODE)
    placed: dict[tuple[str, str], Placed] = {}
    for cell in results.cells:
        found = Placed(**vars(cell), shared=shared[cell.name])
        if (found.mode, found.place) in placed:  # the same settings, of which one cell leaves a default unset
            found = replace(found, shared=cell.name)
        placed[found.mode, found.place] = found
    return sorted(placed.values(), key=lambda cell: (cell.world_size, cell.place))


def _sent_by_busiest(run: Run) -> float | None:
    return max(sent_by_rank(run), default=None)
