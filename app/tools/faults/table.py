"""The table of a sweep, with one row per trial, and the lines that are printed when a trial has ended."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from app.tools.faults import judge, sayings
from app.tools.faults.judge import FaultVerdict
from app.tools.faults.plan import FaultTrial
from app.tools.faults.seen import Observations, RankSeen

WIDEST = 10_000  # so that no table wraps


@dataclass(frozen=True)
class FaultRow:
    """The row of one trial in the table. HEADINGS has the heading of each field."""

    trial: str
    mode: str
    fault: str
    moment: str
    said: str
    ended: str
    codes: str
    verdict: str
    reasons: tuple[str, ...] = ()


HEADINGS = {
    "trial": "trial",
    "mode": "mode",
    "fault": "fault",
    "moment": "moment",
    "ended": "ranks exited after (s)",
    "codes": "exit codes",
    "verdict": "verdict",
    "said": "reported",
}


def row(trial: FaultTrial, seen: Observations, verdict: FaultVerdict) -> FaultRow:
    said: dict[str, list[str]] = {}
    for each in seen.ranks:
        said.setdefault(sayings.in_short(each.log), []).append(str(each.rank))
    return FaultRow(
        trial.name,
        trial.settings["SYNC_MODE"],
        trial.words,
        trial.moment.words,
        "; ".join(f"{','.join(ranks)}: {words}" for words, ranks in said.items()),
        " ".join(_after(each, seen.fault_at) for each in seen.ranks),
        " ".join("-" if each.ended_at is None else str(each.exit_code) for each in seen.ranks),
        verdict.word,
        verdict.reasons,
    )


def _after(each: RankSeen, fault_at: float | None) -> str:
    if each.ended_at is None:
        return "never"
    return "-" if fault_at is None else f"{each.ended_at - fault_at:.1f}"


def progress(made: FaultRow, number: int, trials: int) -> str:
    """The line printed when a trial has ended, and one for each violation."""
    line = f"[{number}/{trials}] {made.mode}, {made.fault}, {made.moment}: {made.verdict}"
    return "\n".join([line, *(f"    {reason}" for reason in made.reasons)])


def text(rows: Sequence[object], headings: Mapping[str, str] = HEADINGS) -> str:
    """The table as text. `headings` maps the names of the rows' fields to their headings."""
    grid = Table(box=None, pad_edge=False, header_style="")
    for heading in headings.values():
        grid.add_column(heading, no_wrap=True)
    for each in rows:
        grid.add_row(*("-" if (value := getattr(each, name)) is None else str(value) for name in headings))
    target = io.StringIO()
    Console(file=target, width=WIDEST, highlight=False, markup=False).print(grid)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines())


def tally(rows: Sequence[FaultRow]) -> str:
    """The number of trials by verdict."""
    counted = Counter(each.verdict for each in rows)
    return ", ".join(f"{counted[word]} {word}" for word in (judge.OK, judge.NO_EFFECT, judge.WRONG) if counted[word])
