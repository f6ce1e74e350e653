"""What each exchange costs by the number of ranks, beside the least time that its messages need on the links."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from pydantic import Field

from app.analysis.run import Run
from app.analysis.statistics import Blocks
from app.analysis.units import SECONDS, TEXT, digits
from app.pages import definitions, theme
from app.pages.drawing import Missing
from app.pages.intervals import NO_DIFFERENCE
from app.pages.table import Column, Table
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, RANKS, ROUNDS, estimated, measured
from app.tools.experiment.views.drawn import MOST_LINES, draw_lines, in_powers
from app.tools.experiment.views.measures import gradient_bytes, ratio, sent_by_rank, step_seconds, sync_seconds
from app.tools.experiment.views.measures import least_sync_seconds as least
from app.tools.experiment.views.order import Order, changes
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import noise_sentence, times

MODE = "SYNC_MODE"


class Exchanges(View):
    """Seconds of synchronisation by mode and number of ranks, and the least that the links allow."""

    pair: list[str] | None = Field(
        None, min_length=2, max_length=2, description="two modes: on how many ranks the first one is faster"
    )

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks, cells = results.blocks(sync_seconds), _by_ranks(results)
        if self.pair:
            yield _against(self.pair[0], self.pair[1], cells, blocks)
        orders = [
            Order.of(f"{ranks} ranks", {cell.name: _mode_of(cell) for cell in there}, blocks, slowest_is_largest=True)
            for ranks, group in groupby(cells, key=lambda cell: cell.world_size)
            if len(there := [cell for cell in group if cell.name in blocks.cells]) > 1
        ]
        if orders:
            yield f"Synchronisation, slowest first: {'; '.join(order.words for order in orders)}."
            yield "There = is a difference that is not beyond the noise, between neighbours."
            yield from changes(orders)
        yield from _beside_least(cells)
        yield noise_sentence(blocks, results)

    def _tables(self, results: Results, name: str) -> list[Table]:
        columns = [
            CELL,
            RANKS,
            Column[MeasuredCell](MODE, "sync_mode", TEXT, _mode_of),
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

    def _figure(self, results: Results) -> tuple[Figure, str]:
        blocks, cells = results.blocks(sync_seconds), [each for each in _by_ranks(results) if each.middle(sync_seconds)]
        if not cells:
            raise Missing("no run with a synchronisation is finished.")
        modes = list(dict.fromkeys(map(_mode_of, cells)))[:MOST_LINES]
        lines = {mode: [cell for cell in cells if _mode_of(cell) == mode] for mode in modes}
        figure = theme.new_figure(3.6)
        axes = figure.subplots()
        shown = {
            mode: [(cell.world_size, found) for cell in line if (found := blocks.estimate(cell.name))]
            for mode, line in lines.items()
        }
        draw_lines(axes, shown)
        for number, line in enumerate(lines.values()):
            bounds = [(cell.world_size, bound) for cell in line if (bound := cell.middle(least))]
            at, seconds = [ranks for ranks, _ in bounds], [bound for _, bound in bounds]
            axes.plot(at, seconds, color=theme.colour(number), linewidth=0.8, linestyle="--")
        axes.set_xticks(sorted({cell.world_size for cell in cells}))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yscale("log")
        in_powers(axes.yaxis)
        axes.set_xlabel("ranks")
        axes.set_ylabel("s of synchronisation")
        theme.legend_above(axes, 4)
        return figure, (
            f"Medians over rounds; upright lines are {definitions.INTERVALS}; dashed: the least time of the schedule "
            "on the measured links. The scale is logarithmic."
        )


def _against(one: str, other: str, cells: Sequence[MeasuredCell], blocks: Blocks) -> str:
    """On how many ranks the one synchronises faster than the other."""
    verdicts: dict[str, list[str]] = {}
    for cell in cells:
        rival = next((e for e in cells if (e.world_size, _mode_of(e)) == (cell.world_size, other)), None)
        found = blocks.compare(cell.name, rival.name if rival else None)
        if _mode_of(cell) == one and found:
            known = found.beyond_noise
            verdict = "one round does not tell" if known is None else "faster" if found.value < 1 else "slower"
            verdict = NO_DIFFERENCE if known is False else verdict
            verdicts.setdefault(verdict, []).append(f"{cell.world_size} ({times(found)})")
    if not verdicts:
        return f"{one} and {other} were not measured on the same number of ranks."
    parts = (f"{verdict} on {', '.join(ranks)} ranks" for verdict, ranks in verdicts.items())
    return f"Time of synchronisation, {one} against {other}: {'; '.join(parts)}."


def _beside_least(cells: Sequence[MeasuredCell]) -> Iterator[str]:
    """Which cells are nearest to their own least time, and which the farthest from it."""
    over = {cell.name: found for cell in cells if (found := cell.middle(ratio(sync_seconds, least))) is not None}
    if over:
        near, far = min(over, key=lambda cell: over[cell]), max(over, key=lambda cell: over[cell])
        yield (
            f"Nearest to the least time of its own messages is {near}, with {digits(over[near])} times that"
            f"{f'; farthest is {far}, with {digits(over[far])} times' if near != far else ''}."
        )


def _by_ranks(results: Results) -> list[MeasuredCell]:
    return sorted(results.cells, key=lambda cell: cell.world_size)


def _mode_of(cell: MeasuredCell) -> str:
    return cell.settings.get(MODE) or cell.first.mode


def _sent_by_busiest(run: Run) -> float | None:
    return max(sent_by_rank(run), default=None)
