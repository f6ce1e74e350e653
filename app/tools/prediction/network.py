"""Simulated links: each direction carries one message after another, at a rate, after a burst at any speed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.tools.prediction.waves import Figures, Ranks, rows

TINY = float(np.finfo(float).tiny)  # in place of 0 seconds, by which nothing can be divided


@dataclass(frozen=True)
class Links:
    """Of each rank: payload in bytes per second in either direction, and what a rested link lets pass at once."""

    sends: Figures
    receives: Figures
    burst: Figures

    @classmethod
    def of(cls, rates: Sequence[tuple[float, float]], bursts: Sequence[float]) -> "Links":
        """By rank, sending and receiving."""
        both = np.array(rates, dtype=float).reshape(-1, 2)
        return cls(both[:, 0], both[:, 1], np.array(bursts, dtype=float))


class Ports:
    """One direction of all links: a token bucket each, which carries messages in the order in which they are given.

    While a message that comes first in that order is not there yet, those after it may pass.
    """

    def __init__(self, rates: Figures, burst: Figures, samples: int) -> None:
        self._rates = rates[:, np.newaxis]
        self._ahead = np.divide(burst, rates)[:, np.newaxis]  # how much a rested link lets pass before its time
        self._through, self._idle_from, self._idle_until = np.full((3, len(rates), samples), -np.inf)
        """When all so far would be through at the rate, and when the link waited last for a message to be there."""

    def carry(
        self, ranks: Ranks, start: Figures, sizes: Figures, lasting: Figures | float = 0.0
    ) -> tuple[Figures, Figures]:
        """When messages that are there at `start` begin to pass, and when they are through.

        `sizes` is a column; `lasting` is for how many seconds their bytes come in, from `start` on.
        """
        taken = sizes / rows(self._rates, ranks)
        earliest = start - rows(self._ahead, ranks)
        before, idle_until = rows(self._through, ranks), rows(self._idle_until, ranks)
        free = np.maximum(before, earliest)
        begin = free
        end = through = free + taken
        if np.count_nonzero(idle_until > earliest):  # which is quicker than any()
            idle_from = rows(self._idle_from, ranks)
            gap, stay = np.maximum(idle_from, earliest), np.maximum(np.maximum(taken, lasting), TINY)
            early = np.clip(idle_until - gap, 0.0, stay)  # of that time, what lies where the link waited
            fits, whole = early > 0, early >= stay
            through = free + taken * (1 - early / stay)
            begin, end = np.where(fits, gap, free), np.where(whole, gap + taken, through)
            self._idle_from[ranks] = np.where(fits, gap + early, idle_from)
        late = earliest > before
        if np.count_nonzero(late):
            self._idle_from[ranks] = np.where(late, before, rows(self._idle_from, ranks))
            self._idle_until[ranks] = np.where(late, earliest, idle_until)
        self._through[ranks] = through
        begin = np.maximum(start, begin)
        return begin, np.maximum(begin, end)


class Network:
    """Both directions of all ranks' links."""

    def __init__(self, links: Links, samples: int) -> None:
        self._out = Ports(links.sends, links.burst, samples)
        self._in = Ports(links.receives, links.burst, samples)

    def carry(self, senders: Ranks, receivers: Ranks, start: Figures, sizes: Figures) -> tuple[Figures, Figures]:
        """When messages have left their senders, and when they have arrived: a message flows through both links."""
        begin, sent = self._out.carry(senders, start, sizes)
        _, received = self._in.carry(receivers, begin, sizes, sent - begin)
        return sent, np.maximum(sent, received)
