"""The expectations of a trial: which ranks must exit, by when, with which exit code, and which ranks they must name."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.analysis.run_records import RankRecords
from app.tools.faults import sayings
from app.tools.faults.plan import KINDS, OVER_SECONDS, FaultTrial
from app.tools.faults.seen import Left, Observations, RankSeen

OK, NO_EFFECT, WRONG = "ok", "no effect", "WRONG"


@dataclass(frozen=True)
class FaultVerdict:
    """The verdict on one trial, with its violations."""

    word: str
    reasons: tuple[str, ...] = ()  # the violated expectations


def judge(trial: FaultTrial, seen: Observations, undisturbed: Left) -> FaultVerdict:
    """Compare a trial's observations with its expectations, and a run that recovers with the undisturbed one."""
    struck = any(each.restarts for each in seen.ranks) if trial.recovers else not seen.over
    wrong = [*_in_any_case(seen)]
    if trial.recovers:
        wrong += _finished(seen)
        if not trial.faults:
            wrong += ["a rank of the undisturbed run restarted"] if struck else []
        elif seen.left.complete:
            wrong += _differences(seen.left, undisturbed)
    elif struck:
        wrong += _violations(trial, seen)
    if wrong:
        return FaultVerdict(WRONG, tuple(wrong))
    withstood = not trial.victims and seen.fault_at is not None
    return FaultVerdict(OK if struck or withstood else NO_EFFECT)


def _violations(trial: FaultTrial, seen: Observations) -> Iterator[str]:
    if seen.fault_at is None:
        yield "the run never reached the moment of the fault"
        return
    if not seen.all_finished or not trial.victims:
        yield from seen.missed
    if trial.victims:
        yield from _lost(trial, seen, seen.fault_at)
    else:
        yield from _ended(seen) if trial.endless else _finished(seen)


def _in_any_case(seen: Observations) -> Iterator[str]:
    for each in seen.ranks:
        if words := sayings.trace(each.log):
            yield f"rank {each.rank} printed a stack trace: {words}"
        if each.out_of_memory:
            yield f"rank {each.rank} ran out of memory"
    if seen.left.unreadable:
        yield f"cannot read the run's records: {seen.left.unreadable}"


def _finished(seen: Observations) -> Iterator[str]:
    """The violations in a run that had to finish on every rank."""
    if not (seen.left.complete and seen.left.report and seen.all_finished):
        yield "the run did not finish, or left no report"
    yield from _ended(seen, right=0)
    yield from (f"rank {each.rank} did not exit" for each in seen.ranks if each.ended_at is None)


def _ended(seen: Observations, right: int | None = None) -> Iterator[str]:
    """The ranks that ended, unless with the right exit code."""
    for each in seen.ranks:
        if each.ended_at is not None and each.exit_code != right:
            yield f"rank {each.rank} exited with code {each.exit_code}: {sayings.in_short(each.log)}"


def _differences(left: Left, undisturbed: Left) -> Iterator[str]:
    known = {each.rank: _results(each) for each in undisturbed.ranks}
    for each in left.ranks:
        for what, result in _results(each).items():
            if result != known.get(each.rank, {}).get(what):
                yield f"rank {each.rank}: {what} differ from the undisturbed run"


def _results(rank: RankRecords) -> Mapping[str, object]:
    return {
        "losses": [(step.step, step.epoch, step.loss, step.correct, step.samples) for step in rank.steps],
        "evaluations": [(each.epoch, each.loss, each.correct) for each in rank.evaluations],
        "parameters": rank.finished and rank.finished.parameters_sha256,
    }


def _lost(trial: FaultTrial, seen: Observations, fault_at: float) -> Iterator[str]:
    """The violations in a run that had to lose ranks."""
    for each in seen.ranks:
        limit = _limit(trial, seen, each.rank, fault_at)
        allowed = f"after the fault (limit: {limit - fault_at:.1f} s)"
        if each.ended_at is None:
            yield f"rank {each.rank} was still running {trial.patience:.0f} s {allowed}"
            continue  # its exit code means nothing
        if each.ended_at > limit:
            yield f"rank {each.rank} exited {each.ended_at - fault_at:.1f} s {allowed}"
        if seen.all_finished and each.exit_code == 0:
            continue  # all had finished their work before the fault struck
        yield from (_victim if each.rank in trial.victims else _survivor)(trial, seen, each)
    yield from _report(trial, seen)


def _limit(trial: FaultTrial, seen: Observations, rank: int, fault_at: float) -> float:
    """The latest time at which a rank may exit, in seconds since 1970."""
    peer, join = trial.place.peer_timeout + OVER_SECONDS, trial.place.join_timeout + OVER_SECONDS
    paused = any(fault.kind == "pause" and fault.rank == rank for fault in trial.faults)
    in_join = trial.moment.phase == "join"
    if paused and seen.woken_at is not None:
        return seen.woken_at + (max(peer, join) if in_join else peer)
    if not in_join:
        return fault_at + peer
    return max(fault_at + peer, min(each.started_at for each in seen.ranks) + join)


def _victim(trial: FaultTrial, seen: Observations, each: RankSeen) -> Iterator[str]:
    kind = next(KINDS[fault.kind] for fault in trial.faults if fault.rank == each.rank)
    allowed = {kind.exit_code} | ({0, 1} if seen.all_finished else set())
    if each.exit_code not in allowed:
        yield f"victim rank {each.rank} exited with code {each.exit_code}, expected {kind.exit_code}"
        return
    # During the join it may not know the others yet, but it must report an error.
    words = "error: " if trial.moment.phase == "join" else kind.says
    if kind.says and words and words not in each.log and not seen.all_finished:
        yield f"victim rank {each.rank} did not print '{words}', but: {sayings.in_short(each.log)}"


def _survivor(trial: FaultTrial, seen: Observations, each: RankSeen) -> Iterator[str]:
    if each.exit_code != 1:
        yield f"rank {each.rank} exited with code {each.exit_code}, expected 1"
    named, speakers = sayings.lost(each.log), sayings.speakers(each.log)
    right = " and ".join(f"rank {rank}" for rank in sorted(trial.victims))
    if speakers - {each.rank}:
        yield f"rank {each.rank} reports as rank {min(speakers - {each.rank})}"
    if trial.moment.phase == "join" and not named:
        named = sayings.missed_in_join(each.log)
        if not named and sayings.misses_rank_0(each.log) and _rank_0_had_ended(trial, seen, each):
            return
        silent = {fault.rank for fault in trial.faults if fault.kind != "kill"}
        if named and trial.victims - silent <= named <= trial.victims and sayings.ended_join_at_once(each.log):
            return
    if named != trial.victims:
        yield f"rank {each.rank} should name {right}, reported: {sayings.in_short(each.log)}"


def _rank_0_had_ended(trial: FaultTrial, seen: Observations, each: RankSeen) -> bool:
    """Whether a worker correctly reports that rank 0 is gone: it is a victim, or had already exited."""
    ends = [other.ended_at for other in seen.ranks if other.rank == 0 and other.ended_at is not None]
    return 0 in trial.victims or (each.ended_at is not None and min(ends, default=math.inf) <= each.ended_at)


def _report(trial: FaultTrial, seen: Observations) -> Iterator[str]:
    """If rank 0 survives, it must leave a report that is not marked as complete unless all ranks finished."""
    if 0 in trial.victims or not seen.left.begun:
        return
    if not seen.left.report or seen.left.complete is None:
        yield "rank 0 survived, but left no report.html or summary.json"
    elif seen.left.complete and not seen.all_finished:
        yield "summary.json marks the run complete"
