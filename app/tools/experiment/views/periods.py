"""What a step costs where ranks average every so many steps, in the long run, and the share of it that they compute."""

from collections.abc import Callable, Iterator

import numpy as np
from pydantic import Field

from app.analysis.run import Run
from app.analysis.units import COUNT, PERCENT, SECONDS
from app.analysis.words import percent
from app.pages import definitions
from app.pages.chart import Chart
from app.pages.rows import Row, stacked
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.records.lines import Step
from app.tools.experiment.plan.cells import conditions
from app.tools.experiment.reading.results import Measure, MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, ROUNDS, compared, estimated, measured
from app.tools.experiment.views.drawn import bars
from app.tools.experiment.views.measures import ratio
from app.tools.experiment.views.order import saturation
from app.tools.experiment.views.view import View
from app.tools.experiment.views.words import difference_sentence, listing, noise_sentence

EVERY = "SYNC_EVERY"


def computing_seconds(run: Run) -> float | None:
    """A step without waiting and synchronisation, the mean over ranks and steps but the first."""
    return _mean(run, lambda step: step.seconds - (step.wait_seconds or 0) - (step.sync_seconds or 0), due=False)


def averaging_seconds(run: Run) -> float | None:
    """Waiting and synchronisation, the mean over those steps that have them."""
    return _mean(run, lambda step: (step.wait_seconds or 0) + (step.sync_seconds or 0), due=True)


def long_run_seconds(run: Run) -> float | None:
    """A step with its share of an averaging: runs end with one, so that their own mean would count too many."""
    computing, averaging = computing_seconds(run), averaging_seconds(run)
    return None if computing is None or averaging is None else computing + averaging / _every(run)


class Periods(View):
    """Seconds per step, and the share of them that ranks compute, by SYNC_EVERY."""

    baseline: str | None = Field(None, description="the cell that the others are related to")

    def _sentences(self, results: Results) -> Iterator[str]:
        blocks = results.blocks(long_run_seconds)
        lines: dict[str, dict[str, str]] = {}  # the cells of a line differ in SYNC_EVERY alone
        cells = [cell for cell in results.cells if EVERY in cell.settings]
        shared = conditions(cells, EVERY)
        for cell in cells:
            lines.setdefault(shared[cell.name], {}).setdefault(cell.settings[EVERY], cell.name)
        for group, line in lines.items():
            for sentence in saturation(EVERY, line, blocks, slowest_is_largest=True):
                yield f"{group}: {sentence}" if len(lines) > 1 else sentence
        for name in (name for line in lines.values() for name in line.values()):
            if self.baseline and (found := blocks.compare(self.baseline, name)):
                yield difference_sentence(found, self.baseline, name)
        shares = ((cell.name, cell.middle(utilisation)) for cell in results.cells)
        yield from listing(
            "Share of the time in which ranks compute", (f"{name} {percent(each)}" for name, each in shares if each)
        )
        yield noise_sentence(blocks, results)

    def _tables(self, results: Results, name: str) -> list[Table]:
        blocks = results.blocks(long_run_seconds)
        columns = [
            CELL,
            Column[MeasuredCell](EVERY, "sync_every", COUNT, lambda cell: cell.settings.get(EVERY)),
            *estimated("step, in the long run", "seconds", blocks, SECONDS),
            *compared(f"by {self.baseline}", "ratio", blocks, self.baseline),
            measured("computing", "computing_seconds", computing_seconds, SECONDS),
            measured("each averaging", "averaging_seconds", averaging_seconds, SECONDS),
            measured("share computing", "computing_share", utilisation, PERCENT),
            ROUNDS,
        ]
        note = (
            "In the long run: computing, and an averaging divided by SYNC_EVERY. Each averaging: wait and sync of a "
            f"step that has one. Means over ranks and all steps but the first, medians over rounds, with "
            f"{definitions.INTERVALS}."
        )
        return [Table.of(name, self.title, columns, results.cells, note)]

    def _figure(self, results: Results) -> tuple[Chart, str]:
        blocks, rows = results.blocks(long_run_seconds), []
        for cell in results.cells:
            if found := blocks.estimate(cell.name):
                computing = cell.middle(computing_seconds) or 0.0
                parts = [("computing", computing, "backward"), ("averaging", found.value - computing, "sync")]
                rows.append(Row(cell.name, stacked(parts), value=found.value, low=found.low, high=found.high))
            else:
                rows.append(Row(cell.name, []))
        chart = bars(self.title, Axis("time per step in the long run", "s"), rows)
        return chart, f"Medians over rounds; lines are {definitions.INTERVALS}."


utilisation: Measure = ratio(computing_seconds, long_run_seconds)


def _every(run: Run) -> int:
    every = run.manifest.settings.get("sync_every")
    return every if isinstance(every, int) and not isinstance(every, bool) else 1


def _is_due(step: Step, run: Run) -> bool:
    return (step.step + 1) % _every(run) == 0 or step.step + 1 == run.manifest.plan.steps


def _mean(run: Run, seconds_of: Callable[[Step], float], *, due: bool) -> float | None:
    steps = [step for rank in run.ranks for step in rank.warm if not due or _is_due(step, run)]
    known = steps and all(step.wait_seconds is not None and step.sync_seconds is not None for step in steps)
    return float(np.mean([seconds_of(step) for step in steps])) if known else None
