"""The page of predictions: the finding, curves, a table, and what lies outside the calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from app.machine import folders
from app.pages import files
from app.pages.drawing import Drawing, draw
from app.pages.table import Table
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.names import RANKS
from app.tools.prediction.pages import curves, phases
from app.tools.prediction.pages.findings import gathered, outside, reading
from app.tools.prediction.pages.lines import axes_of


@dataclass(frozen=True)
class Predicted:
    """What was asked, and what came of it."""

    words: Sequence[str]  # of the command
    options: Sequence[str]
    found: Sequence[Forecast]
    limits: Sequence[str]  # where more ranks stop paying, and compression begins to, in sentences
    tables: Sequence[Table]

    @property
    def calibration(self) -> Calibration:
        """That of all cells."""
        return self.found[0].calibration


def write(predicted: Predicted, folder: Path) -> Path:
    """Put the page and its parts there."""
    pictures, model = drawings(predicted.found), predicted.calibration
    files.write_parts(folder, predicted.tables, pictures)
    content = {
        "title": " ".join(["scripts/predict", *predicted.options, *predicted.words]),
        "predicted": predicted,
        "model": model,
        "error": model.error,
        "reading": list(reading(predicted.found)),
        "outside": list(outside(predicted.found)),
        "limits": list(gathered(predicted.limits)),
        "drawings": pictures,
        "tables": [_on_page(each) for each in predicted.tables],
    }
    folders.replace_file(folder / folders.REPORT, files.render("prediction.html", content))
    return folder / folders.REPORT


def _on_page(table: Table) -> Table:
    """Without what the page says in a list of its own, and what would make rows as high as figures."""
    kept = [number for number, column in enumerate(table.columns) if column.name != "outside"]
    rows = [[row[number] for number in kept] for row in table.rows]
    note = f"{table.note} The CSV says of each cell what of it lies outside the calibration."
    return replace(table, columns=[table.columns[number] for number in kept], rows=rows, note=note)


def drawings(found: Sequence[Forecast]) -> list[Drawing]:
    """Curves along each axis that there is, or a bar for each cell."""
    made, axes = [], axes_of(found)
    for axis in axes:
        what = "ranks" if axis == RANKS else "rate"
        title = f"Seconds of a step by {what}"
        made.append(draw(f"seconds-by-{what}", title, partial(curves.seconds, axis=axis), found))
        if axis == RANKS:
            made.append(draw("efficiency", "Efficiency by ranks", curves.efficiency, found))
        if axis == axes[0]:
            title = f"What a step is made of, by {what}"
            made.append(draw(f"phases-by-{what}", title, partial(phases.along, axis=axis), found))
    return made or [draw("phases", "What a step is made of, by cell", phases.by_cell, found)]
