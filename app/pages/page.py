"""The HTML page of one run or several, and the tables and drawings beside it as files."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.analysis import measures, wall_clock
from app.analysis.run import Run
from app.machine import folders
from app.pages import comparison, drawings, files, tables
from app.pages.baseline import Against
from app.pages.drawing import draw
from app.pages.overview import overview
from app.pages.what_if import what_if

LONGEST_NAME = 200


def write(run: Run) -> Path:
    """Put a run's report into its folder."""
    picture = draw("summary", "The run in one picture", overview, run, png=True)
    return _write(run.folder, {"title": run.name, "compared": None, "pages": [_of_run(run) | {"picture": picture}]})


def write_comparison(compared_runs: Sequence[Run], base: Run | None = None) -> Path:
    """Put a report of several runs side by side into its own folder; with a baseline, also their differences."""
    runs = [*compared_runs, base] if base else compared_runs
    against = Against(compared_runs, base) if base else None
    pages = [_of_run(run) for run in runs]
    compared = {
        "tables": [comparison.compared(runs), *(against.tables() if against else [])],
        "drawings": drawings.of_runs(runs),
        "headline": comparison.headline(runs),
        "differences": comparison.differences(runs),
        "baseline": base,
        "against": against.sentences() if against else [],
    }
    title = " / ".join(run.name for run in compared_runs) + (f" against {base.name}" if base else "")
    return _write(_comparison_folder(compared_runs, base), {"title": title, "compared": compared, "pages": pages})


def _of_run(run: Run) -> dict[str, Any]:
    """What the template shows of a run."""
    return {
        "run": run,
        "measures": measures,
        "sent": [size for rank in run.summary.ranks if (size := rank[measures.BYTES_SENT]) is not None],
        "time": wall_clock.in_words(run.summary.wall_clock),
        "tables": tables.of_run(run),
        "drawings": drawings.of_run(run),
        "what_if": what_if(run),
        "picture": None,
    }


def _comparison_folder(runs: Sequence[Run], base: Run | None) -> Path:
    names = [run.name for run in runs] + ([f"against-{base.name}"] if base else [])
    name = "--".join(re.sub(r"[^A-Za-z0-9._-]", "_", each) for each in names)
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return folders.RESULTS / "comparisons" / name


def _write(folder: Path, content: dict[str, Any]) -> Path:
    own = content["compared"] or content["pages"][0]
    pictures = [picture] if (picture := own.get("picture")) else []
    files.write_parts(folder, own["tables"], [*own["drawings"], *pictures])
    folders.replace_file(folder / folders.REPORT, files.render("page.html", content))
    return folder / folders.REPORT
