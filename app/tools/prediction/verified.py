"""The page of a verification: whether predictions hold, how far off which kinds of cells are, and what was sealed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from app.analysis.units import COUNT, PERCENT, SECONDS, TEXT
from app.analysis.words import duration
from app.machine.say import counted
from app.pages.drawing import draw
from app.pages.plot import Plot
from app.pages.scale import Axis
from app.pages.section import Section, write_page
from app.pages.table import Column, Table
from app.pages.traces import Panel, Trace
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.prediction.drift import AROUND, ASIDE, MOST_APART, made_again
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.observed import finished
from app.tools.prediction.simulation import PHASES
from app.tools.prediction.verification import (
    MOST_MEDIAN_ERROR,
    MOST_P90_ERROR,
    PREDICTIONS,
    Checked,
    PredictionScore,
)

KINDS: Mapping[str, Callable[[Forecast], str]] = {
    "model": lambda each: each.settings.training.model,
    "mode": lambda each: each.settings.averaging.sync_mode,
    "ranks": lambda each: counted(each.ranks, "rank"),
}


def table(checked: Sequence[Checked]) -> Table:
    columns = [
        Column[Checked]("cell", "cell", TEXT, lambda each: each.forecast.name),
        Column[Checked]("ranks", "world_size", COUNT, lambda each: each.forecast.ranks),
        Column[Checked]("step, predicted", "seconds_predicted", SECONDS, lambda each: each.forecast.seconds),
        Column[Checked]("80 % from", "seconds_low", SECONDS, lambda each: each.forecast.interval[0]),
        Column[Checked]("to", "seconds_high", SECONDS, lambda each: each.forecast.interval[1]),
        Column[Checked]("measured", "seconds_measured", SECONDS, Checked.seconds),
        Column[Checked]("without drift", "seconds_corrected", SECONDS, lambda each: each.corrected),
        Column[Checked]("drift", "drift", PERCENT, lambda each: mean(each.drifts) - 1),
        Column[Checked]("error", "error", PERCENT, lambda each: each.error),
        Column[Checked]("raw error", "raw_error", PERCENT, lambda each: each.raw_error),
        Column[Checked]("noise of repeats", "noise", PERCENT, lambda each: each.noise),
        *(column for phase in (*PHASES, "hidden_sync") for column in _both(phase)),
    ]
    note = (
        "Means over steps and ranks. Drift: how much slower the anchors computed than in the calibration, by the "
        f"middle of up to {AROUND} before the run and {AROUND} after it. Without drift: what processors do is divided "
        "by that, what links do is not. Error: predicted by that."
    )
    return Table.of("verified", "Predicted and measured", columns, checked, note)


def _both(phase: str) -> list[Column[Checked]]:
    heading, name = phase.replace("_", " "), f"{phase}_seconds"
    return [
        Column(f"{heading}, predicted", f"{name}_predicted", SECONDS, lambda each: each.forecast.mean(phase)),
        Column(f"{heading}, measured", f"{name}_measured", SECONDS, lambda each: each.seconds(phase)),
    ]


def verdict(score: PredictionScore) -> Iterator[str]:
    """Whether predictions hold, with the numbers; then what else is to be known."""
    yield (
        f"The predictions {'hold' if score.holds else 'do not hold'}: over {score.cells} cells they are "
        f"{score.median_error:.1%} off in the median and {score.p90_error:.1%} at the 90th percentile, corrected for "
        f"machine drift. The error limits are {MOST_MEDIAN_ERROR:.0%} and {MOST_P90_ERROR:.0%}."
    )
    yield f"Without that correction, they are {score.median_raw_error:.1%} off in the median."
    if score.disturbed:
        yield (
            f"{score.disturbed} of {score.runs} runs count although their repetition was disturbed too: by their own "
            f"forward passes, the machine was over {MOST_APART - 1:.0%} slower or faster than in the reference runs."
        )
    yield f"The 80 % intervals cover {score.held:.0%} of the cells."
    if score.order_right is not None:
        yield (
            f"{score.pairs} pairs of cells differ only in synchronisation, and by more than the noise: "
            f"{score.order_right:.0%} of them are predicted in the right order."
        )


def by_kind(checked: Sequence[Checked]) -> Table:
    """Of all cells, then of those of each model, mode and number of ranks."""
    rows: list[tuple[str, str | None, list[Checked]]] = [("all", None, list(checked))]
    for by, kind in KINDS.items():
        found = _by(sorted(checked, key=lambda each: each.forecast.ranks if by == "ranks" else 0), kind)
        rows += [(name, by, cells) for name, cells in found.items() if len(found) > 1]

    def of_errors(heading: str, name: str, figure: Callable[[list[float]], float]) -> Column[Any]:
        return Column(heading, name, PERCENT, lambda row: figure([abs(each.error) for each in row[2]]))

    columns = [
        Column[Any]("cells", "kind", TEXT, lambda row: row[0]),
        Column[Any]("by", "by", TEXT, lambda row: row[1]),
        Column[Any]("n", "cells", COUNT, lambda row: len(row[2])),
        of_errors("median", "median_error", median),
        of_errors("p90", "p90_error", lambda errors: float(np.percentile(errors, 90))),
        of_errors("most", "most_error", max),
        Column[Any]("mean, signed", "mean_error", PERCENT, lambda row: mean(each.error for each in row[2])),
        Column[Any]("intervals that hold", "held", PERCENT, lambda row: mean(float(each.held) for each in row[2])),
    ]
    note = (
        "Sizes of errors, the machine's drift taken out. Of fewer than ten cells the 90th percentile lies between the "
        "two that are furthest off. Signed: above 0, predictions are too long."
    )
    return Table.of("errors", "Errors by kind of cell", columns, rows, note)


def _by(checked: Sequence[Checked], kind: Callable[[Forecast], str]) -> dict[str, list[Checked]]:
    found: dict[str, list[Checked]] = {}
    for each in checked:
        found.setdefault(kind(each.forecast), []).append(each)
    return found


def scatter(checked: Sequence[Checked]) -> tuple[Plot, str]:
    panels = [
        Panel([_marks(name, cells) for name, cells in _by(of_model, KINDS["mode"]).items()], model)
        for model, of_model in _by(checked, KINDS["model"]).items()
    ]
    x, y = (Axis(f"{which} time per step", "s", log=True) for which in ("measured", "predicted"))
    tolerances = (MOST_P90_ERROR, MOST_MEDIAN_ERROR)
    return Plot("Predicted against measured time per step", x, y, panels, tolerances), (
        "Measured: the machine's drift taken out. On the line, a prediction is right; grey: up to "
        f"{MOST_MEDIAN_ERROR:.0%} and {MOST_P90_ERROR:.0%} off. Upright lines: the 80 % interval of the prediction."
    )


def _marks(name: str, cells: Sequence[Checked]) -> Trace:
    low, high = zip(*(each.forecast.interval for each in cells), strict=True)
    measured, predicted = [each.corrected for each in cells], [each.forecast.seconds for each in cells]
    return Trace(name, measured, predicted, low, high, "dot", notes=list(map(_note, cells)))


def _note(cell: Checked) -> str:
    times = f"{duration(cell.forecast.seconds)} predicted, {duration(cell.corrected)} measured"
    return f"{cell.forecast.name}: {cell.error:+.1%}, {times}"


def write(
    name: str, checked: Sequence[Checked], score: PredictionScore, plan: ExperimentPlan, folder: Path, *, quick: bool
) -> Path:
    """Put the page beside the predictions that were sealed, which its own are."""
    about = f"{score.cells} cells · {checked[0].forecast.calibration.origin}"
    reading = [*verdict(score)]
    if not score.holds:
        reading.append(
            "Calibrate again while the machine does nothing else: scripts/calibrate. Then repeat these runs: "
            f"scripts/verify {name} --fresh."
        )
    content = {
        "title": f"Verification: {name}",
        "kind": "Predicted, then run",
        "about": f"quick version: few cells, one run of each · {about}" if quick else about,
        "reading": reading,
        "warnings": list(_warnings(plan, folder / PREDICTIONS)),
        "made_from": "a calibration and the records of runs",
    }
    pictures = [draw("scatter", "Predicted against measured", scatter, checked)]
    sections = [
        Section("Errors", drawings=pictures, tables=[by_kind(checked), table(checked)]),
        Section("What was sealed", list(_sealed(plan, folder / PREDICTIONS))),
    ]
    return write_page(folder, "sections.html", sections, content)


def _sealed(plan: ExperimentPlan, path: Path) -> Iterator[str]:
    """What was written down before the runs, and when."""
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    number = sha256(path.read_bytes()).hexdigest()
    yield f"SHA-256 of {PREDICTIONS}, as scripts/verify printed it before the runs: {number}"
    yield f"The file is of {written}; the first run began at {_first(plan)}."
    if again := made_again(plan):
        yield (
            f"Repeated, because the machine was over {MOST_APART - 1:.0%} slower or faster during them than around "
            f"them: {', '.join(again)}. The first measurements are in {plan.folder / ASIDE}."
        )


def _first(plan: ExperimentPlan) -> str:
    return min(run.run.manifest.started_at for run in finished(plan).values())


def _warnings(plan: ExperimentPlan, path: Path) -> Iterator[str]:
    if datetime.fromisoformat(_first(plan)).timestamp() < int(path.stat().st_mtime):
        yield f"{PREDICTIONS} is younger than the first run: it was written again, or copied."
    for name in plan.unfinished():
        yield f"{name} is not finished. To resume, repeat the command."
