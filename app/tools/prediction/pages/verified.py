"""The page of a verification: whether predictions hold, figures of how far they are off, and what was sealed when."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from math import isclose
from pathlib import Path

from app.machine import folders
from app.pages import files
from app.pages.drawing import draw
from app.pages.table import Table
from app.tools.experiment.results import Results
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.drift import ASIDE, MOST_APART, made_again
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.pages import errors
from app.tools.prediction.tables import conclusion
from app.tools.prediction.verification import MOST_MEDIAN_ERROR, MOST_P90_ERROR, PREDICTIONS, Checked, PredictionScore

SAME = 1e-9  # seconds of a prediction, in parts of themselves


@dataclass(frozen=True)
class Verified:
    """A grid's predictions beside its runs."""

    name: str
    quick: bool
    calibration: Calibration
    checked: Sequence[Checked]
    score: PredictionScore
    verdict: Sequence[str]  # sentences
    tables: Sequence[Table]
    results: Results
    missing: Sequence[str]  # runs


def write(verified: Verified, folder: Path) -> Path:
    """Put the page and its parts there, beside what was sealed."""
    pictures = [
        draw("scatter", "Predicted against measured", errors.scatter, verified.checked),
        draw("errors", "Errors by kind of cell", errors.errors_by_kind, verified.checked),
    ]
    tables = [errors.by_kind(verified.checked), *verified.tables]
    files.write_parts(folder, tables, pictures)
    content = {
        "verified": verified,
        "headline": headline(verified.score),
        "sentences": [*(each for each in verified.verdict if each != conclusion(verified.score)), *_remedy(verified)],
        "sealed": list(_sealed(verified, folder / PREDICTIONS)),
        "warnings": list(_warnings(verified, folder / PREDICTIONS)),
        "drawings": pictures,
        "tables": tables,
    }
    folders.replace_file(folder / folders.REPORT, files.render("verification.html", content))
    return folder / folders.REPORT


def headline(score: PredictionScore) -> str:
    """The verdict with its numbers."""
    return (
        f"The predictions {'hold' if score.holds else 'do not hold'}: over {score.cells} cells they are "
        f"{score.median_error:.1%} off in the median and {score.p90_error:.1%} at the 90th percentile, "
        f"{'within' if score.holds else 'where at most'} {MOST_MEDIAN_ERROR:.0%} and {MOST_P90_ERROR:.0%}"
        f"{'' if score.holds else ' are meant'}."
    )


def _remedy(verified: Verified) -> Iterator[str]:
    if not verified.score.holds:
        yield (
            "Calibrate again while the machine does nothing else: scripts/calibrate. Then repeat these runs: "
            f"scripts/verify {verified.name} --fresh."
        )


def _sealed(verified: Verified, path: Path) -> Iterator[str]:
    """What was written down before the runs, and when."""
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    number = sha256(path.read_bytes()).hexdigest()
    yield f"SHA-256 of {PREDICTIONS}, as scripts/verify printed it before the runs: {number}"
    yield f"The file is of {written}; the first run began at {_first(verified.results)}."
    if again := made_again(verified.results.plan):
        yield (
            f"Made once more, because the machine was over {MOST_APART - 1:.0%} slower or faster during them than "
            f"around them: {', '.join(again)}. What they measured first is in {verified.results.plan.folder / ASIDE}."
        )


def _first(results: Results) -> str:
    return min(run.manifest.started_at for run in results.all_runs)


def _warnings(verified: Verified, path: Path) -> Iterator[str]:
    sealed = {each["cell"]: each["seconds"] for each in json.loads(path.read_bytes())["cells"]}
    if changed := [each.forecast.name for each in verified.checked if not _same(each.forecast, sealed)]:
        yield (
            f"{len(changed)} of {len(verified.checked)} predictions on this page are others than those that were "
            "sealed: the calibration or the program has changed since. --fresh seals new ones, and makes their runs."
        )
    if datetime.fromisoformat(_first(verified.results)).timestamp() < int(path.stat().st_mtime):
        yield f"{PREDICTIONS} is younger than the first run: it was written again, or copied."
    for each in verified.missing:
        yield f"{each} is not finished. To resume, repeat the command."


def _same(forecast: Forecast, sealed: dict[str, float]) -> bool:
    return isclose(sealed.get(forecast.name, 0.0), forecast.seconds, rel_tol=SAME)
