"""Training and test accuracy at the end, over seeds: medians with intervals, and differences beyond the noise."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field

from app.analysis import figures
from app.analysis.measures import ACCURACY, TRAINING_ACCURACY
from app.analysis.statistics import Blocks, Comparison, Estimate, Interval
from app.analysis.units import PERCENT, Unit
from app.analysis.words import percent
from app.pages.chart import Chart
from app.pages.definitions import INTERVALS
from app.pages.drawing import Drawing, Missing, draw
from app.pages.intervals import with_interval
from app.pages.scale import Axis
from app.pages.table import Column, Table
from app.tools.experiment.reading.results import Measure, MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, ROUNDS, told
from app.tools.experiment.views.drawn import bar, bars, curves, epoch_lines, remarks
from app.tools.experiment.views.measures import test_accuracy, training_accuracy
from app.tools.experiment.views.view import Published, View
from app.tools.experiment.views.words import listed, noise_sentence, points

Part = Literal["training", "test"]
MEASURES: dict[Part, Measure] = {"training": training_accuracy, "test": test_accuracy}
OF_EPOCH: dict[Part, figures.Measure[float]] = {"training": TRAINING_ACCURACY, "test": ACCURACY}  # of an epoch


def signed(difference: float) -> str:
    """A difference in percentage points."""
    return f"{100 * difference:+.1f}"


class Accuracy(View):
    """Accuracy at the end."""

    baseline: str | None = Field(None, description="the cell that the others are related to")
    judged: Part = Field("test", description="which accuracy sentences, differences and figures are of")
    published_training: Published | None = Field(None, description="training accuracies from 0 to 1, by cell")
    published_test: Published | None = Field(None, description="test accuracies from 0 to 1, by cell")

    @property
    def _published_accuracies(self) -> dict[Part, Published | None]:
        return {"training": self.published_training, "test": self.published_test}

    def _sentences(self, results: Results) -> Iterator[str]:
        yield from self._ends(results)
        yield from self._published_sentences()

    def _ends(self, results: Results) -> Iterator[str]:
        blocks = _blocks(results, self.judged)
        unknown = [cell.name for cell in results.cells if cell.name not in blocks.cells]
        if not blocks.cells:
            yield f"No run has a {self.judged} accuracy."
            return
        for cell in blocks.cells:
            if cell != self.baseline and (own := _estimate(blocks, cell)):
                ends = f"{cell} ends at {_words(own)} {self.judged} accuracy"
                yield f"{ends}{_against(blocks.compare(cell, self.baseline), self.baseline)}."
        if self.baseline and (own := _estimate(blocks, self.baseline)):
            yield f"{self.baseline} itself ends at {_words(own)}."
        if unknown:
            yield f"No {self.judged} accuracy is known of {listed(unknown)}."
        yield noise_sentence(blocks, results, points=True)

    def _published_sentences(self) -> Iterator[str]:
        for part, published in self._published_accuracies.items():
            base = published.of(self.baseline) if published else None
            for cell in published.values if published and base is not None else ():
                value = published.of(cell) if published else None
                if published and cell != self.baseline and value is not None and base is not None:
                    yield (
                        f"Published as {part} accuracy: {percent(value, 1)} with {cell}, {percent(base, 1)} with "
                        f"{self.baseline}, so {points(value - base)} {_side(value - base)} ({published.source})."
                    )

    def _tables(self, results: Results, name: str) -> list[Table]:
        base, judged = self.baseline, _blocks(results, self.judged)

        def accuracy(part: Part) -> list[Column[MeasuredCell]]:
            blocks, published = _blocks(results, part), self._published_accuracies[part]

            def own(cell: MeasuredCell) -> Interval | None:
                return _estimate(blocks, cell.name)

            columns = with_interval(f"{part} accuracy", f"{part}_accuracy", own, PERCENT)
            return [*columns, told(f"{part}_accuracy", published, PERCENT)] if published else columns

        def difference(cell: MeasuredCell) -> Interval | None:
            return None if cell.name == base else judged.compare(cell.name, base)

        columns = [CELL, *accuracy("training"), *accuracy("test")]
        if base:
            columns += with_interval(f"less {base} ({self.judged}), points", "difference", difference, Unit(signed))
        note = (
            "Training accuracy is of the last epoch's images, each as the model took it at its step; test accuracy is "
            "of the last evaluation. Medians over rounds, each with a seed of its own, with "
            f"{INTERVALS}; "
            "differences in percentage points."
        )
        return [Table.of(name, self.title, [*columns, ROUNDS], results.cells, note + self._sources())]

    def _drawings(self, results: Results, name: str) -> list[Drawing]:
        return [
            draw(f"{name}-epochs", f"{self.title}, by epoch", self._by_epoch, results),
            draw(f"{name}-ends", f"{self.title}, at the end", self._at_the_end, results),
        ]

    def _by_epoch(self, results: Results) -> tuple[Chart, str]:
        lines = epoch_lines(results, OF_EPOCH[self.judged])
        what = f"{self.judged} accuracy"
        chart = curves(self.title, "epoch", Axis(what, "share", zero=False), lines, f"no run has a {what}.")
        return chart, f"Medians over rounds.{remarks(lines, 'epochs')}"

    def _at_the_end(self, results: Results) -> tuple[Chart, str]:
        blocks, published = _blocks(results, self.judged), self._published_accuracies[self.judged]
        if not blocks.cells:
            raise Missing(f"no run has a {self.judged} accuracy.")
        theirs = {cell.name: published.of(cell.name) if published else None for cell in results.cells}
        rows = [bar(cell, _estimate(blocks, cell), "share", value) for cell, value in theirs.items()]
        source = self._sources(published) if any(value is not None for value in theirs.values()) else ""
        caption = f"Medians over rounds; lines are {INTERVALS}.{source}"
        return bars(self.title, Axis(f"{self.judged} accuracy at the end", "share"), rows), caption


def _blocks(results: Results, part: Part) -> Blocks:
    return results.blocks(MEASURES[part], ratios=False)


def _estimate(blocks: Blocks, cell: str) -> Estimate | None:
    """With an interval that keeps to what an accuracy can be."""
    own = blocks.estimate(cell)
    if own is None or own.low is None or own.high is None:
        return own
    return replace(own, low=max(0.0, own.low), high=min(1.0, own.high))


def _words(own: Estimate) -> str:
    value = percent(own.value, 1)
    if own.low is None or own.high is None:
        return value
    return f"{value} ({percent(own.low, 1)} to {percent(own.high, 1)})"


def _against(other: Comparison | None, baseline: str | None) -> str:
    """What a difference from the baseline says."""
    if other is None:
        return ""
    apart = f"{points(other.value)} {_side(other.value)} {baseline}"
    if other.low is None or other.high is None:
        return f", {apart}; one round does not tell whether that is noise"
    span = f"({signed(other.low)} to {signed(other.high)})"
    if other.beyond_noise:
        return f": {apart} {span}"
    return f": no difference from {baseline} beyond the noise, {signed(other.value)} percentage points {span}"


def _side(difference: float) -> str:
    return "below" if difference < 0 else "above"
