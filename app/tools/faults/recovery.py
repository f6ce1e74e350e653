"""Judges whether a run recovered from a kill: it must finish with the same bits as its mode's undisturbed run."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from app.analysis import run_records
from app.analysis.run_records import RankRecords
from app.machine.say import counted
from app.records import journal
from app.records.lines import Step
from app.tools.faults import sayings
from app.tools.faults.judge import NO_EFFECT, OK, WRONG
from app.tools.faults.kills import Kill
from app.tools.faults.seen import Observations, RankSeen

HEADINGS = {
    "trial": "trial",
    "mode": "mode",
    "killed": "killed",
    "attempts": "attempts",
    "recovery_seconds": "recovery (s)",
    "steps_repeated": "steps repeated",
    "verdict": "verdict",
}


@dataclass(frozen=True)
class RecoveryRow:
    """The row of one kill in the table."""

    trial: str
    mode: str
    killed: str
    attempts: int
    recovery_seconds: float | None  # the longest recovery; None if no steps preceded one, or none was needed
    steps_repeated: int
    verdict: str
    reasons: tuple[str, ...] = ()


def judge(kill: Kill, seen: Observations, run_folder: Path) -> RecoveryRow:
    """Compare a killed run with the undisturbed one, and summarise its recovery."""
    wrong = [*_at_the_end(seen)]
    attempts, repeated, waits = 1, 0, list[float]()
    if seen.left.complete:
        ranks = run_records.read(run_folder).ranks
        attempts, repeated = max(rank.attempts for rank in ranks), max(rank.repeated_steps for rank in ranks)
        waits = list(_waits(run_folder))
        if kill.victims:
            wrong += _differences(ranks, run_records.read(run_folder.with_name(kill.undisturbed)).ranks)
    struck = any(each.restarts for each in seen.ranks)
    if struck and not kill.victims:
        wrong.append("a rank of the undisturbed run restarted")
    verdict = WRONG if wrong else NO_EFFECT if kill.victims and not struck else OK
    longest = round(max(waits), 1) if waits else None
    return RecoveryRow(kill.name, _mode(kill), kill.words, attempts, longest, repeated, verdict, tuple(wrong))


def _mode(kill: Kill) -> str:
    return kill.settings["SYNC_MODE"]


def _at_the_end(seen: Observations) -> Iterator[str]:
    if seen.left.unreadable:
        yield f"cannot read the run's records: {seen.left.unreadable}"
    if not seen.left.complete or not seen.left.report:
        yield "the run did not finish, or left no report"
    for each in seen.ranks:
        yield from _end_of(each)


def _end_of(each: RankSeen) -> Iterator[str]:
    if each.ended_at is None:
        yield f"rank {each.rank} did not exit"
    elif each.exit_code != 0:
        yield f"rank {each.rank} exited with code {each.exit_code}: {sayings.in_short(each.log)}"
    if words := sayings.trace(each.log):
        yield f"rank {each.rank} printed a stack trace: {words}"


def _differences(ranks: Sequence[RankRecords], others: Sequence[RankRecords]) -> Iterator[str]:
    for one, other in zip(ranks, others, strict=True):
        for what, own, right in zip(("losses", "evaluations", "parameters"), _ends(one), _ends(other), strict=True):
            if own != right:
                yield f"rank {one.rank}: {what} differ from the undisturbed run"


def _ends(rank: RankRecords) -> tuple[object, object, object]:
    return (
        [(step.step, step.epoch, step.loss, step.correct, step.samples) for step in rank.steps],
        [(each.epoch, each.loss, each.correct) for each in rank.evaluations],
        rank.finished and rank.finished.parameters_sha256,
    )


def _waits(run_folder: Path) -> Iterator[float]:
    """Seconds of recovery for each attempt but the first: from the end of the last step to the next one, on rank 0."""
    steps = [record for record in journal.read(run_folder, 0) if isinstance(record, Step)]
    for before, after in pairwise(steps):
        if before.attempt != after.attempt:
            yield after.at_seconds - (before.at_seconds + before.seconds)


def progress(row: RecoveryRow, number: int, runs: int) -> str:
    """The line printed when a run has ended, and one for each violation."""
    took = "" if row.recovery_seconds is None else f", recovered in {row.recovery_seconds} s"
    line = f"[{number}/{runs}] {row.mode}, killed: {row.killed}{took}: {row.verdict}"
    return "\n".join([line, *(f"    {reason}" for reason in row.reasons)])


def tally(rows: Sequence[RecoveryRow]) -> str:
    """The number of kills by verdict, and the cost of recovery in seconds and repeated steps."""
    kills = [row for row in rows if row.killed != "none"]
    given = Counter(row.verdict for row in kills)
    verdicts = ", ".join(f"{given[word]} {word}" for word in (OK, NO_EFFECT, WRONG) if given[word])
    waits = [row.recovery_seconds for row in kills if row.recovery_seconds is not None]
    cost = ""
    if waits:
        cost = (
            f". Recovery: p50 {statistics.median(waits):.1f} s, max {max(waits):.1f} s; "
            f"steps repeated: p50 {statistics.median(row.steps_repeated for row in kills):g}, "
            f"max {max(row.steps_repeated for row in kills)}"
        )
    return f"{counted(len(kills), 'kill')}: {verdicts}{cost}"
