"""Batch sizes by numbers of ranks: an epoch's seconds, what is communication in them, accuracy, bandwidth."""

import math
from collections.abc import Iterator
from functools import partial

from pydantic import Field

from app.analysis import measures
from app.analysis.run import Run
from app.analysis.statistics import Comparison
from app.analysis.units import COUNT, MEGABYTES, MEGABYTES_PER_SECOND, PERCENT, SECONDS, digits
from app.analysis.words import duration
from app.cluster.wire.bandwidth import all_reduce_share
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.drawing import Drawing, Missing, draw
from app.pages.intervals import interval, with_interval
from app.pages.rows import Row, stacked
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.tools.experiment.plan.cells import Cell, alone_like, conditions
from app.tools.experiment.reading.results import MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, RANKS, ROUNDS, estimated, measured, told
from app.tools.experiment.views.drawn import bar, bars
from app.tools.experiment.views.measures import (
    COMMUNICATION,
    COMPUTING,
    HIDDEN,
    by_epoch,
    epoch_seconds,
    gradient_bytes,
    of_run,
    phase_seconds,
    ratio,
    training_accuracy,
)
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import alike, listing, noise_sentence, times

PER_RANK = "BATCH_SIZE_PER_RANK"

compute = by_epoch(phase_seconds(*COMPUTING))
communication = by_epoch(phase_seconds(*COMMUNICATION))
hidden = by_epoch(phase_seconds(HIDDEN))

PARTS = {"compute": (compute, "backward"), "communication": (communication, "sync")}  # drawn in which phase's colour


class Epochs(View):
    """Seconds of an epoch by batch size and number of ranks."""

    published_seconds: Published | None = Field(None, description="seconds per epoch, by cell")
    published_speedup: Published | None = Field(None, description="speedup against one device, by cell")
    published_communication: Published | None = Field(None, description="seconds of communication per epoch, by cell")
    published_bandwidth_mb: Published | None = Field(None, description="MB/s, by cell")

    def _sentences(self, results: Results) -> Iterator[str]:
        yield _about_speedup(results)
        yield from _about_communication(results)
        yield from _about_batches(results)
        yield from _about_formula(results)
        yield (
            "Seconds per epoch are as many median steps as an epoch has: no epoch was measured as a whole, and "
            "accuracies are those of the steps that were made."
        )
        yield noise_sentence(results.blocks(epoch_seconds), results, what="seconds per step")

    def _tables(self, results: Results, name: str) -> list[Table]:
        return [self._epochs(results, name), self._bandwidth(results, f"{name}-bandwidth")]

    def _epochs(self, results: Results, name: str) -> Table:
        blocks = results.blocks(epoch_seconds)
        columns = [
            CELL,
            Column[MeasuredCell]("batch per rank", "batch_size_per_rank", COUNT, _batch_of),
            RANKS,
            measured("steps an epoch", "steps_per_epoch", by_epoch(lambda _: 1)),
            *estimated("epoch, computed", "epoch_seconds", blocks, SECONDS),
            told("epoch_seconds", self.published_seconds, SECONDS),
            *with_interval("speedup", "speedup", partial(_speedup, results)),
            told("speedup", self.published_speedup),
            measured("compute", "compute_seconds", compute, SECONDS),
            measured("communication", "communication_seconds", communication, SECONDS),
            told("communication_seconds", self.published_communication, SECONDS),
            measured("hidden", "hidden_seconds", hidden, SECONDS),
            measured("training accuracy", "training_accuracy", training_accuracy, PERCENT),
            ROUNDS,
        ]
        note = (
            "Epoch: the steps of an epoch times the median step without the first; no epoch was measured "
            "as a whole. Compute (data, forward, backward, optimiser), communication (wait and sync, as far as they "
            "delay steps) and hidden (behind backward, in addition) are mean seconds of a step times the steps of an "
            "epoch. Speedup: against one rank with the same batch per rank. Accuracy: on the images of the last epoch "
            "that was begun, each as the model took it."
        )
        return Table.of(name, self.title, columns, _in_order(results), note + self._sources())

    def _bandwidth(self, results: Results, name: str) -> Table:
        rate, link = of_run(measures.ALGORITHM_BANDWIDTH), of_run(measures.SLOWEST_LINK)
        columns = [
            CELL,
            RANKS,
            measured("S", "gradient_bytes", gradient_bytes, MEGABYTES),
            measured("sync of a step", "sync_seconds", of_run(measures.TRANSFER), SECONDS),
            measured("algorithm, S/t", "algorithm_bytes_per_second", rate, MEGABYTES_PER_SECOND),
            measured("bus, 2(N-1)/N S/t", "bus_bytes_per_second", of_run(measures.BUS_BANDWIDTH), MEGABYTES_PER_SECOND),
            measured("slowest link", "link_bytes_per_second", link, MEGABYTES_PER_SECOND),
            measured("bus, of the link", "utilisation", ratio(of_run(measures.BUS_BANDWIDTH), link), PERCENT),
            measured("2(N-1) S/t", "document_bytes_per_second", _document_rate, MEGABYTES_PER_SECOND),
            measured("2(N-1) S/t, of the link", "document_utilisation", ratio(_document_rate, link), PERCENT),
            measured("ring at least", "ring_seconds", ratio(_ring_bytes, link), SECONDS),
            measured("log2(N) S/link", "document_seconds", ratio(_tree_bytes, link), SECONDS),
            measured(
                "S by an epoch's communication",
                "epoch_bytes_per_second",
                ratio(gradient_bytes, communication),  # which is how the document's own figures come out
                MEGABYTES_PER_SECOND,
            ),
            told("bytes_per_second", self.published_bandwidth_mb, MEGABYTES_PER_SECOND, 1e6),
        ]
        cells = [
            cell
            for cell in _in_order(results)
            if cell.world_size > 1 and any(run.summary.run[measures.TRANSFER] for run in cell.runs)
        ]
        note = (
            "S: all gradients of one rank, once. t: the median seconds in which a step's gradients were on their way, "
            "hidden or not. A ring passes 2(N-1)/N S over each link (bus). 2(N-1) S is what all ranks together send, "
            "and log2(N) S/link the time of a tree: neither says how far a ring uses a link. Not measured where the "
            "links were not."
        )
        note += self._sources()
        return Table.of(name, f"{self.title}: bandwidth", columns, cells, note)

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        return [
            draw(name, self.title, self._figure, results),
            draw(f"{name}-speedup", f"{self.title}: speedup", self._speedup_figure, results),
        ]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        rows = []
        for cell in _in_order(results):
            parts = [(part, cell.middle(measure) or 0.0, phase) for part, (measure, phase) in PARTS.items()]
            rows.append(Row(cell.name, stacked(parts), value=sum(seconds for _, seconds, _ in parts) or None))
        caption = "Mean seconds of a step times the steps of an epoch; medians over rounds."
        return bars(self.title, Axis("time per epoch", "s"), rows), caption

    def _speedup_figure(self, results: Results) -> tuple[Chart, str]:
        rows = [bar(cell.name, found, "") for cell in _in_order(results) if (found := _speedup(results, cell))]
        if not rows:
            raise Missing("speedup needs one rank and more, with the same batch per rank.")
        caption = "Against one rank with the same batch per rank; medians over rounds, lines are"
        return bars(self.title, Axis("speedup of an epoch"), rows), f"{caption} {definitions.INTERVALS}."


def _batch_of(cell: Cell) -> int | None:
    """Images per rank and step, where that is what the cell sets."""
    return int(cell.settings[PER_RANK]) if PER_RANK in cell.settings else None


def _in_order(results: Results) -> list[MeasuredCell]:
    """By batch size and then by ranks."""
    return sorted(results.cells, key=lambda cell: (_batch_of(cell) or 0, cell.world_size))


def _speedup(results: Results, cell: MeasuredCell) -> Comparison | None:
    """Against one rank with the same batch per rank."""
    base = alone_like(cell, results.cells)
    return results.blocks(epoch_seconds).compare(base.name if base else None, cell.name)


def _document_rate(run: Run) -> float | None:
    """2(N-1) S by the seconds of a synchronisation."""
    rate = run.summary.run[measures.ALGORITHM_BANDWIDTH]
    return None if rate is None else 2 * (run.summary.world_size - 1) * rate


def _ring_bytes(run: Run) -> float:
    """What a ring passes over each link."""
    return all_reduce_share(gradient_bytes(run), run.summary.world_size)


def _tree_bytes(run: Run) -> float:
    """log2(N) S."""
    return math.log2(run.summary.world_size) * gradient_bytes(run)


def _about_speedup(results: Results) -> str:
    found = [(cell.name, _speedup(results, cell)) for cell in _in_order(results) if cell.world_size > 1]
    parts = [f"{name} {digits(each.value)}{interval(each)}{alike(each)}" for name, each in found if each]
    lead = "Speedup of an epoch against one rank with the same batch per rank"
    return next(
        listing(lead, parts), "No speedup can be told: it needs one rank and more, with the same batch per rank."
    )


def _about_communication(results: Results) -> Iterator[str]:
    parts = []
    for cell in _in_order(results):
        delaying, behind = cell.middle(communication), cell.middle(hidden)
        if cell.world_size > 1 and delaying is not None:
            parts.append(
                f"{cell.name} {duration(delaying)}{'' if behind is None else f' and {duration(behind)} hidden'}"
            )
    yield from listing("Communication that delays steps, in an epoch", parts)


def _about_batches(results: Results) -> Iterator[str]:
    """Whether a larger batch per rank makes an epoch shorter."""
    groups: dict[str, list[MeasuredCell]] = {}
    batches = [cell for cell in _in_order(results) if _batch_of(cell) is not None]
    shared = conditions(batches, PER_RANK, "WORKERS")
    for cell in batches:
        ranks = f"{cell.world_size} rank{'s' if cell.world_size > 1 else ''}"
        groups.setdefault(", ".join(filter(None, (ranks, shared[cell.name]))), []).append(cell)
    for where, cells in sorted(groups.items()):
        if len(cells) < 2:
            continue
        least, most = cells[0], cells[-1]
        if found := results.blocks(epoch_seconds).compare(least.name, most.name):
            judged = {
                None: ", and one round does not tell whether that is noise",
                False: ", which is no difference beyond the noise",
                True: "",
            }[found.beyond_noise]
            yield (
                f"On {where}, an epoch with {_batch_of(least)} images per rank takes "
                f"{times(found)} what it takes with {_batch_of(most)}{judged}."
            )


def _about_formula(results: Results) -> Iterator[str]:
    """By how much the documents' formula is off, which depends on the number of ranks alone."""
    for ranks in sorted({cell.world_size for cell in results.cells if cell.world_size > 1}):
        runs = [run for cell in results.cells if cell.world_size == ranks for run in cell.runs]
        if any(run.summary.run[measures.TRANSFER] for run in runs):
            yield (
                f"For {ranks} ranks, 2(N-1) S by the same time is {ranks} times what passes a link: it adds up what "
                "all ranks send."
            )
