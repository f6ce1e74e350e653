"""The HTML page of one run or several, and the tables and figures beside it as files."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.analysis import wall_clock
from app.analysis.run import Run
from app.machine import folders
from app.pages import comparison, drawings, files, hero, tables
from app.pages.baseline import Against

LONGEST_NAME = 200

FIRST = ("phases", "loss", "bytes")  # of the figures, what is not folded away
FOLDS = (  # title, hint, and the names of figures and tables
    (
        "Time",
        "each phase and rank, single steps, the whole run",
        ("timeline", "times", "steps", "wall_clock", "processor"),
    ),
    ("Network", "bytes, bandwidth, links", ("bytes", "bandwidth", "links", "network", "networks")),
    ("CPU and memory", "over time", ("cpu", "cores", "memory", "usage")),
    ("Learning", "scores by epoch and rank", ("accuracy", "scores")),
    ("Settings and environment", "what differs from the defaults, and everything else", ("given", "ranks", "settings")),
)


def write(run: Run) -> Path:
    return _write(run.folder, {"title": hero.title(run), "compared": None, "pages": [_of_run(run)]})


def write_comparison(compared_runs: Sequence[Run], base: Run | None = None) -> Path:
    """Write a report that compares several runs. With a baseline, it also has their differences."""
    runs = [*compared_runs, base] if base else compared_runs
    against = Against(compared_runs, base) if base else None
    factor, headline = comparison.headline(runs)
    differences = comparison.differences(runs)
    compared = {
        "tables": [comparison.compared(runs), *(against.tables() if against else [])],
        "drawings": drawings.of_runs(runs),
        "factor": None if differences else factor,
        "headline": headline,
        "causes": comparison.causes(runs),
        "differences": differences,
        "baseline": base,
        "against": against.sentences() if against else [],
    }
    *most, last = (run.name for run in compared_runs)
    title = (f"{', '.join(most)} and {last}" if most else last) + (f" compared with {base.name}" if base else "")
    pages = [_of_run(run) for run in runs]
    return _write(_comparison_folder(compared_runs, base), {"title": title, "compared": compared, "pages": pages})


def _of_run(run: Run) -> dict[str, Any]:
    own_tables = {table.name: table for table in tables.of_run(run)}
    shown_tables = {name: table for name, table in own_tables.items() if table.rows}
    own_drawings = {drawing.name: drawing for drawing in drawings.of_run(run)}
    folds = [
        (title, hint, [name for name in names if name in shown_tables or (name in own_drawings and name not in FIRST)])
        for title, hint, names in FOLDS
    ]
    return {
        "run": run,
        "step": hero.step_bar(run),
        "tiles": list(hero.tiles(run)),
        "time": wall_clock.in_words(run.summary.wall_clock),
        "tables": own_tables,
        "drawings": own_drawings,
        "first": FIRST,
        "folds": folds,
    }


def _comparison_folder(runs: Sequence[Run], base: Run | None) -> Path:
    names = [run.folder.name for run in runs] + ([f"against-{base.folder.name}"] if base else [])
    name = "--".join(re.sub(r"[^A-Za-z0-9._-]", "_", each) for each in names)
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return folders.RESULTS / "comparisons" / name


def _write(folder: Path, content: dict[str, Any]) -> Path:
    page = content["pages"][0]
    own = content["compared"] or {"tables": page["tables"].values(), "drawings": page["drawings"].values()}
    return files.write_page(folder, "page.html", list(own["tables"]), list(own["drawings"]), content)
