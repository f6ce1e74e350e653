"""Which ranks are lost: the one authority that every path to an early end asks.

Each rank has a thread that talks to those of all other ranks by datagrams: without rank 0 in the middle, without the
backend, and while the training waits or computes.
"""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from selectors import EVENT_READ, DefaultSelector

from app.cluster.judgement import ANSWER_SECONDS, Judgement, LossVerdict
from app.cluster.stopping import Stopping
from app.cluster.words import LARGEST, LONGEST_REASON, Heartbeat, pack, unpack
from app.machine.interrupt import ignore_further_signals

REPEAT_SECONDS = 0.2  # between two calls
BEATS = 8  # signs of life within PEER_TIMEOUT
SLOWEST_BEAT_SECONDS = 5.0
BEATS_MISSED = 2.5  # by a rank that counts as silent: any word may be lost
SLACK_SECONDS = 1.0  # a thread that wakes so much later than it wanted belongs to a process that did not run
GRACE_SECONDS = 3.0  # for the training to notice a loss by itself, and to say in which operation
FAREWELLS = 5  # each word may be lost

Address = tuple[str, int]
Abandon = Callable[[LossVerdict], None]


def listen(address: str) -> socket.socket:
    """The socket of a roll call, on a port that the kernel chooses."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, 0))
    datagrams.setblocking(False)
    return datagrams


class RollCall:
    """This rank's part in the roll call."""

    def __init__(
        self, datagrams: socket.socket, rank: int, addresses: Sequence[Address], password: str, peer_timeout: float
    ) -> None:
        """`addresses` are those of all ranks' roll calls, by rank."""
        self._datagrams, self._addresses, self._password = datagrams, addresses, password
        self._own = Heartbeat(rank)
        others = [other for other in range(len(addresses)) if other != rank]
        self._judgement = Judgement(rank, others, peer_timeout, time.monotonic())
        self._beat_seconds = min(SLOWEST_BEAT_SECONDS, peer_timeout / BEATS)
        self._failed = threading.Event()  # an operation of the training
        self._decided, self._decided_at = threading.Event(), 0.0
        self._all_heard = threading.Event()
        self._guarding = True  # until the training ends, or has noticed a loss by itself
        self._bell, self._ear = socket.socketpair()
        self._selector = DefaultSelector()  # select() fails on descriptors above 1,023
        for each in (self._datagrams, self._ear):
            self._selector.register(each, EVENT_READ)
        self.stopping = Stopping(others, self._ring)

    def start(self, abandon: Abandon) -> None:
        """Begin. `abandon` ends the process after a loss that the training does not notice."""
        threading.Thread(target=self._take_turns, args=(abandon,), name="roll call", daemon=True).start()

    @property
    def loss(self) -> LossVerdict | None:
        """The verdict, if there is one and anybody is lost."""
        verdict = self._judgement.verdict
        return verdict if verdict and verdict.lost else None

    def unheard(self, deadline: float) -> list[int]:
        """Wait until every rank has been heard; the ranks that have not been by the deadline."""
        self._all_heard.wait(max(0.0, deadline - time.monotonic()))
        return self._judgement.unknown

    def silent(self) -> list[int]:
        """The ranks that have missed several beats: they may be paused, or beyond a network that failed."""
        return self._judgement.silent_since(time.monotonic() - BEATS_MISSED * self._beat_seconds)

    def find_lost(self) -> LossVerdict:
        """After a failed operation: the ranks that are gone, not those that merely noticed."""
        ignore_further_signals()
        self._guarding = False
        self._failed.set()
        self._ring()
        self._decided.wait(2 * ANSWER_SECONDS)
        return self._judgement.verdict or LossVerdict(())

    def leave(self) -> None:
        """This rank has finished with all others: nobody misses it any more, and it misses nobody."""
        self._guarding = False
        self._own = replace(self._own, done=True)
        self._broadcast()

    def give_up(self, reason: str, *, comes_again: bool = False) -> None:
        """This rank ends early; tell the others why, or who is lost."""
        self._guarding = False
        if self.loss is None:
            printable = reason.encode(errors="replace").decode()  # a file's name may hold what is no text
            ending = printable[:LONGEST_REASON] or "it did not say why"
            self._own = replace(self._own, ending=ending, comes_again=comes_again)
        self._broadcast()
        for _ in range(FAREWELLS - 1):
            time.sleep(REPEAT_SECONDS / 2)
            self._broadcast()

    def _take_turns(self, abandon: Abandon) -> None:
        next_turn = next_beat = time.monotonic()
        while True:
            self._listen(next_turn)
            now = time.monotonic()
            if now - next_turn > SLACK_SECONDS:
                self._judgement.stand_still(now - next_turn, now)
            if self._failed.is_set():
                self._judgement.doubt(now)
            self._judgement.consider(now)
            if self._judgement.verdict and not self._decided.is_set():
                self._decided_at = now
                self._decided.set()
                next_beat = now  # tell the others
            if not self._judgement.unknown:
                self._all_heard.set()
            asked = self._judgement.call or self._judgement.verdict or self._judgement.unknown
            urgent = asked or self.stopping.named
            if urgent or now >= next_beat:
                self._broadcast()
                next_beat = now + self._beat_seconds
            if self.loss and now - self._decided_at > GRACE_SECONDS and self._guarding:
                abandon(self.loss)
            next_turn = now + REPEAT_SECONDS if urgent else next_beat

    def _listen(self, until: float) -> None:
        """Hear words until then, or until the training rings."""
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
        with suppress(OSError):  # such as the news that an earlier word met a closed port
            datagram, sender = self._datagrams.recvfrom(LARGEST)
            word = unpack(datagram, self._password)
            if word is None or not 0 <= word.rank < len(self._addresses) or sender != self._addresses[word.rank]:
                return  # a stranger
            self._judgement.hear(word, time.monotonic())
            self.stopping.hear(word.rank, word.stop)
            if word.call:
                self._send(replace(self._present(), call=0, answer=word.call), word.rank)

    def _present(self) -> Heartbeat:
        verdict = self._judgement.verdict
        return replace(
            self._own,
            call=self._judgement.call,
            standstill=self._judgement.standstill(time.monotonic()),
            lost=verdict.lost if verdict else (),
            reason=verdict.reason if verdict else "",
            comes_again=verdict.comes_again if verdict else self._own.comes_again,
            stop=self.stopping.named,
        )

    def _ring(self) -> None:
        """Wake the thread up, so that it tells the others at once."""
        self._bell.send(b"!")

    def _broadcast(self) -> None:
        word = self._present()
        for rank in range(len(self._addresses)):
            if rank != word.rank:
                self._send(word, rank)

    def _send(self, word: Heartbeat, rank: int) -> None:
        with suppress(OSError):  # no way there at the moment: the silence that follows is what counts
            self._datagrams.sendto(pack(word, self._password), self._addresses[rank])
