"""Modes defined by a schedule of rounds, and the execution of one rank's part of it."""

from abc import abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, cycle, groupby
from typing import Self

import torch

from app.cluster.wire.communicator import Communicator, Transfer
from app.settings.averaging import AveragingSettings
from app.sync.exchange import Exchange
from app.sync.schedules import costs
from app.sync.schedules.costs import Cost
from app.sync.schedules.schedule import (
    PIECE_BYTES,
    Message,
    RankPart,
    Receive,
    Schedule,
    Send,
    asked_after,
    elements_in,
    part_of,
    sent_after,
)
from app.sync.wire_precision import DTYPES, add, rounding

AHEAD = 8  # receives posted before their turn, so that senders rarely wait for one


class Scheduled(Exchange):
    """Executes a schedule that sums on all ranks, and divides by N where a sum is complete."""

    piece_bytes: int = PIECE_BYTES

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        ranks = communicator.world_size
        self._rounds = Rounds(
            communicator, settings, lambda elements: self.schedule(elements, ranks, settings), self.piece_bytes
        )

    @staticmethod
    @abstractmethod
    def schedule(elements: int, world_size: int, settings: AveragingSettings) -> Schedule:
        """The schedule for a vector of this length."""

    @classmethod
    def cost_of(cls, settings: AveragingSettings) -> Cost:
        return costs.schedule_cost(lambda elements, ranks: cls.schedule(elements, ranks, settings), cls.piece_bytes)

    def average(self, values: torch.Tensor) -> None:
        self._rounds.run(values)


@dataclass(frozen=True)
class RoundPlan:
    """A rank's operations for vectors of one length."""

    receives: list[Receive]
    requested: list[int]  # for each, the number of receives finished before it is requested
    turns: list[list[Receive]]  # the receives, grouped by round and piece
    sends: list[list[tuple[int, Send]]]  # by the number of receives after which they may start, with their index
    completing: frozenset[tuple[int, Message]]  # additions after which a sum is divided by N
    last_round: int
    ahead: int  # receives posted at a time
    landing: int  # buffers for received pieces to add
    longest: int  # piece to add, in elements
    wire: torch.dtype

    @classmethod
    def of(cls, part: RankPart, completing: frozenset[tuple[int, Message]], wire: torch.dtype) -> Self:
        alike = groupby(part.receives, lambda each: (each.round, each.message.piece, each.message.adds))
        turns = [list(group) for _, group in alike]
        ends = [0, *accumulate(map(len, turns))]
        sends: list[list[tuple[int, Send]]] = [[] for _ in range(len(part.receives) + 1)]
        for at, after in enumerate(sent_after(*part)):
            sends[ends[bisect_left(ends, after)]].append((at, part.sends[at]))
        ahead = max(AHEAD, *map(len, turns), 0)
        added = [len(each.message.piece) for each in part.receives if each.message.adds]
        last_round = max((*(each.round for each in part.sends), *(each.round for each in part.receives)), default=0)
        landing, longest = min(ahead, len(added)), max(added, default=0)
        requested = asked_after(part.receives)
        return cls(part.receives, requested, turns, sends, completing, last_round, ahead, landing, longest, wire)


class Departures:
    """A rank's sends whose payload is complete.

    Messages to several ranks share the link. A message of a later round that no rank can need yet therefore waits until
    those of earlier rounds to other ranks have left, because it would delay them.
    """

    def __init__(self, send: Callable[[Send], Transfer]) -> None:
        self._send = send
        self._allowed: list[tuple[int, Send]] = []  # by index in the list of all sends, like `_leaving`
        self._leaving: dict[int, tuple[Send, Transfer]] = {}

    def allow(self, sends: Iterable[tuple[int, Send]]) -> None:
        """Mark the payload of these sends as complete."""
        self._allowed = sorted((*self._allowed, *sends))

    def start(self, needed_round: int) -> None:
        """Start all sends of rounds up to this one, and later ones that delay no other."""
        while self._allowed:
            at, send = self._allowed[0]
            earlier = [number for number, (each, _) in self._leaving.items() if _goes_before(each, send)]
            if earlier and send.round > needed_round:
                break
            self.finish(earlier)
            self._leaving[at] = send, self._send(send)
            del self._allowed[0]

    def started(self, sends: Iterable[int]) -> bool:
        return not {at for at, _ in self._allowed}.intersection(sends)

    def finish(self, sends: Iterable[int]) -> None:
        for at in sends:
            if at in self._leaving:
                _, transfer = self._leaving.pop(at)
                transfer.wait()

    def finish_all(self) -> None:
        self.finish(list(self._leaving))


def _goes_before(one: Send, other: Send) -> bool:
    return one.round < other.round and one.message.receiver != other.message.receiver


class Rounds:
    """Runs schedules, reusing buffers between steps because allocating memory takes as long as an addition."""

    def __init__(
        self,
        communicator: Communicator,
        settings: AveragingSettings,
        schedule: Callable[[int], Schedule],
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """`schedule` returns the schedule for a number of elements."""
        self._communicator, self._settings = communicator, settings
        self._schedule, self._piece_bytes = schedule, piece_bytes
        self._plans: dict[tuple[int, torch.dtype], RoundPlan] = {}
        self._places: list[torch.Tensor] = []
        self._rounded = torch.empty(0)

    def run(self, values: torch.Tensor) -> None:
        """Replace the values by their mean over all ranks, or by the schedule's result if it adds nothing."""
        if not len(values) or self._communicator.world_size == 1:
            return
        plan = self._plan_for(values)
        wire = self._wire_for(values, plan.wire)
        places, landing = cycle(self._landing_for(plan)), deque[tuple[torch.Tensor, Transfer]]()
        departures = Departures(partial(self._send, values=values, wire=wire))
        posted = done = 0  # receives that are posted, and those that are finished
        for turn in [*plan.turns, []]:
            # A sender waits for its receiver's request. If two ranks send to each other, the request would queue behind
            # the receiver's own data on the connection. Therefore requests go first, as far as buffers are free.
            for free_since in (done - 1, done):
                if free_since == done:
                    departures.allow(plan.sends[done])
                    departures.start(turn[0].round if turn else plan.last_round)
                while posted < len(plan.receives) and plan.requested[posted] <= done and len(landing) < plan.ahead:
                    receive = plan.receives[posted]
                    if not receive.message.adds:
                        if receive.after > free_since or not departures.started(receive.sent):
                            break
                        departures.finish(receive.sent)
                    landing.append(self._start(receive, next(places) if receive.message.adds else wire))
                    posted += 1
            if turn:
                arrived = [landing.popleft() for _ in turn]
                for _, transfer in arrived:
                    transfer.wait()
                departures.finish(turn[0].sent)
                self._take(turn, [place for place, _ in arrived], values, wire, plan.completing)
                done += len(turn)
        departures.finish_all()

    def _plan_for(self, values: torch.Tensor) -> RoundPlan:
        key = len(values), values.dtype
        if key not in self._plans:
            half = DTYPES[self._settings.wire_precision] if self._settings.wire_precision != "fp32" else None
            wire, ranks = half or values.dtype, self._communicator.world_size
            pieces = self._schedule(len(values)).in_pieces(elements_in(self._piece_bytes, wire.itemsize))
            adds = any(message.adds for message in pieces.messages)
            completing = pieces.completing(len(values), ranks) if adds else frozenset[tuple[int, Message]]()
            self._plans[key] = RoundPlan.of(part_of(pieces, self._communicator.rank), completing, wire)
        return self._plans[key]

    def _send(self, send: Send, values: torch.Tensor, wire: torch.Tensor) -> Transfer:
        """Round the sender's own values as well, so that all ranks hold the same."""
        piece = slice(send.message.piece.start, send.message.piece.stop)
        if wire is not values:
            wire[piece].copy_(values[piece])
            values[piece].copy_(wire[piece])
        return self._communicator.start_send(wire[piece], send.message.receiver, send.number)

    def _start(self, receive: Receive, memory: torch.Tensor) -> tuple[torch.Tensor, Transfer]:
        piece = receive.message.piece
        place = memory[: len(piece)] if receive.message.adds else memory[piece.start : piece.stop]
        return place, self._communicator.start_receive(place, receive.message.sender, receive.number)

    def _take(
        self,
        turn: Sequence[Receive],
        arrived: Sequence[torch.Tensor],
        values: torch.Tensor,
        wire: torch.Tensor,
        completing: frozenset[tuple[int, Message]],
    ) -> None:
        """Add the received pieces. A complete sum becomes the mean, in the precision that other ranks receive."""
        last = turn[-1].message
        own, rounded = values[last.piece.start : last.piece.stop], wire[last.piece.start : last.piece.stop]
        if (turn[-1].round, last) in completing:
            add(own, arrived, rounded, 1 / self._communicator.world_size)
        elif last.adds:
            add(own, arrived, own)
            return
        if wire is not values:
            own.copy_(rounded)

    def _wire_for(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The buffer to send from: the values themselves, or a rounded copy."""
        if dtype == values.dtype:
            return values
        if self._communicator.step % self._settings.log_every == 0:
            self._communicator.traffic.note_rounding(*rounding(values, dtype))
        if len(self._rounded) < len(values) or self._rounded.dtype != dtype:
            self._rounded = torch.empty(len(values), dtype=dtype)
        return self._rounded

    def _landing_for(self, plan: RoundPlan) -> list[torch.Tensor]:
        """Buffers for received pieces until they are added."""
        known = self._places
        if len(known) < plan.landing or (known and (len(known[0]) < plan.longest or known[0].dtype != plan.wire)):
            self._places = [torch.empty(plan.longest, dtype=plan.wire) for _ in range(plan.landing)]
        return self._places
