"""`scripts/report`: rebuilds the report of a run, or compares several runs, on a page and on the terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from app.analysis.run import Run, find
from app.errors import SettingError, WriteError
from app.machine import folders
from app.machine.say import Say
from app.pages import comparison, page
from app.pages.baseline import Against
from app.pages.conclusion import conclude
from app.pages.run_names import call_by_difference
from app.pages.written import on_terminal
from app.records import manifest

WIDTH = 80  # columns of a terminal


def report(names: Sequence[str], say: Say, baseline: str | None = None) -> None:
    """Rebuild one run's report and summary, or compare several runs. Without a name, of the current run."""
    if not names and baseline is None:
        present = folders.run_ticket().run
        if not (folders.RESULTS / present / manifest.FILE).is_file():
            return  # it ended before it had anything to report, and has printed the reason
        names = [present]
    found = _find(names or ["latest"])
    base = _find_baseline(baseline, found)
    runs = [*found, base] if base else found
    _call_apart(runs)
    try:
        if len(runs) == 1:
            conclude(found[0].folder)
            path = found[0].folder / folders.REPORT
        else:
            call_by_difference(runs)
            path = page.write_comparison(found, base)
    except OSError as error:
        raise WriteError(folders.unwritten(error)) from None
    if len(runs) > 1:
        for line in _compared(found, base):
            say(line)
    say(f"Report: {_from_here(path)}")


def _compared(found: Sequence[Run], base: Run | None) -> Iterator[str]:
    runs = [*found, base] if base else found
    factor, headline = comparison.headline(runs)
    yield fill(f"{factor}: {headline}" if factor else headline, WIDTH, break_on_hyphens=False)
    yield f"\n{on_terminal(comparison.brief(runs))}\n"
    sentences = [
        *comparison.causes(runs),
        *(f"Differs: {each}" for each in comparison.differences(runs)),
        *(f"{run.name}: {run.summary.verdict.sentences[0]}" for run in runs),
        *(Against(found, base).sentences() if base else []),
    ]
    for sentence in sentences:
        yield fill(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _find(names: Sequence[str]) -> list[Run]:
    """Each once, in the order given."""
    return list({run.folder: run for run in map(find, names)}.values())


def _find_baseline(name: str | None, runs: Sequence[Run]) -> Run | None:
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
