"""Simulated links: each direction carries one message after another, at a rate, after a burst at any speed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.prediction.waves import Figures, Indices


@dataclass(frozen=True)
class Links:
    """Of each rank: payload in bytes per second in either direction, and what a rested link lets pass at once."""

    sends: Figures
    receives: Figures
    burst: Figures

    @classmethod
    def alike(cls, ranks: int, rate: float, burst: float = 0.0) -> "Links":
        """The same for all."""
        return cls(np.full(ranks, rate), np.full(ranks, rate), np.full(ranks, burst))

    @classmethod
    def of(cls, rates: Sequence[tuple[float, float]], bursts: Sequence[float]) -> "Links":
        """By rank, sending and receiving."""
        both = np.array(rates, dtype=float).reshape(-1, 2)
        return cls(both[:, 0], both[:, 1], np.array(bursts, dtype=float))


class Ports:
    """One direction of all links: a token bucket each, which carries messages in the order in which they are given."""

    def __init__(self, rates: Figures, burst: Figures, samples: int) -> None:
        self._rates = rates
        self._ahead = np.divide(burst, rates)[:, np.newaxis]  # how much a rested link lets pass before its time
        self._through = np.full((len(rates), samples), -np.inf)  # when all so far would be through at the rate
        self._free = np.full((len(rates), samples), -np.inf)

    def begin(self, ranks: Indices, start: Figures) -> Figures:
        """When messages that are there at `start` begin to pass."""
        begun: Figures = np.maximum(start, self._free[ranks])
        return begun

    def carry(self, ranks: Indices, start: Figures, sizes: Figures) -> Figures:
        """When they are through."""
        begin = self.begin(ranks, start)
        taken = np.divide(sizes, self._rates[ranks])[:, np.newaxis]
        through = np.maximum(self._through[ranks], begin - self._ahead[ranks]) + taken
        self._through[ranks] = through
        end: Figures = np.maximum(begin, through)
        self._free[ranks] = end
        return end


class Network:
    """Both directions of all ranks' links."""

    def __init__(self, links: Links, samples: int) -> None:
        self._out = Ports(links.sends, links.burst, samples)
        self._in = Ports(links.receives, links.burst, samples)

    def carry(self, senders: Indices, receivers: Indices, start: Figures, sizes: Figures) -> tuple[Figures, Figures]:
        """When messages have left their senders, and when they have arrived: a message flows through both links."""
        begin = self._out.begin(senders, start)
        sent = self._out.carry(senders, start, sizes)
        return sent, np.maximum(sent, self._in.carry(receivers, begin, sizes))
