"""An exchange, simulated: the waves of its schedule, one after another, on all ranks and in all samples at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.tools.prediction.network import Links, Network
from app.tools.prediction.processor import Cpus, Processors
from app.tools.prediction.waves import Figures, Wave, rows


@dataclass(frozen=True)
class Passing:
    """What one way to pass messages takes on each rank, beside their time on the links."""

    call: float  # CPU seconds for an exchange, whatever passes
    message: float  # CPU seconds for each that is sent or received
    byte: float  # CPU seconds for each that is sent, received or added
    latency: float  # seconds until a message is noticed, however small: no CPU time
    crowd: float = 0.0  # mean seconds until its receiver gets a core while all ranks are at work on one host


class SimulatedMachine:
    """Ranks with their links and processors, in so many samples at once. Time goes on from one call to the next."""

    def __init__(self, links: Links, cpus: Cpus, samples: int, random: np.random.Generator) -> None:
        self._links, self._cpus, self._random = links, cpus, random
        self.ranks, self.samples = len(links.sends), samples
        self.network = Network(links, samples)
        self.processors = Processors(cpus, self.ranks, samples, random)
        self.waves = 0  # that have passed

    def afresh(self) -> "SimulatedMachine":
        return SimulatedMachine(self._links, self._cpus, self.samples, self._random)

    def exchange(self, waves: Sequence[Wave], element_bytes: float, costs: Passing, ready: Figures) -> Figures:
        """When each rank is done, that begins when it is `ready`; both are ranks x samples.

        A rank takes its messages in the order of the waves, so it is done with one only after those before it.
        """
        done, leaving = ready.copy(), ready.copy()
        left = ready  # when what was sent in earlier rounds has left, where that is waited for
        when: dict[int, Figures] = {}  # by wave, when its receivers were done with it, as long as others wait for it
        last_use = {each: number for number, wave in enumerate(waves) for each, _, _ in wave.reasons}
        self.waves += len(waves)
        for number, wave in enumerate(waves):
            if wave.opens:
                left = leaving.copy()
            start = self._allowed(wave, when, left)
            sent, taken = self._pass(wave, element_bytes, costs, start, done)
            leaving[wave.sending] = np.maximum(rows(leaving, wave.sending), sent)
            done[wave.receiving] = taken
            when = {each: moments for each, moments in when.items() if last_use[each] > number}
            if number in last_use:
                when[number] = done.copy()
        return np.maximum(done, leaving)

    def after_a_core(self, moments: Figures, crowd: float) -> Figures:
        """When those that wake up at these moments, each row another rank, have got one of the shared cores."""
        others = 1 - 1 / len(moments)  # of those that are at work: in a star's waves there are none
        if not crowd or not others or self._cpus.shared_cores is None:
            return moments
        return moments + self._random.exponential(crowd * others, moments.shape)

    def _allowed(self, wave: Wave, when: dict[int, Figures], left: Figures) -> Figures:
        """When the senders hold what they are to send, earlier messages have left, and receivers have asked for it."""
        start = rows(left, wave.sending).copy()
        for number, those, ranks in wave.reasons:
            start[those] = np.maximum(rows(start, those), rows(when[number], ranks))
        return start

    def _pass(
        self, wave: Wave, element_bytes: float, costs: Passing, start: Figures, done: Figures
    ) -> tuple[Figures, Figures]:
        """When messages have left, and when their receivers are done with them."""
        run = partial(self.processors.run, in_turn=len(wave.senders) == 1)
        senders, receivers = wave.sending, wave.receiving
        sizes, added = wave.elements[:, np.newaxis] * element_bytes, wave.added[:, np.newaxis] * element_bytes
        prepared = run(senders, start, costs.message)
        sent, through = self.network.carry(senders, receivers, prepared, sizes)
        sent = np.maximum(sent, run(senders, prepared, costs.byte * sizes))
        through = np.maximum(np.maximum(through, sent), run(receivers, prepared, costs.byte * sizes))
        through = self.after_a_core(through, costs.crowd)
        arrived = np.maximum(through + costs.latency, rows(done, receivers))
        return sent, run(receivers, arrived, costs.message + costs.byte * added)
