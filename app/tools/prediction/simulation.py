"""Steps of a cell, one after another, in many samples at once, with the costs of a calibration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.tools.prediction.calibration import Calibration, Computing
from app.tools.prediction.exchange import SimulatedMachine
from app.tools.prediction.processor import PERIOD_SECONDS
from app.tools.prediction.setup import CellSetup
from app.tools.prediction.step import ComputeSamples, PhaseSamples, take, take_overlapped
from app.tools.prediction.traffic import ELEMENT_BYTES, SimulatedExchange, barrier, buckets, overlaps, traffic
from app.tools.prediction.waves import Figures

# Quotas are renewed every 100 ms. So many renewals pass before what is looked at, until they are as used up as in the
# long run, and so many while it is looked at: many steps, where steps are short.
RENEWALS = 5
MOST_STEPS = 100

PHASES = ("computing", "wait", "sync", "optimiser")


@dataclass(frozen=True)
class Simulated:
    """Seconds by phase: an array each, steps x samples, the mean over ranks."""

    phases: dict[str, Figures]
    hidden: Figures
    waves: int  # of messages that were simulated for them, one after another: what it took

    def mean(self, phase: str) -> float:
        return float(self.phases[phase].mean())

    @property
    def means(self) -> dict[str, float]:
        return {name: self.mean(name) for name in self.phases}


def simulate(
    setup: CellSetup, calibration: Calibration, *, steps: int = 6, samples: int = 24, seed: int = 0
) -> Simulated:
    """At least this many steps, once the first ones are over."""
    random = np.random.default_rng(seed)
    machine = SimulatedMachine(setup.links, replace(setup.cpus, lost=calibration.lost), samples, random)
    between = np.full((setup.ranks, samples), calibration.between)
    draw = _drawing(setup, calibration.computing[setup.settings.training.model], samples, random)
    step = _step(machine, setup, calibration)
    every = setup.settings.averaging.sync_every or 1
    now: Figures = np.zeros((setup.ranks, samples))

    def several(least: int) -> list[PhaseSamples]:
        nonlocal now
        taken: list[PhaseSamples] = []
        begun = float(now.mean())
        enough = 0.0 if setup.cpus.quota is None else RENEWALS * PERIOD_SECONDS
        while len(taken) < least or (float(now.mean()) - begun < enough and len(taken) < MOST_STEPS):
            for number in range(every):
                ended, phases = step(now, draw(), number == every - 1)
                now = machine.processors.compute(ended, between)
                taken.append(phases)
        return taken

    several(1)
    taken = several(steps)
    by_name = {name: np.array([getattr(each, name).mean(axis=0) for each in taken]) for name in (*PHASES, "step")}
    return Simulated(by_name, np.array([each.hidden.mean(axis=0) for each in taken]), machine.waves)


Take = Callable[[Figures, ComputeSamples, bool], tuple[Figures, PhaseSamples]]


def _step(machine: SimulatedMachine, setup: CellSetup, calibration: Calibration) -> Take:
    """What takes one step; a step after which nothing is averaged passes nothing."""
    settings, costs = setup.settings, calibration.passing
    if overlaps(settings.averaging) and setup.ranks > 1:
        ready = calibration.computing[settings.training.model].ready
        link_share = _link_share(setup, calibration)
        parts = [
            (ready[each.complete - 1], each.part) for each in buckets(settings.averaging, setup.shapes, setup.ranks)
        ]
        return lambda now, work, due: take_overlapped(machine, now, work, parts, costs, link_share)
    exchanges: Sequence[SimulatedExchange] = traffic(settings.averaging, setup.shapes, setup.ranks)
    if not exchanges:
        return lambda now, work, due: take(machine, now, work, [], costs)
    meeting, coding = barrier(setup.ranks), _coding_seconds(setup, calibration)

    def taken(now: Figures, work: ComputeSamples, due: bool) -> tuple[Figures, PhaseSamples]:
        if due:
            return take(machine, now, work, exchanges, costs, meeting=meeting, coding=coding)
        return take(machine, now, work, [], costs)

    return taken


def _link_share(setup: CellSetup, calibration: Calibration) -> float:
    """The part of the slowest link's rate that is left while backward has the CPU: more of a slow link's."""
    own = 2 * calibration.passing["all_reduce"].byte + 1 / float(setup.links.sends.min())
    return own / (own + calibration.hidden_byte)


def _coding_seconds(setup: CellSetup, calibration: Calibration) -> float:
    if setup.settings.averaging.compression == "none" or setup.ranks == 1:
        return 0.0
    return (
        calibration.coding[setup.settings.averaging.compression]
        * ELEMENT_BYTES
        * sum(shape.numel() for shape in setup.shapes)
    )


def _drawing(
    setup: CellSetup, computing: Computing, samples: int, random: np.random.Generator
) -> Callable[[], ComputeSamples]:
    """Draws the CPU time of a step on each rank: what all ranks have in common, and what each has for itself."""
    ranks, settings = setup.ranks, setup.settings
    own, common = np.array(computing.own_spread), np.array(computing.common_spread)
    parametric = ranks > len(own)
    spread = float(np.log(own).std())
    pauses, pauses_at = np.zeros((ranks, 1)), list[float]()
    if settings.place.slow_rank is not None and settings.place.slow_factor > 1:
        pauses[min(settings.place.slow_rank, ranks - 1)] = (
            settings.place.slow_factor - 1
        )  # also where fewer ranks are tried
        pauses_at = sorted({round(each, 2) for each in computing.ready})

    def draw() -> ComputeSamples:
        shape = (ranks, samples)
        ratio = np.exp(random.normal(0, spread, shape)) if parametric else random.choice(own, shape)
        ratio = ratio * random.choice(common, samples)
        before, backward, after = (seconds * ratio for seconds in computing.work(setup))
        return ComputeSamples(before, backward, after, pauses, pauses_at)

    return draw
