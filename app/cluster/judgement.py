"""Decides which ranks are lost, from the heartbeats received and their times, without a clock or a network."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.cluster.activity import UNKNOWN, Activity, is_deadlock
from app.cluster.heartbeat import LONGEST_REASON, Heartbeat

ANSWER_SECONDS = 5.0  # for the answers to a call
FRESH_SECONDS = 2.5  # a rank heard this recently is not lost when a call ends
STANDSTILL_PART = 0.5  # of PEER_TIMEOUT: after a standstill this long, a rank may be the one the others waited for


@dataclass(frozen=True)
class LossVerdict:
    """The lost ranks, and the reason if it is known."""

    lost: tuple[int, ...]
    reason: str = ""
    deterministic: bool = False  # whether every attempt would end for that reason
    deadlock: bool = False  # no rank is lost, but all wait for each other


@dataclass
class _Other:
    heard_at: float
    heartbeat: Heartbeat
    known: bool = False
    activity: Activity = UNKNOWN
    answered: bool = False  # the current call


@dataclass
class _Call:
    """A request to all ranks for an answer."""

    number: int
    since: float
    must_end_in_a_verdict: bool  # after a failed operation, but not after a mere suspicion


class Judgement:
    """One rank's view of all others.

    A call starts when an operation fails, when a rank has been silent for nearly PEER_TIMEOUT, or when a rank announces
    its end. It is complete when every rank has answered, announced its end or finished, or when its time is up. A rank
    keeps the first verdict that it reaches or receives, because the ranks that reached it may have left since.
    """

    def __init__(self, rank: int, others: Iterable[int], peer_timeout: float, now: float) -> None:
        self._rank, self._peer_timeout = rank, peer_timeout
        self._others = {other: _Other(now, Heartbeat(other)) for other in others}
        self._calls = 0
        self._call: _Call | None = None
        self._standstill, self._stood_until = 0.0, 0.0
        self._activity = UNKNOWN
        self.verdict: LossVerdict | None = None

    @property
    def call(self) -> int:
        """The number of the current call; 0 without a call."""
        return self._call.number if self._call else 0

    def silent_since(self, moment: float) -> list[int]:
        """The unfinished ranks whose last heartbeat arrived before this moment."""
        return [rank for rank in self.present if self._others[rank].heard_at < moment]

    @property
    def unknown(self) -> list[int]:
        """The ranks from which no heartbeat has arrived yet."""
        return [rank for rank, other in self._others.items() if not other.known]

    @property
    def present(self) -> list[int]:
        """The ranks that have not reported that they finished."""
        return [rank for rank, other in self._others.items() if not other.heartbeat.done]

    @property
    def activities(self) -> Mapping[int, Activity]:
        """The last known activity of every unfinished rank; this rank's own is that of its failed operation."""
        return {self._rank: self._activity, **{rank: self._others[rank].activity for rank in self.present}}

    def standstill(self, now: float) -> float:
        """Seconds for which this rank did not run; 0 if that was too long ago to matter for a verdict."""
        return self._standstill if now - self._stood_until < self._peer_timeout + 2 * ANSWER_SECONDS else 0.0

    def hear(self, heartbeat: Heartbeat, now: float) -> None:
        if (other := self._others.get(heartbeat.rank)) is None:
            return
        other.heard_at, other.known = now, True
        if self._call and heartbeat.answer == self._call.number:
            other.answered = True
        if not (heartbeat.ending or heartbeat.lost):
            other.activity = heartbeat.activity
        if not (other.heartbeat.ending or other.heartbeat.done):  # keep its last heartbeat: older ones may arrive later
            other.heartbeat = heartbeat
        lost = tuple(rank for rank in heartbeat.lost if rank == self._rank or rank in self._others)
        if lost and self.verdict is None:
            self.verdict = LossVerdict(lost, heartbeat.reason, heartbeat.deterministic)
        elif heartbeat.deadlock and self.verdict is None:
            self.verdict = LossVerdict((), deadlock=True)

    def stand_still(self, seconds: float, now: float) -> None:
        """Note that this rank did not run until now, so the silence of others in that time does not count."""
        if seconds > self.standstill(now):
            self._standstill, self._stood_until = seconds, now
        for other in self._others.values():
            other.heard_at = now
        if self._call:
            self._begin_call(now, self._call.must_end_in_a_verdict)

    def doubt(self, now: float, activity: Activity = UNKNOWN) -> None:
        """Start a call that must end in a verdict, after a failed operation, which is this rank's `activity`."""
        self._activity = activity
        if self.verdict is None and not (self._call and self._call.must_end_in_a_verdict):
            # The time during which a rank was merely suspected counts.
            self._begin_call(self._call.since if self._call else now, True)

    def consider(self, now: float) -> None:
        """Start a call if a rank is silent or ending, or close the current one if it is complete."""
        if self.verdict is not None:
            return
        if self._call is None and (self._silent(now) or self._ending()):
            self._begin_call(now, False)
        if self._call is None:
            return
        unaccounted = [
            rank for rank in self.present if not (self._others[rank].answered or self._others[rank].heartbeat.ending)
        ]
        gone = [rank for rank in self.present if now - self._others[rank].heard_at > FRESH_SECONDS]
        over = now - self._call.since >= ANSWER_SECONDS and set(unaccounted) <= set(gone)
        if over or not unaccounted:
            self._close_call(sorted({*self._ending(), *gone}), now)

    def _close_call(self, lost: list[int], now: float) -> None:
        call, self._call = self._call, None
        if stalled := self._stalled(now) if call and call.must_end_in_a_verdict else {}:
            seconds = max(stalled.values())
            self.verdict = LossVerdict(tuple(sorted(stalled)), f"it did not run for {seconds:.0f} s")
        elif lost:
            # A deterministic failure explains the ends of other ranks, so it comes first.
            last = sorted((self._others[rank].heartbeat for rank in lost), key=lambda each: not each.deterministic)
            why = [f"it ended: {each.ending}"[:LONGEST_REASON] for each in last if each.ending]
            self.verdict = LossVerdict(tuple(lost), why[0] if why else "", any(each.deterministic for each in last))
        elif call and call.must_end_in_a_verdict:
            self.verdict = LossVerdict((), deadlock=is_deadlock(self.activities, self._peer_timeout))

    def _stalled(self, now: float) -> dict[int, float]:
        """Seconds of standstill by rank, including this one, if long enough for other ranks to give up waiting."""
        everyones = {rank: other.heartbeat.standstill for rank, other in self._others.items()}
        everyones[self._rank] = self.standstill(now)
        least = self._peer_timeout * STANDSTILL_PART
        return {rank: seconds for rank, seconds in everyones.items() if seconds >= least}

    def _silent(self, now: float) -> list[int]:
        patience = max(self._peer_timeout - ANSWER_SECONDS, self._peer_timeout / 2)
        return [rank for rank in self.present if now - self._others[rank].heard_at > patience]

    def _ending(self) -> list[int]:
        return [rank for rank, other in self._others.items() if other.heartbeat.ending]

    def _begin_call(self, since: float, must_end_in_a_verdict: bool) -> None:
        self._calls += 1
        self._call = _Call(self._calls, since, must_end_in_a_verdict)
        for other in self._others.values():
            other.answered = False
