"""What passing messages costs: CPU time by least squares, what they wait for by simulating the calibration's runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean

import numpy as np

from app.machine.parallel import on_all_cores
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.exchange import Passing
from app.tools.prediction.least_squares import non_negative
from app.tools.prediction.observed import Observed
from app.tools.prediction.setup import CellSetup
from app.tools.prediction.simulation import simulate
from app.tools.prediction.traffic import ELEMENT_BYTES, Family, SimulatedExchange, barrier, overlaps, traffic
from app.tools.prediction.waves import Figures

MOST_LATENCY, MOST_CROWD, MOST_WITHHELD = 0.001, 0.005, 0.01  # seconds; the last, of each allowance of a quota
MOST_HIDDEN = 1e-7  # seconds for each byte
TRIES = 8  # of a search by golden section, each of which leaves 0.62 of the way
GOLDEN = (math.sqrt(5) - 1) / 2

Members = Sequence[tuple[Observed, list[SimulatedExchange]]]  # runs, with what passes in a step of theirs


def members_of(runs: Sequence[Observed]) -> Members:
    """Those whose exchanges follow backward, and carry gradients as they are."""
    return [
        (each, traffic(each.settings.averaging, each.setup.shapes, each.ranks)) for each in runs if _passes_after(each)
    ]


def _passes_after(run: Observed) -> bool:
    asked = run.settings.averaging
    return run.ranks > 1 and asked.sync_mode != "none" and asked.compression == "none" and not overlaps(asked)


def cpu_times(members: Members) -> dict[str, Passing]:
    """By family, what an exchange, a message and a byte cost each rank."""
    families = dict.fromkeys(parts[0].family for _, parts in members)
    return {family: _cpu_time([each for each in members if each[1][0].family == family]) for family in families}


def _cpu_time(members: Members, phase: str = "sync") -> Passing:
    """Out of what this phase took on each rank of these runs."""
    rows, totals = [], []
    for each, parts in members:
        messages, sizes = _passed(parts, each.ranks)
        seconds = each.cpu(phase).mean(axis=1)
        for rank in range(each.ranks):
            rows.append({"call": float(len(parts)), "message": float(messages[rank]), "byte": float(sizes[rank])})
            totals.append(float(seconds[rank]))
    call, message, byte = non_negative(rows, totals)
    return Passing(call, message, byte, 0.0)


def _passed(parts: Sequence[SimulatedExchange], ranks: int) -> tuple[Figures, Figures]:
    """By rank, of all of them: messages, and bytes."""
    messages, sizes = np.sum([part.passed(ranks) for part in parts], axis=0)
    return messages, sizes


def with_passing(model: Calibration, members: Members) -> Calibration:
    """The costs of messages: CPU time by family, then what a message waits for, which shows in seconds alone.

    Where one rank serves all others in turn, it is noticed at once or later; where all are at work, it also waits for a
    core.
    """
    meeting = _cpu_time([(each, [barrier(each.ranks)]) for each, _ in members], "wait")
    found = replace(model, passing={"barrier": meeting} | cpu_times(members))
    central = [each for each, parts in members if parts[0].in_turn]
    if central:
        found = _searched(found, central, _with_latency, "sync", MOST_LATENCY)
    crowded = [(each, parts[0].family) for each, parts in members if not parts[0].in_turn]
    found = _with_crowds(found, crowded)
    if limited := [each for each, _ in crowded if each.setup.cpus.quota is not None]:
        found = _searched(found, limited, lambda model, each: replace(model, lost=each), "sync", MOST_WITHHELD)
        found = _with_crowds(found, crowded)  # which stood for that as well before
    return _searched(found, [each for each, _ in members], partial(_with_crowd, "barrier"), "step", MOST_CROWD)


def _with_crowds(model: Calibration, crowded: Sequence[tuple[Observed, Family]]) -> Calibration:
    for family in dict.fromkeys(family for _, family in crowded):
        runs = [each for each, own in crowded if own == family]
        model = _searched(model, runs, partial(_with_crowd, family), "sync", MOST_CROWD)
    return model


def with_hidden(model: Calibration, runs: Sequence[Observed]) -> Calibration:
    """How much longer each byte takes behind backward: fitted to steps, as exposed time swings from day to day."""
    return _searched(model, runs, lambda model, each: replace(model, hidden_byte=each), "step", MOST_HIDDEN)


def coding_of(run: Observed, model: Calibration) -> float:
    """CPU seconds of a compressor for each byte of gradients: what its messages leave of synchronisation."""
    parts = traffic(run.settings.averaging, run.setup.shapes, run.ranks)
    family = model.passing[parts[0].family]
    messages, sizes = _passed(parts, run.ranks)
    own = len(parts) * family.call + float((messages * family.message + sizes * family.byte).mean())
    gradients = ELEMENT_BYTES * sum(shape.numel() for shape in run.setup.shapes)
    return max(0.0, float(run.cpu("sync").mean()) - own) / gradients


def _with_latency(model: Calibration, latency: float) -> Calibration:
    return replace(model, passing={name: replace(each, latency=latency) for name, each in model.passing.items()})


def _with_crowd(family: str, model: Calibration, crowd: float) -> Calibration:
    return replace(model, passing=model.passing | {family: replace(model.passing[family], crowd=crowd)})


def _searched(
    model: Calibration,
    runs: Sequence[Observed],
    changed: Callable[[Calibration, float], Calibration],
    phase: str,
    most: float,
) -> Calibration:
    """With the value between 0 and `most` with which these runs' phase comes out nearest, as a ratio."""
    measured = [(each.setup, each.seconds[phase]) for each in runs]

    def missed(value: float) -> float:
        return mean(on_all_cores(partial(_missed, changed(model, value), phase), measured))

    low, high = 0.0, most
    inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    costs = [missed(each) for each in inner]
    for _ in range(TRIES):
        if costs[0] <= costs[1]:
            high, inner, costs = inner[1], [inner[1] - GOLDEN * (inner[1] - low), inner[0]], [0.0, costs[0]]
            costs[0] = missed(inner[0])
        else:
            low, inner, costs = inner[0], [inner[1], inner[0] + GOLDEN * (high - inner[0])], [costs[1], 0.0]
            costs[1] = missed(inner[1])
    return changed(model, (low + high) / 2)


def _missed(model: Calibration, phase: str, measured: tuple[CellSetup, float]) -> float:
    setup, seconds = measured
    return math.log(simulate(setup, model, steps=3, samples=12).mean(phase) / seconds) ** 2
