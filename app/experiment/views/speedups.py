"""How much more several ranks get done than one, by number of ranks and mode, and the same in words."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Results
from app.experiment.reading.statistics import Comparison
from app.experiment.views.measures import images_per_second
from app.experiment.views.times import step_seconds
from app.experiment.views.view import interval, missing_sentences, noise_sentence
from app.report.table import digits
from app.summary.verdict import percent

PER_RANK = "BATCH_SIZE_PER_RANK"  # cells that set it are about weak scaling

Kind = Literal["strong", "weak"]


class Speedups:
    """The cells of one kind, and how each compares with one rank."""

    def __init__(self, kind: Kind, results: Results) -> None:
        """Of the cells of this kind."""
        self._kind, self._results = kind, results
        self.planned = [cell for cell in results.grid.cells if self._concerns(cell)]
        self.cells = sorted((cell for cell in results.cells if self._concerns(cell)), key=lambda cell: cell.world_size)
        self.times = results.blocks(step_seconds, self.cells)
        self._speeds = results.blocks(images_per_second, self.cells)
        self.base = next((cell for cell in self.cells if cell.world_size == 1), None)
        # One rank synchronises nothing, so that it is where the line of every mode begins.
        self.lines: dict[str, list[Cell]] = {}
        for cell in self.cells:
            if cell is not self.base:
                self.lines.setdefault(mode_of(cell), [self.base] if self.base else []).append(cell)

    def _concerns(self, cell: Cell) -> bool:
        return (PER_RANK in cell.settings) == (self._kind == "weak")

    def speedup(self, cell: Cell, base: Cell | None) -> Comparison | None:
        """How much more a cell gets done in the same time."""
        if base is None:
            return None
        if self._kind == "strong":
            return self.times.compare(base.name, cell.name)
        return self._speeds.compare(cell.name, base.name)

    def sentences(self) -> Iterator[str]:
        """What the most ranks bring, and where one more brings nothing."""
        if self.base is None:
            yield "No speedup can be told: one rank alone was not measured."
        else:
            yield from self._at_the_end()
        yield from self._steps()
        yield noise_sentence(self.times, self._results, what="seconds per step")
        yield (
            "Seconds per epoch are as many median steps as an epoch has: they were not measured as a whole."
            if self.cells
            else f"No run about {self._kind} scaling is finished."
        )
        yield from missing_sentences(self._results, self.planned)

    def _at_the_end(self) -> Iterator[str]:
        parts = []
        for mode, line in self.lines.items():
            last = line[-1]
            speedup = self.speedup(last, self.base)
            if speedup is None or last is self.base:
                continue
            alike = ", which is no difference beyond the noise" if speedup.beyond_noise is False else ""
            parts.append(
                f"{mode} {digits(speedup.value)}{interval(speedup)} on {last.world_size}{alike}, an efficiency of "
                f"{_efficiency(speedup, last.world_size)}"
            )
        of_what = "a step of the same global batch" if self._kind == "strong" else "images per second"
        yield (
            f"Speedup ({of_what}, one rank is 1) on the most ranks: {'; '.join(parts)}."
            if parts
            else "No speedup can be told: nothing but one rank was measured."
        )

    def _steps(self) -> Iterator[str]:
        for mode, line in self.lines.items():
            gains = [(one, other, self.speedup(other, one)) for one, other in pairwise(line)]
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
            if nothing or less:
                continue
            if gains and all(gain and gain.beyond_noise for *_, gain in gains):
                yield f"With {mode}, each larger number of ranks brings more, beyond the noise."


def mode_of(cell: Cell) -> str:
    """Its way of averaging gradients."""
    return cell.settings.get("SYNC_MODE", "ddp")


def _efficiency(speedup: Comparison, ranks: int) -> str:
    text = percent(speedup.value / ranks)
    if speedup.low is None or speedup.high is None:
        return text
    return f"{text} ({percent(speedup.low / ranks)} to {percent(speedup.high / ranks)})"
