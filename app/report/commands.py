"""What is made of finished runs on demand: reports, and a table on the terminal."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from app.errors import LockstepError
from app.machine import folders
from app.machine.say import Say
from app.report import comparison, page
from app.report.conclusion import conclude
from app.summary.run import Run, find

UNWRAPPED_COLUMNS = 10_000  # a table takes the width that it needs; wrapped numbers cannot be read


def report(names: Sequence[str], say: Say) -> None:
    """Make one run's report and summary anew, or one page of several runs; without a name, of the present run."""
    found = _find(names or [folders.handed_over()])
    try:
        if len(found) == 1:
            conclude(found[0].folder)
            path = found[0].folder / folders.REPORT
        else:
            path = page.write_comparison(found)
    except OSError as error:
        raise LockstepError(
            f"the report cannot be written: {error}. Give results/ to the user who runs this."
        ) from None
    say(f"Report: {_from_here(path)}")


def compare(names: Sequence[str], say: Say) -> None:
    """Lay runs side by side, the fastest first."""
    runs = _find(names)
    table = comparison.compared(runs).on_terminal()
    grid = Grid(box=None, pad_edge=False, header_style="")
    for column, label in zip(table.columns, table.labels(), strict=True):
        grid.add_column(
            f"{column.heading} {label}".strip(), justify="right" if column.unit.right else "left", no_wrap=True
        )
    for cells in table.cells():
        grid.add_row(*(words for _, words in cells))
    target = io.StringIO()
    Console(file=target, width=UNWRAPPED_COLUMNS, highlight=False, markup=False).print(grid)
    say("\n".join(line.rstrip() for line in target.getvalue().splitlines()))
    for each in comparison.differences(runs):
        say(f"differs: {each}")
    for run in runs:
        say(f"{run.name}: {run.summary.verdict.sentences[0]}")


def _find(names: Sequence[str]) -> list[Run]:
    """Each once, in the order given."""
    return list({run.folder: run for run in map(find, names)}.values())


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
