"""What is made of a run's records when it has ended, well or not: waiting told apart, the summary, the report."""

import json
from pathlib import Path
from typing import Any

from app.summary import numbers as summary
from app.summary import run_records


def conclude(run_folder: Path) -> dict[str, Any] | None:
    """The summary, once everything is written; None where the run had not begun."""
    if not (run_folder / "manifest.json").is_file():
        return None
    # What draws is loaded when there is something to draw: the ranks start without it, and all but one end without it.
    from app.report import page
    from app.report.run import Run

    run = run_records.read(run_folder)
    run_records.settle(run)
    content = summary.summarise(run)
    (run_folder / "summary.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    page.write(Run.of(run, content))
    return content
