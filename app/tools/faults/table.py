"""The table of a sweep, with one row per trial, and the number of trials by verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from app.analysis.units import TEXT, Value
from app.machine.say import counted
from app.pages.table import Column, Table
from app.pages.written import on_terminal
from app.tools.faults import sayings
from app.tools.faults.judge import NO_EFFECT, OK, WRONG, FaultVerdict
from app.tools.faults.plan import FaultTrial
from app.tools.faults.seen import Observations, RankSeen

KILLED, VERDICT, RECOVERY, REPEATED = "killed", "verdict", "recovery (s)", "steps repeated"

Row = Mapping[str, Value]  # by heading


def row(trial: FaultTrial, seen: Observations, verdict: FaultVerdict) -> Row:
    about = {"trial": trial.name, "mode": trial.mode}
    if trial.recovers:
        return about | {
            KILLED: trial.words,
            "attempts": max((each.attempts for each in seen.left.ranks), default=1),
            # The longest; none if no steps preceded one, or none was needed.
            RECOVERY: round(max(seen.left.recoveries), 1) if seen.left.recoveries else None,
            REPEATED: max((each.repeated_steps for each in seen.left.ranks), default=0),
            VERDICT: verdict.word,
        }
    said: dict[str, list[str]] = {}
    for each in seen.ranks:
        said.setdefault(sayings.in_short(each.log), []).append(str(each.rank))
    return about | {
        "fault": trial.words,
        "moment": trial.moment.words,
        "ranks exited after (s)": " ".join(_after(each, seen.fault_at) for each in seen.ranks),
        "exit codes": " ".join("-" if each.ended_at is None else str(each.exit_code) for each in seen.ranks),
        VERDICT: verdict.word,
        "reported": "; ".join(f"{','.join(ranks)}: {words}" for words, ranks in said.items()),
    }


def _after(each: RankSeen, fault_at: float | None) -> str:
    if each.ended_at is None:
        return "never"
    return "-" if fault_at is None else f"{each.ended_at - fault_at:.1f}"


def text(rows: Sequence[Row]) -> str:
    """The table as text, with the number of trials by verdict and the cost of recovery."""
    columns = [Column(heading, heading, TEXT, itemgetter(heading)) for heading in (rows[0] if rows else ())]
    return f"{on_terminal(Table.of('trials', '', columns, rows))}\n{_tally(rows)}"


def _tally(rows: Sequence[Mapping[str, Any]]) -> str:
    struck = [row for row in rows if row.get(KILLED) != "none"]
    given = Counter(row[VERDICT] for row in struck)
    verdicts = ", ".join(f"{given[word]} {word}" for word in (OK, NO_EFFECT, WRONG) if given[word])
    if not any(KILLED in row for row in rows):
        return verdicts
    waits = [row[RECOVERY] for row in struck if row[RECOVERY] is not None]
    repeated = [row[REPEATED] for row in struck]
    recovered = f"Recovery: p50 {median(waits):.1f} s, max {max(waits):.1f} s" if waits else "No recovery"
    steps = f"steps repeated: p50 {median(repeated):g}, max {max(repeated)}" if repeated else "no kill"
    return f"{counted(len(struck), 'kill')}: {verdicts}. {recovered}; {steps}"
