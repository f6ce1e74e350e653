"""What is made of a run's records when it has ended, well or not: the summary, the trace and the report."""

from pathlib import Path
from typing import TYPE_CHECKING

from app.records import manifest

if TYPE_CHECKING:
    from app.analysis.summary import Summary


def conclude(run_folder: Path) -> "Summary | None":
    """The summary, once everything is written; None where the run had not begun."""
    if not (run_folder / manifest.FILE).is_file():
        return None
    # What sums up and draws is loaded only here: the ranks start without it, and all but one end without it.
    from app.analysis.run import Run
    from app.pages import page, trace

    run = Run(run_folder)
    run.summary.write(run_folder)
    trace.write(run)
    page.write(run)
    return run.summary
