"""The expectations of a trial: which ranks must exit, by when, with which exit code, and which ranks they must name."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.tools.faults import sayings
from app.tools.faults.plan import OVER_SECONDS, FaultTrial
from app.tools.faults.seen import Observations, RankSeen

OK, NO_EFFECT, WRONG = "ok", "no effect", "WRONG"
STOPPED = 143  # by SIGTERM


@dataclass(frozen=True)
class FaultVerdict:
    """The verdict on one trial, with its violations."""

    word: str
    reasons: tuple[str, ...] = ()  # the violated expectations


def judge(trial: FaultTrial, seen: Observations) -> FaultVerdict:
    wrong = [*_in_any_case(trial, seen)]
    if seen.fault_at is None:
        wrong.append("the run never reached the moment of the fault")
    elif not trial.victims:
        wrong += _unharmed(trial, seen, seen.fault_at)
    elif not seen.over:
        if seen.missed and not seen.all_finished:
            wrong += [f"fault not injected: {each}" for each in seen.missed]
        for each in seen.ranks:
            wrong += _ended(trial, seen, each, seen.fault_at)
        wrong += _report(trial, seen)
    if wrong:
        return FaultVerdict(WRONG, tuple(wrong))
    return FaultVerdict(NO_EFFECT if trial.victims and seen.over else OK)


def _in_any_case(trial: FaultTrial, seen: Observations) -> Iterator[str]:
    for each in seen.ranks:
        if words := sayings.trace(each.log):
            yield f"rank {each.rank} printed a stack trace: {words}"
        if each.out_of_memory:
            yield f"rank {each.rank} ran out of memory"
    if seen.left.unreadable:
        yield f"cannot read the run's records: {seen.left.unreadable}"


def _unharmed(trial: FaultTrial, seen: Observations, fault_at: float) -> Iterator[str]:
    """The violations in a run that had to continue to its end, or until SIGTERM."""
    yield from (f"fault not injected: {each}" for each in seen.missed if not seen.over)
    if seen.stuck:
        yield "the run took no further steps"
    if seen.stopped_at is None:
        yield from () if seen.over else _harm(seen)
        return
    for each in seen.ranks:
        if each.ended_at is None:
            yield f"rank {each.rank} was still running long after SIGTERM"
        elif each.ended_at < seen.stopped_at:
            reported = sayings.in_short(each.log)
            yield f"rank {each.rank} exited before SIGTERM, with code {each.exit_code}: {reported}"
        elif each.ended_at > (limit := seen.stopped_at + trial.peer_timeout + OVER_SECONDS):
            yield f"rank {each.rank} exceeded its limit after SIGTERM by {each.ended_at - limit:.1f} s"
        else:
            yield from _stopped(each)
    yield from _report(trial, seen)


def _stopped(each: RankSeen) -> Iterator[str]:
    """A rank must stop on SIGTERM, unless it had already noticed that another rank stopped."""
    stopped = sayings.STOPPED in each.log
    if each.exit_code not in ((STOPPED,) if stopped else (STOPPED, 0, 1)):
        yield f"rank {each.rank} was sent SIGTERM and exited with code {each.exit_code}"
    if stopped and (sayings.lost(each.log) or sayings.LATE in each.log):
        yield f"rank {each.rank} was sent SIGTERM and reported: {sayings.in_short(each.log)}"


def _harm(seen: Observations) -> Iterator[str]:
    yield "the run did not finish"
    for each in seen.ranks:
        if each.ended_at is None:
            yield f"rank {each.rank} did not exit"
        elif each.exit_code != 0:
            yield f"rank {each.rank} exited with code {each.exit_code}: {sayings.in_short(each.log)}"


def _ended(trial: FaultTrial, seen: Observations, each: RankSeen, fault_at: float) -> Iterator[str]:
    """The violations by one rank of a run that lost ranks."""
    limit = _limit(trial, seen, each.rank, fault_at)
    allowed = f"after the fault (limit: {limit - fault_at:.1f} s)"
    if each.ended_at is None:
        yield f"rank {each.rank} was still running {trial.patience:.0f} s {allowed}"
        return  # it was killed: its exit code means nothing
    if each.ended_at > limit:
        yield f"rank {each.rank} exited {each.ended_at - fault_at:.1f} s {allowed}"
    if seen.all_finished and each.exit_code == 0:
        return  # all had finished their work before the fault struck
    if each.rank in trial.victims:
        yield from _victim(trial, seen, each)
    else:
        yield from _survivor(trial, seen, each)


def _limit(trial: FaultTrial, seen: Observations, rank: int, fault_at: float) -> float:
    """The latest time at which a rank may exit, in seconds since 1970."""
    peer, join = trial.peer_timeout + OVER_SECONDS, trial.join_timeout + OVER_SECONDS
    paused = any(fault.kind == "pause" and fault.rank == rank for fault in trial.faults)
    in_join = trial.moment.phase == "join"
    if paused and seen.woken_at is not None:
        return seen.woken_at + (max(peer, join) if in_join else peer)
    if not in_join:
        return fault_at + peer
    return max(fault_at + peer, min(each.started_at for each in seen.ranks) + join)


def _victim(trial: FaultTrial, seen: Observations, each: RankSeen) -> Iterator[str]:
    kind = next(fault.of for fault in trial.faults if fault.rank == each.rank)
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
    if 0 in trial.victims:
        return True
    ended_at = next((other.ended_at for other in seen.ranks if other.rank == 0), None)
    return ended_at is not None and each.ended_at is not None and ended_at <= each.ended_at


def _report(trial: FaultTrial, seen: Observations) -> Iterator[str]:
    """If rank 0 survives, it must leave a report that is not marked as complete unless all ranks finished."""
    if 0 in trial.victims or not seen.left.begun:
        return
    if not seen.left.report or seen.left.complete is None:
        yield "rank 0 survived, but left no report.html or summary.json"
    elif seen.left.complete and not seen.all_finished:
        yield "summary.json marks the run complete"
