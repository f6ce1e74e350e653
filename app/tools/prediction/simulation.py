"""Steps of a cell, one after another, in many samples at once, with the costs of a calibration."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from app.tools.prediction.calibration import Calibration, Computing
from app.tools.prediction.exchange import SimulatedMachine
from app.tools.prediction.processor import PERIOD_SECONDS
from app.tools.prediction.setup import CellSetup
from app.tools.prediction.step import ComputeSamples, Moments, compute, take, take_overlapped
from app.tools.prediction.traffic import ELEMENT_BYTES, buckets, overlaps, traffic
from app.tools.prediction.waves import Figures

# Quotas are renewed every 100 ms. So many renewals pass before what is looked at, until they are as used up as in the
# long run, and so many while it is looked at: many steps, where steps are short.
RENEWALS = 5
MOST_STEPS = 100

PHASES = ("computing", "wait", "sync", "optimiser")


@dataclass(frozen=True)
class Simulated:
    """Mean seconds by phase; what is hidden is in computing too."""

    means: dict[str, float]
    waves: int  # of messages that were simulated for them, one after another: what it took


def simulate(
    setup: CellSetup, calibration: Calibration, *, steps: int = 6, samples: int = 24, seed: int = 0
) -> Simulated:
    """At least this many steps, once the first ones are over."""
    random = np.random.default_rng(seed)
    machine = SimulatedMachine(setup.links, replace(setup.cpus, lost=calibration.lost), samples, random)
    between = np.full((setup.ranks, samples), calibration.between)
    draw = _drawing(setup, calibration.computing[setup.settings.training.model], samples, random)
    exchange = _exchanging(machine, setup, calibration)
    every = setup.settings.averaging.sync_every or 1
    now: Figures = np.zeros((setup.ranks, samples))

    def step(*, due: bool) -> dict[str, Figures]:
        nonlocal now
        work = draw()
        computed, met, done, hidden = exchange(now, work, due)
        end = compute(machine, done, work.after, work)
        phases = {"computing": computed - now, "wait": met - computed, "sync": done - met, "optimiser": end - done}
        now = machine.processors.compute(end, between)
        return {**phases, "step": np.sum([*phases.values()], axis=0), "hidden_sync": hidden}

    def several(least: int) -> list[dict[str, Figures]]:
        taken: list[dict[str, Figures]] = []
        begun = float(now.mean())
        enough = 0.0 if setup.cpus.quota is None else RENEWALS * PERIOD_SECONDS
        while len(taken) < least or (float(now.mean()) - begun < enough and len(taken) < MOST_STEPS):
            taken += [step(due=number == every - 1) for number in range(every)]
        return taken

    several(1)
    taken = several(steps)
    return Simulated({name: float(np.mean([each[name] for each in taken])) for name in taken[0]}, machine.waves)


def _exchanging(
    machine: SimulatedMachine, setup: CellSetup, calibration: Calibration
) -> Callable[[Figures, ComputeSamples, bool], Moments]:
    """What takes a step up to its update; one that is not due to average passes nothing."""
    settings, costs = setup.settings, calibration.passing
    if overlaps(settings.averaging) and setup.ranks > 1:
        ready = calibration.computing[settings.training.model].ready
        share = _link_share(setup, calibration)
        parts = [(ready[number - 1], part) for number, part in buckets(settings.averaging, setup.shapes, setup.ranks)]
        return lambda now, work, due: take_overlapped(machine, now, work, parts, costs, share)
    exchanges, coding = traffic(settings.averaging, setup.shapes, setup.ranks), _coding_seconds(setup, calibration)
    return lambda now, work, due: take(machine, now, work, exchanges if due else [], costs, coding)


def _link_share(setup: CellSetup, calibration: Calibration) -> float:
    """The part of the slowest link's rate that is left while backward has the CPU: more of a slow link's."""
    own = 2 * calibration.passing["all_reduce"].byte + 1 / float(setup.links.sends.min())
    return own / (own + calibration.hidden_byte)


def _coding_seconds(setup: CellSetup, calibration: Calibration) -> float:
    compression = setup.settings.averaging.compression
    if compression == "none":
        return 0.0
    return calibration.coding[compression] * ELEMENT_BYTES * sum(shape.numel() for shape in setup.shapes)


def _drawing(
    setup: CellSetup, computing: Computing, samples: int, random: np.random.Generator
) -> Callable[[], ComputeSamples]:
    """Draws the CPU time of a step on each rank: what all ranks have in common, and what each has for itself."""
    ranks, settings = setup.ranks, setup.settings
    own, common = np.array(computing.own_spread), np.array(computing.common_spread)
    parametric = ranks > len(own)
    spread = float(np.log(own).std())
    pauses, pauses_at = np.zeros((ranks, 1)), set[float]()
    if settings.place.slow_rank is not None and settings.place.slow_factor > 1:
        slow = min(settings.place.slow_rank, ranks - 1)  # also where fewer ranks are tried
        pauses[slow] = settings.place.slow_factor - 1
        pauses_at = {round(each, 2) for each in computing.ready}

    def draw() -> ComputeSamples:
        shape = (ranks, samples)
        ratio = np.exp(random.normal(0, spread, shape)) if parametric else random.choice(own, shape)
        ratio = ratio * random.choice(common, samples)
        before, backward, after = (seconds * ratio for seconds in computing.work(setup))
        return ComputeSamples(before, backward, after, pauses, pauses_at)

    return draw
