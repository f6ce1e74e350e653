"""Makes the reports of finished runs, and compares runs on the terminal."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from app.analysis.run import Run, find
from app.errors import SettingError, WriteError
from app.machine import folders
from app.machine.say import Say
from app.pages import comparison, page
from app.pages.baseline import Against
from app.pages.conclusion import conclude
from app.pages.written import on_terminal
from app.records import manifest


def report(names: Sequence[str], say: Say, baseline: str | None = None) -> None:
    """Make one run's report and summary again, or one page of several runs; without a name, of the present run."""
    if not names and baseline is None:
        present = folders.run_ticket().run
        if not (folders.RESULTS / present / manifest.FILE).is_file():
            return  # it ended before it had anything to report, and has said why
        names = [present]
    found = _find(names or ["latest"])
    base = _find_baseline(baseline, found)
    _call_apart([*found, base] if base else found)
    try:
        if len(found) == 1 and not base:
            conclude(found[0].folder)
            path = found[0].folder / folders.REPORT
        else:
            path = page.write_comparison(found, base)
    except OSError as error:
        raise WriteError(folders.unwritten(error)) from None
    say(f"Report: {_from_here(path)}")


def compare(names: Sequence[str], say: Say, baseline: str | None = None) -> None:
    """Lay runs side by side, the fastest first; with a baseline, also say how each differs from it."""
    found = _find(names)
    base = _find_baseline(baseline, found)
    runs = [*found, base] if base else found
    _call_apart(runs)
    say(on_terminal(comparison.compared(runs)))
    for each in comparison.differences(runs):
        say(f"differs: {each}")
    for run in runs:
        say(f"{run.name}: {run.summary.verdict.sentences[0]}")
    if base:
        against = Against(found, base)
        for table in against.tables():
            say(f"\n{table.title}\n{on_terminal(table)}")
        say("\n" + "\n".join(against.sentences()))


def _find(names: Sequence[str]) -> list[Run]:
    """Each once, in the order given."""
    return list({run.folder: run for run in map(find, names)}.values())


def _find_baseline(name: str | None, runs: Sequence[Run]) -> Run | None:
    """None where none was asked for."""
    base = None if name is None else find(name)
    if base and base.folder in [run.folder for run in runs]:
        raise SettingError(
            f"--baseline {name}: {base.name} is also one of the runs to compare. "
            "Choose another baseline, or remove it from the other runs.",
            "conflicting-arguments",
        )
    return base


def _call_apart(runs: Sequence[Run]) -> None:
    """Call runs by their folders where they have the same name, as copies of a run do."""
    for name_of in (lambda run: run.folder.name, lambda run: str(_from_here(run.folder))):
        times = Counter(run.name for run in runs)
        alike = [run for run in runs if times[run.name] > 1]
        for run in alike:
            run.called = name_of(run)


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
