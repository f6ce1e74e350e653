"""Detects lost ranks. Whenever a rank ends early, the failure detector decides which rank was lost.

Each rank has a thread that exchanges heartbeats with all other ranks: not through rank 0, not through the backend, and
also while the training waits or computes.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from selectors import EVENT_READ, DefaultSelector

from app.cluster.activity import UNKNOWN, Activity
from app.cluster.heartbeat import LARGEST, LONGEST_REASON, Heartbeat, pack, unpack
from app.cluster.judgement import ANSWER_SECONDS, Judgement, LossVerdict
from app.cluster.stopping import Stopping
from app.machine.interrupt import ignore_further_signals

REPEAT_SECONDS = 0.2  # between two heartbeats of a call
BEATS = 8  # heartbeats per PEER_TIMEOUT
SLOWEST_BEAT_SECONDS = 5.0
BEATS_MISSED = 2.5  # by a rank considered silent: single heartbeats may be lost
SLACK_SECONDS = 1.0  # a thread that wakes this much too late was in a process that did not run
GRACE_SECONDS = 3.0  # for the training to notice a loss by itself and report the operation
FAREWELLS = 5  # the last heartbeat is repeated, as each may be lost

Address = tuple[str, int]
Abandon = Callable[[LossVerdict], None]


def listen(address: str) -> socket.socket:
    """Open the socket for heartbeats, on a port that the kernel chooses."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, 0))
    datagrams.setblocking(False)
    return datagrams


class FailureDetector:
    """Exchanges heartbeats with all other ranks in a thread, and reaches a verdict on which ranks are lost."""

    def __init__(
        self, datagrams: socket.socket, rank: int, addresses: Sequence[Address], password: str, peer_timeout: float
    ) -> None:
        """`addresses` are the listening addresses of all ranks, by rank."""
        self._datagrams, self._addresses, self._password = datagrams, addresses, password
        self._own = Heartbeat(rank)
        self._activity: Callable[[], Activity] = Activity
        others = [other for other in range(len(addresses)) if other != rank]
        self._judgement = Judgement(rank, others, peer_timeout, time.monotonic())
        self._beat_seconds = min(SLOWEST_BEAT_SECONDS, peer_timeout / BEATS)
        self._failed = threading.Event()  # an operation of the training failed
        self._decided, self._decided_at = threading.Event(), 0.0
        self._all_heard = threading.Event()
        self._guarding = True  # until the training ends or notices a loss by itself
        self._bell, self._ear = socket.socketpair()
        self._selector = DefaultSelector()  # select() fails on descriptors above 1,023
        for each in (self._datagrams, self._ear):
            self._selector.register(each, EVENT_READ)
        self.stopping = Stopping(others, self._ring)

    def start(self, abandon: Abandon, activity: Callable[[], Activity] = Activity) -> None:
        """Start the thread. `abandon` ends the process after a loss that the training does not notice.

        `activity` returns what the training is doing. Any thread may call it.
        """
        self._activity = activity
        threading.Thread(target=self._run, args=(abandon,), name="failure detector", daemon=True).start()

    @property
    def loss(self) -> LossVerdict | None:
        """The verdict if it names a lost rank or a deadlock; None before a verdict, or if a rank is only slow."""
        verdict = self._judgement.verdict
        return verdict if verdict and (verdict.lost or verdict.deadlock) else None

    def activities(self) -> Mapping[int, Activity]:
        """The last known activity of every rank."""
        return {**self._judgement.activities, self._own.rank: self._activity()}

    def unheard(self, deadline: float) -> list[int]:
        """Wait until every rank has sent a heartbeat; returns the ranks that have not by the deadline."""
        self._all_heard.wait(max(0.0, deadline - time.monotonic()))
        return self._judgement.unknown

    def silent(self) -> list[int]:
        """The ranks that have missed several heartbeats: they may be paused or disconnected."""
        return self._judgement.silent_since(time.monotonic() - BEATS_MISSED * self._beat_seconds)

    def find_lost(self, failed: Activity | None = None) -> LossVerdict:
        """Find the ranks that caused the operation to fail, rather than those that failed as a consequence."""
        ignore_further_signals()
        self._guarding = False
        own = failed or self._activity()
        self._activity = lambda: own  # others need it while this rank reports its error
        self._failed.set()
        self._ring()
        self._decided.wait(2 * ANSWER_SECONDS)
        return self._judgement.verdict or LossVerdict(())

    def leave(self) -> None:
        """This rank has finished: from now on its silence is not a loss, and it reports none."""
        self._guarding = False
        self._own = replace(self._own, done=True)
        self._broadcast()

    def give_up(self, reason: str, *, deterministic: bool = False) -> None:
        """Announce that this rank ends early, with the reason or the lost ranks."""
        self._guarding = False
        if self.loss is None:
            printable = reason.encode(errors="replace").decode()  # file names may contain surrogates
            ending = printable[:LONGEST_REASON] or "no reason given"
            self._own = replace(self._own, ending=ending, deterministic=deterministic)
        self._broadcast()
        for _ in range(FAREWELLS - 1):
            time.sleep(REPEAT_SECONDS / 2)
            self._broadcast()

    def _run(self, abandon: Abandon) -> None:
        next_wake = next_beat = time.monotonic()
        while True:
            self._listen(next_wake)
            now = time.monotonic()
            if now - next_wake > SLACK_SECONDS:
                self._judgement.stand_still(now - next_wake, now)
            if self._failed.is_set():
                self._judgement.doubt(now, self._activity())
            self._judgement.consider(now)
            if self._judgement.verdict and not self._decided.is_set():
                self._decided_at = now
                self._decided.set()
                next_beat = now  # announce the verdict at once
            if not self._judgement.unknown:
                self._all_heard.set()
            calling = self._judgement.call or self._judgement.verdict or self._judgement.unknown
            urgent = calling or self.stopping.named
            if urgent or now >= next_beat:
                self._broadcast()
                next_beat = now + self._beat_seconds
            if self.loss and now - self._decided_at > GRACE_SECONDS and self._guarding:
                abandon(self.loss)
            next_wake = now + REPEAT_SECONDS if urgent else next_beat

    def _listen(self, until: float) -> None:
        """Receive heartbeats until then, or until another thread wakes this one."""
        while True:
            events = self._selector.select(max(0.0, until - time.monotonic()))
            readable = [key.fileobj for key, _ in events]
            if self._datagrams in readable:
                self._hear()
            if self._ear in readable:
                self._ear.recv(LARGEST)
                return
            if not readable or time.monotonic() >= until:
                return

    def _hear(self) -> None:
        with suppress(OSError):  # for example because an earlier heartbeat reached a closed port
            datagram, sender = self._datagrams.recvfrom(LARGEST)
            heartbeat = unpack(datagram, self._password)
            if heartbeat is None or not 0 <= heartbeat.rank < len(self._addresses):
                return
            if sender != self._addresses[heartbeat.rank]:
                return  # an untrusted peer
            self._judgement.hear(heartbeat, time.monotonic())
            self.stopping.hear(heartbeat.rank, heartbeat.stop)
            if heartbeat.call:
                self._send(replace(self._present(), call=0, answer=heartbeat.call), heartbeat.rank)

    def _present(self) -> Heartbeat:
        verdict = self._judgement.verdict
        explains = self._own.ending or (verdict and verdict.lost)
        return replace(
            self._own,
            call=self._judgement.call,
            standstill=self._judgement.standstill(time.monotonic()),
            lost=verdict.lost if verdict else (),
            reason=verdict.reason if verdict else "",
            deterministic=verdict.deterministic if verdict else self._own.deterministic,
            stop=self.stopping.named,
            deadlock=bool(verdict and verdict.deadlock),
            activity=UNKNOWN if explains else self._activity(),
        )

    def _ring(self) -> None:
        """Wake the thread so that it sends a heartbeat at once."""
        self._bell.send(b"!")

    def _broadcast(self) -> None:
        heartbeat = self._present()
        for rank in range(len(self._addresses)):
            if rank != heartbeat.rank:
                self._send(heartbeat, rank)

    def _send(self, heartbeat: Heartbeat, rank: int) -> None:
        with suppress(OSError):  # unreachable for now: a lasting failure shows as silence
            self._datagrams.sendto(pack(heartbeat, self._password), self._addresses[rank])
