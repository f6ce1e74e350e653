"""From the runs of a calibration to a calibration: all costs, and how well the runs fit them.

CPU times follow by least squares, what messages wait for by simulating these very runs.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import median

import numpy as np

from app.errors import LockstepError
from app.machine.parallel import on_all_cores
from app.tools.prediction.calibration import Calibration, Fit, Provenance
from app.tools.prediction.computing_costs import by_model, non_negative, own_work
from app.tools.prediction.exchange import Passing
from app.tools.prediction.network import TINY
from app.tools.prediction.observed import Observed
from app.tools.prediction.setup import CellSetup
from app.tools.prediction.simulation import simulate
from app.tools.prediction.traffic import ELEMENT_BYTES, Family, SimulatedExchange, barrier, overlaps, traffic

FAMILIES: dict[Family, str] = {  # whose costs every prediction may need
    "rounds": "rounds of messages",
    "all_reduce": "the backend's all-reduce",
    "star": "the backend's gather and scatter",
}
MOST_LATENCY, MOST_CROWD, MOST_WITHHELD = 0.001, 0.005, 0.01  # seconds; the last, of each allowance of a quota
MOST_HIDDEN = 1e-7  # seconds for each byte
VALUES = 1001  # candidates of a search, evenly spaced
NEAR = 0.05  # of the largest value: no further from one that was simulated, a parabola is as good as a simulation
MOST_TRIED = 5

Members = Sequence[tuple[Observed, list[SimulatedExchange]]]  # runs, with what passes in a step of theirs


def fit(name: str, runs: Sequence[Observed]) -> Calibration:
    """All costs, one after another: each is fitted with those before it."""
    members = _members_of(runs)
    families = [parts[0].family for _, parts in members]
    if lacking := [words for family, words in FAMILIES.items() if family not in families]:
        raise LockstepError(
            f"no calibration run with {' and with '.join(lacking)} finished. Run scripts/calibrate again.", "run-failed"
        )
    between = median(each.between for each in runs)
    found = _with_passing(Calibration(name, _provenance(runs[0]), by_model(runs), {}, between, 0.0, {}), members)
    if hidden := [each for each in runs if each.ranks > 1 and overlaps(each.settings.averaging)]:
        # Fitted to steps, as exposed time swings from day to day.
        found = _searched(found, hidden, lambda model, each: replace(model, hidden_byte=each), "step", MOST_HIDDEN)
    compressed = [each for each in runs if each.settings.averaging.compression != "none"]
    coding: dict[str, float] = {each.settings.averaging.compression: _coding_of(each, found) for each in compressed}
    found = replace(found, coding=coding)
    return replace(found, fits=_fits(runs, [_without(each, runs, found) for each in runs]))


def _fits(runs: Sequence[Observed], models: Sequence[Calibration]) -> list[Fit]:
    """Each run beside its simulation by a model that does not know it."""
    foreseen = on_all_cores(_foreseen, [(run.setup, each) for run, each in zip(runs, models, strict=True)])
    return [
        Fit(run.run.name, run.given, run.ranks, run.seconds, each) for run, each in zip(runs, foreseen, strict=True)
    ]


def _foreseen(asked: tuple[CellSetup, Calibration]) -> float:
    return simulate(*asked).means["step"]


def _without(run: Observed, runs: Sequence[Observed], model: Calibration) -> Calibration:
    """With the CPU times that the other runs show."""
    others = [each for each in runs if each is not run]
    passing = dict(model.passing)
    for family, cpu in _cpu_times(_members_of(others)).items():
        passing[family] = replace(passing[family], call=cpu.call, message=cpu.message, byte=cpu.byte)
    return replace(model, computing=model.computing | by_model(others), passing=passing)


def with_model(model: Calibration, runs: Sequence[Observed]) -> Calibration:
    """The same with another model's own work, by its runs on one rank."""
    name = runs[0].settings.training.model
    like = next(each for each in model.computing.values() if not each.alone)
    own = replace(own_work(runs, runs), own_spread=like.own_spread, renewal=like.renewal, alone=True)
    found = replace(model, computing=model.computing | {name: own})
    fits = [each for each in model.fits if each.asked.training.model != name]
    return replace(found, fits=[*fits, *_fits(runs, [found] * len(runs))])


def _provenance(run: Observed) -> Provenance:
    manifest = run.run.manifest
    rank = manifest.ranks[0]
    return Provenance(
        datetime.now(UTC).isoformat(timespec="seconds"),
        manifest.versions.lockstep,
        manifest.image.source_sha256,
        manifest.versions.kernel,
        rank.cpu_model,
        rank.cores,
    )


def _members_of(runs: Sequence[Observed]) -> Members:
    """Those whose exchanges follow backward, and carry gradients as they are."""
    return [
        (each, traffic(each.settings.averaging, each.setup.shapes, each.ranks)) for each in runs if _passes_after(each)
    ]


def _passes_after(run: Observed) -> bool:
    asked = run.settings.averaging
    return run.ranks > 1 and asked.sync_mode != "none" and asked.compression == "none" and not overlaps(asked)


def _cpu_times(members: Members) -> dict[str, Passing]:
    """By family, what an exchange, a message and a byte cost each rank."""
    families = dict.fromkeys(parts[0].family for _, parts in members)
    return {family: _cpu_time([each for each in members if each[1][0].family == family]) for family in families}


def _cpu_time(members: Members, phase: str = "sync") -> Passing:
    """Out of what this phase took on each rank of these runs."""
    counts = [np.sum([part.passed(each.ranks) for part in parts], axis=0) for each, parts in members]
    totals = np.concatenate([each.cpu(phase).mean(axis=1) for each, _ in members])
    call, message, byte = non_negative(np.concatenate(counts, axis=1).T, totals)
    return Passing(call, message, byte, latency=0.0)


def _with_passing(model: Calibration, members: Members) -> Calibration:
    """The costs of messages: CPU time by family, then what a message waits for, which shows in seconds alone.

    Where one rank serves all others in turn, it is noticed at once or later; where all are at work, it also waits for a
    core.
    """
    meeting = _cpu_time([(each, [barrier(each.ranks)]) for each, _ in members], "wait")
    found = replace(model, passing={"barrier": meeting} | _cpu_times(members))
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


def _coding_of(run: Observed, model: Calibration) -> float:
    """CPU seconds of a compressor for each byte of gradients: what its messages leave of synchronisation."""
    parts = traffic(run.settings.averaging, run.setup.shapes, run.ranks)
    own = sum(float(part.cpu(model.passing[part.family], run.ranks).mean()) for part in parts)
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
    """With the value between 0 and `most` with which these runs' phase comes out nearest, as a ratio.

    A phase's seconds are smooth over the value, so few values are simulated: a parabola through the nearest three
    tells the others.
    """
    measured = np.array([each.seconds[phase] for each in runs])
    setups = [each.setup for each in runs]
    choices = np.linspace(0.0, most, VALUES)
    simulated: dict[float, list[float]] = {}
    best, trying = 0.0, [0.0, most / 4]
    while trying:
        found = on_all_cores(_seconds, [(changed(model, value), setup, phase) for value in trying for setup in setups])
        simulated |= {value: list(itertools.islice(found, len(setups))) for value in trying}
        nearest = sorted(simulated, key=lambda value: abs(value - best))[:3]
        parabolas = np.polyfit(nearest, [simulated[value] for value in nearest], len(nearest) - 1)
        seconds = np.maximum(np.vander(choices, len(nearest)) @ parabolas, TINY)
        best = float(choices[(np.log(seconds / measured) ** 2).mean(axis=1).argmin()])
        if len(simulated) < MOST_TRIED and min(abs(best - value) for value in simulated) > NEAR * most:
            trying = [best]
        else:
            trying = [most] if len(simulated) == 2 else []  # two tell nothing about what lies beyond them
    return changed(model, best)


def _seconds(asked: tuple[Calibration, CellSetup, str]) -> float:
    model, setup, phase = asked
    return simulate(setup, model, steps=3, samples=12).means[phase]
