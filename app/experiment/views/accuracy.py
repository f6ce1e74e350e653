"""Training and test accuracy at the end, over seeds: medians with intervals, and differences beyond the noise."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from app.experiment.reading.results import Figure as Measure
from app.experiment.reading.results import Results
from app.experiment.reading.statistics import Blocks, Comparison, Estimate
from app.experiment.views.learned import (
    by_epoch,
    in_percent,
    in_words,
    left_out,
    line_figure,
    listed,
    points,
    test_accuracy,
    training_accuracy,
)
from app.experiment.views.view import Published, Section, View, cell_column, missing_sentences, noise_sentence
from app.report import theme
from app.report.drawing import Missing, draw
from app.report.series import series
from app.report.table import Column, Table, Value, digits, percent

Part = Literal["training", "test"]
FIGURES: dict[Part, Measure] = {"training": training_accuracy, "test": test_accuracy}
FIELDS: dict[Part, str] = {"training": "training_accuracy", "test": "accuracy"}  # of an epoch


class Accuracy(View):
    """Accuracy at the end."""

    baseline: str | None = Field(None, description="the cell that the others are related to")
    judged: Part = Field("test", description="which accuracy sentences, differences and figures are of")
    published_training: Published | None = Field(None, description="training accuracies from 0 to 1, by cell")
    published_test: Published | None = Field(None, description="test accuracies from 0 to 1, by cell")

    def named_cells(self) -> list[str]:
        """Those of its options."""
        published = [cell for each in self._published.values() if each for cell in each.values]
        return [*([self.baseline] if self.baseline else []), *published]

    def section(self, results: Results, name: str) -> Section:
        """The table, the curves, the ends with their intervals."""
        blocks = {part: results.blocks(figure, ratios=False) for part, figure in FIGURES.items()}
        sentences = [*self._sentences(results, blocks[self.judged]), *self._published_sentence()]
        sentences += missing_sentences(results)
        note = [self.note] if self.note else []
        figures = [
            draw(f"{name}-epochs", f"{self.title}, by epoch", self._by_epoch, results, png=True),
            draw(
                f"{name}-ends", f"{self.title}, at the end", lambda subject: self._ends(*subject),
                (results, blocks[self.judged]), png=True,
            ),
        ]  # fmt: skip
        return Section(name, self.title, [*sentences, *note], figures, [self._table(results, blocks, name)])

    @property
    def _published(self) -> dict[Part, Published | None]:
        return {"training": self.published_training, "test": self.published_test}

    def _sentences(self, results: Results, blocks: Blocks) -> Iterator[str]:
        unknown = [cell.name for cell in results.cells if cell.name not in blocks.cells]
        if not blocks.cells:
            yield f"No run has a {self.judged} accuracy."
            return
        for cell in blocks.cells:
            if cell != self.baseline and (own := blocks.estimate(cell)):
                against = blocks.compare(cell, self.baseline) if self.baseline else None
                yield _sentence(cell, own, against, self.baseline, self.judged)
        if self.baseline and (own := blocks.estimate(self.baseline)):
            yield f"{self.baseline} itself ends at {in_words(own.median)}{_interval(own)}."
        if unknown:
            yield f"No {self.judged} accuracy is known of {listed(unknown)}."
        yield noise_sentence(blocks, results, points=True)

    def _published_sentence(self) -> Iterator[str]:
        for part, published in self._published.items():
            base = published.of(self.baseline) if published and self.baseline else None
            for cell in published.values if published and base is not None else ():
                value = published.of(cell) if published else None
                if published and cell != self.baseline and value is not None and base is not None:
                    yield (
                        f"Published as {part} accuracy: {in_words(value)} with {cell}, {in_words(base)} with "
                        f"{self.baseline}, so {points(value - base)} {_side(value - base)} ({published.source})."
                    )

    def _table(self, results: Results, blocks: dict[Part, Blocks], name: str) -> Table:
        columns = [cell_column()]
        for part in FIGURES:
            columns += [
                Column(f"{part} accuracy", f"{part}_accuracy", percent),
                Column("95 % from", f"{part}_accuracy_low", percent),
                Column("to", f"{part}_accuracy_high", percent),
            ]
            columns += [Column("published", f"published_{part}_accuracy", percent)] if self._published[part] else []
        if self.baseline:
            columns += [
                Column(f"less {self.baseline} ({self.judged}), points", "difference", _signed),
                Column("95 % from", "difference_low", _signed),
                Column("to", "difference_high", _signed),
            ]
        columns.append(Column("rounds", "rounds", digits))
        rows: list[list[Value]] = []
        for cell in results.cells:
            row: list[Value] = [cell.name]
            for part in FIGURES:
                row += _values(blocks[part].estimate(cell.name))
                published = self._published[part]
                row += [published.of(cell.name)] if published else []
            if self.baseline:
                other = blocks[self.judged].compare(cell.name, self.baseline) if cell.name != self.baseline else None
                row += [other.value, other.low, other.high] if other else [None, None, None]
            rows.append([*row, len(results.runs(cell.name))])
        note = (
            "Training accuracy is of the last epoch's images, each as the model took it at its step; test accuracy is "
            "of the last evaluation. Medians over rounds, each with a seed of its own, with 95 % intervals; "
            "differences in percentage points."
        )
        if sources := dict.fromkeys(each.source for each in self._published.values() if each):
            note += f" Published: {'; '.join(sources)}."
        return Table(name, self.title, columns, rows, note)

    def _by_epoch(self, results: Results) -> tuple[Figure, str]:
        lines = [
            series(cell.name, range(1, len(values) + 1), values)
            for cell in results.cells
            for values in [by_epoch(results, cell.name, FIELDS[self.judged])]
        ]
        up = f"{self.judged} accuracy"
        figure, axes = line_figure(lines, "epoch", up, f"no run has a {up}.", marker="o")
        in_percent(axes.yaxis)
        return figure, f"Medians over rounds.{left_out(lines)}"

    def _ends(self, results: Results, blocks: Blocks) -> tuple[Figure, str]:
        if not blocks.cells:
            raise Missing(f"no run has a {self.judged} accuracy.")
        published = self._published[self.judged]
        figure = theme.new_figure(1.2 + 0.42 * len(results.cells))
        axes = figure.subplots()
        drawn: set[str] = set()

        def mark(value: Value, place: int, form: str, label: str, number: int) -> None:
            if value is not None:
                shown = f"_{label}" if label in drawn else label  # a legend leaves out what begins with _
                axes.plot(float(value), place, form, color=theme.colour(number), markersize=6, label=shown)
                drawn.add(label)

        for place, cell in enumerate(results.cells):
            value, low, high = _values(blocks.estimate(cell.name))
            if low is not None and high is not None:
                axes.plot([float(low), float(high)], [place, place], color=theme.INK, linewidth=1.2)
            mark(value, place, "o", "measured", 0)
            mark(published.of(cell.name) if published else None, place, "D", "published", 1)
        axes.set_yticks(np.arange(len(results.cells)), theme.shorten([cell.name for cell in results.cells]))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"{self.judged} accuracy")
        in_percent(axes.xaxis)
        if len(drawn) > 1:
            theme.legend_above(axes, 2)
        source = f" Published: {published.source}." if published and "published" in drawn else ""
        return figure, f"Medians over rounds; lines are intervals of 95 % confidence.{source}"


def _sentence(cell: str, own: Estimate, against: Comparison | None, baseline: str | None, part: str) -> str:
    ends = f"{cell} ends at {in_words(own.median)}{_interval(own)} {part} accuracy"
    if against is None:
        return f"{ends}."
    apart = f"{points(against.value)} {_side(against.value)} {baseline}"
    if against.low is None or against.high is None:
        return f"{ends}, {apart}; one round does not tell whether that is noise."
    span = f"({_signed(against.low)} to {_signed(against.high)})"
    if against.beyond_noise:
        return f"{ends}: {apart} {span}."
    return f"{ends}: no difference from {baseline} beyond the noise, {_signed(against.value)} percentage points {span}."


def _side(difference: float) -> str:
    return "below" if difference < 0 else "above"


def _signed(value: Value) -> str:
    """A difference in percentage points."""
    return f"{100 * float(value or 0):+.1f}"


def _values(estimate: Estimate | None) -> list[Value]:
    """The median and an interval that keeps to what an accuracy can be."""
    if estimate is None:
        return [None, None, None]
    low, high = estimate.low, estimate.high
    return [estimate.median, None if low is None else max(0.0, low), None if high is None else min(1.0, high)]


def _interval(estimate: Estimate) -> str:
    _, low, high = _values(estimate)
    return "" if low is None or high is None else f" ({in_words(float(low))} to {in_words(float(high))})"
