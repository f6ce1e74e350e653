"""Steps of a cell, one after another, in many samples at once, with the costs of a calibration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.prediction.calibration import Calibration, Computing
from app.prediction.exchange import Machine, MessageCosts
from app.prediction.setup import Setup
from app.prediction.step import Costs, Phases, Work, take, take_overlapped
from app.prediction.traffic import ELEMENT_BYTES, Part, buckets, traffic
from app.prediction.waves import Figures

WARM_UP = 2  # steps until quotas are as used up as in the long run
OVERLAPPED = ("ddp", "bucketed_all_reduce")

PHASES = ("computing", "wait", "sync", "optimiser", "step")


@dataclass(frozen=True)
class Simulated:
    """Seconds by phase: an array each, steps x samples, the mean over ranks."""

    phases: dict[str, Figures]
    hidden: Figures

    def mean(self, phase: str) -> float:
        """Over steps and samples."""
        return float(self.phases[phase].mean())

    @property
    def means(self) -> dict[str, float]:
        """Of all phases."""
        return {name: self.mean(name) for name in PHASES}


def simulate(setup: Setup, calibration: Calibration, *, steps: int = 6, samples: int = 24, seed: int = 0) -> Simulated:
    """So many steps, after the first ones."""
    random = np.random.default_rng(seed)
    machine = Machine(setup.links, setup.cpus, samples, random)
    between = np.full((setup.ranks, samples), calibration.between)
    draw = _drawing(setup, calibration.computing[setup.settings.model], samples, random)
    every = setup.settings.sync_every or 1
    step = _step(machine, setup, calibration)
    now: Figures = np.zeros((setup.ranks, samples))
    taken: list[Phases] = []
    for number in range(WARM_UP + steps * every):
        ended, phases = step(now, draw(), (number + 1) % every == 0)
        now = machine.processors.run_alike(ended, between)
        if number >= WARM_UP:
            taken.append(phases)
    by_name = {name: np.array([getattr(each, name).mean(axis=0) for each in taken]) for name in PHASES}
    return Simulated(by_name, np.array([each.hidden.mean(axis=0) for each in taken]))


def costs_of(calibration: Calibration) -> Costs:
    """As the simulation of a step takes them."""
    families = {
        name: MessageCosts(each.latency, each.message, each.byte, each.message, each.byte, each.byte)
        for name, each in calibration.passing.items()
    }
    call = {name: each.call for name, each in calibration.passing.items()}
    return Costs(families, call, calibration.barrier, calibration.barrier_cpu, calibration.hidden_rate)


Take = Callable[[Figures, Work, bool], tuple[Figures, Phases]]


def _step(machine: Machine, setup: Setup, calibration: Calibration) -> Take:
    """What takes one step; a step after which nothing is averaged passes nothing."""
    settings, costs = setup.settings, costs_of(calibration)
    if settings.sync_mode in OVERLAPPED and setup.ranks > 1:
        ready = calibration.computing[settings.model].ready
        parts = [(ready[each.complete - 1], each.part) for each in buckets(settings, setup.shapes, setup.ranks)]
        return lambda now, work, due: take_overlapped(machine, now, work, parts, costs)
    exchanges: Sequence[Part] = traffic(settings, setup.shapes, setup.ranks)
    coding = _coding_seconds(setup, calibration)
    return lambda now, work, due: take(machine, now, work, exchanges if due else [], costs, coding if due else 0.0)


def _coding_seconds(setup: Setup, calibration: Calibration) -> float:
    """CPU time of a compressor in a step."""
    if setup.settings.compression == "none" or setup.ranks == 1:
        return 0.0
    return calibration.coding[setup.settings.compression] * ELEMENT_BYTES * sum(shape.numel() for shape in setup.shapes)


def _drawing(setup: Setup, computing: Computing, samples: int, random: np.random.Generator) -> Callable[[], Work]:
    """Draws the CPU time of a step on each rank: what all ranks have in common, and what each has for itself."""
    ranks, settings = setup.ranks, setup.settings
    own, common = np.array(computing.own_spread), np.array(computing.common_spread)
    parametric = ranks > len(own)
    spread = float(np.log(own).std())
    slow = np.ones((ranks, 1))
    if settings.slow_rank is not None:
        slow[settings.slow_rank] = settings.slow_factor

    def draw() -> Work:
        shape = (ranks, samples)
        ratio = np.exp(random.normal(0, spread, shape)) if parametric else random.choice(own, shape)
        ratio = ratio * random.choice(common, samples) * slow
        lines = (computing.before, computing.backward, computing.after)
        before, backward, after = (line.at(setup.images) * ratio for line in lines)
        return Work(before, backward, after)

    return draw
