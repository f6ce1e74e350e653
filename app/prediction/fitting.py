"""From the runs of a calibration to its costs: CPU time by least squares, the rest by simulating these very runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import mean, median

import numpy as np

from app.errors import LockstepError
from app.machine.parallel import on_all_cores
from app.prediction.calibration import Calibration, Computing, Domain, Fit, Line, Passing, Provenance, kept_of
from app.prediction.least_squares import line_through, non_negative
from app.prediction.observed import COMPUTING, Observed
from app.prediction.setup import Setup
from app.prediction.simulation import simulate
from app.prediction.traffic import ELEMENT_BYTES, Family, Part, barrier, overlaps, traffic
from app.prediction.waves import Figures
from app.settings.link_rates import read_rate

FAMILIES: dict[Family, str] = {  # whose costs every prediction may need
    "rounds": "rounds of messages",
    "all_reduce": "the backend's all-reduce",
    "star": "the backend's gather and scatter",
}
MOST_LATENCY, MOST_CROWD = 0.001, 0.005  # seconds
MOST_HIDDEN = 1e-7  # seconds for each byte
MOST_SAMPLES = 400  # of a spread
FEWER = 1.9  # renewals of a quota in one run by those in another, from which on they tell what each costs
TRIES = 8  # of a search by golden section, each of which leaves 0.62 of the way
GOLDEN = (math.sqrt(5) - 1) / 2


def fit(name: str, runs: Sequence[Observed]) -> Calibration:
    """All costs, one after another: each is fitted with those before it."""
    if not runs:
        raise LockstepError("no run of the calibration is finished, so nothing can be calibrated.")
    explicit = [each for each in runs if _passes_after(each)]
    if not explicit:
        raise LockstepError("no run of the calibration with exchanges is finished. Run scripts/calibrate again.")
    found = Calibration(
        name, _provenance(runs[0]), _domain(runs), _computing(runs), {}, median(each.between for each in runs), 0.0, {}
    )
    found = _with_passing(found, [(each, traffic(each.settings, each.setup.shapes, each.ranks)) for each in explicit])
    if lacking := [words for family, words in FAMILIES.items() if family not in found.passing]:
        raise LockstepError(
            f"no run of the calibration with {' and with '.join(lacking)} is finished. Run scripts/calibrate again."
        )
    if hidden := [each for each in runs if each.ranks > 1 and overlaps(each.settings)]:
        found = _searched(found, hidden, lambda model, each: replace(model, hidden_byte=each), "step", MOST_HIDDEN)
    coding: dict[str, float] = {}
    for each in runs:
        if each.settings.compression != "none":
            coding[each.settings.compression] = _coding(each, found)
    found = replace(found, coding=coding)
    return replace(found, fits=_fits(runs, found, [_without(each, runs, found) for each in runs]))


def _fits(runs: Sequence[Observed], model: Calibration, without: Sequence[Calibration]) -> list[Fit]:
    """Each run beside its simulation, and beside that by a model that does not know it."""
    asked = [(run.setup, model, other) for run, other in zip(runs, without, strict=True)]
    return [
        Fit(run.name, run.given, run.ranks, run.seconds, simulated, foreseen["step"])
        for run, (simulated, foreseen) in zip(runs, on_all_cores(_by_both, asked), strict=True)
    ]


def _by_both(asked: tuple[Setup, Calibration, Calibration]) -> tuple[dict[str, float], dict[str, float]]:
    setup, one, other = asked
    return simulate(setup, one).means, simulate(setup, other).means


def _without(run: Observed, runs: Sequence[Observed], model: Calibration) -> Calibration:
    """With the CPU times that the other runs show."""
    others = [each for each in runs if each is not run]
    passing = dict(model.passing)
    members = [(each, traffic(each.settings, each.setup.shapes, each.ranks)) for each in others if _passes_after(each)]
    for family in {parts[0].family for _, parts in members}:
        cpu = _passing([(each, parts) for each, parts in members if parts[0].family == family])
        passing[family] = replace(passing[family], call=cpu.call, message=cpu.message, byte=cpu.byte)
    return replace(model, computing=model.computing | _computing(others), passing=passing)


def _passes_after(run: Observed) -> bool:
    """Whether its exchanges follow backward, and carry gradients as they are."""
    asked = run.settings
    return run.ranks > 1 and asked.sync_mode != "none" and asked.compression == "none" and not overlaps(asked)


Members = Sequence[tuple[Observed, list[Part]]]


def _with_passing(model: Calibration, members: Members) -> Calibration:
    """The costs of messages: CPU time by family, then what a message waits for, which shows in seconds alone.

    Where one rank serves all others in turn, it is noticed at once or later; where all are at work, it also waits for a
    core.
    """
    found = replace(
        model, passing={"barrier": _passing([(each, [barrier(each.ranks)]) for each, _ in members], "wait")}
    )
    families = list(dict.fromkeys(parts[0].family for _, parts in members))
    for family in families:
        own = _passing([(each, parts) for each, parts in members if parts[0].family == family])
        found = replace(found, passing=found.passing | {family: own})
    central = [each for each, parts in members if _most_at_once(parts) == 1]
    if central:
        found = _searched(found, central, _with_latency, "sync", MOST_LATENCY)
    for family in families:
        crowded = [each for each, parts in members if parts[0].family == family and _most_at_once(parts) > 1]
        if crowded:
            found = _searched(found, crowded, partial(_with_crowd, family), "sync", MOST_CROWD)
    return _searched(found, [each for each, _ in members], partial(_with_crowd, "barrier"), "step", MOST_CROWD)


def _most_at_once(parts: Sequence[Part]) -> int:
    return max(len(wave.senders) for part in parts for wave in part.waves)


def _with_latency(model: Calibration, latency: float) -> Calibration:
    return replace(model, passing={name: replace(each, latency=latency) for name, each in model.passing.items()})


def _with_crowd(family: str, model: Calibration, crowd: float) -> Calibration:
    return replace(model, passing=model.passing | {family: replace(model.passing[family], crowd=crowd)})


def with_model(model: Calibration, runs: Sequence[Observed]) -> Calibration:
    """The same with another model's own work, by its runs on one rank."""
    name = runs[0].settings.model
    like = next(each for each in model.computing.values() if not each.alone)
    own = replace(_own_work(runs, runs), own_spread=like.own_spread, renewal=like.renewal, alone=True)
    found = replace(
        model,
        computing=model.computing | {name: own},
        domain=replace(model.domain, models=list(dict.fromkeys([*model.domain.models, name]))),
    )
    fits = [each for each in model.fits if each.asked.model != name]
    return replace(found, fits=[*fits, *_fits(runs, found, [found] * len(runs))])


def _computing(runs: Sequence[Observed]) -> dict[str, Computing]:
    """By model. Backward in a mode that hides something also has the CPU time of messages, so it is left out."""
    found = {}
    for model in dict.fromkeys(each.settings.model for each in runs):
        of_model = [each for each in runs if each.settings.model == model]
        if own := [each for each in of_model if not overlaps(each.settings)]:
            found[model] = _own_work(own, of_model)
    return found


def _own_work(own: Sequence[Observed], of_model: Sequence[Observed]) -> Computing:
    """What these runs show; of all runs of the model, one on a single rank shows when gradients are there."""
    images = [each.setup.images for each in own]
    ready = [each for each in of_model if each.ranks == 1 and each.steps[0][0].buckets]
    work = [each.cpu(*COMPUTING) for each in own]
    several = [(each / each.mean(axis=0)).ravel() for each in work if len(each) > 1]
    renewal = _renewal(own)
    return Computing(
        _line(own, renewal, "data", "forward"),
        _line(own, renewal, "backward"),
        _line(own, renewal, "optimiser"),
        min(images),
        max(images),
        _thinned(np.concatenate(several)) if several else [1.0],
        _thinned(np.concatenate([each.mean(axis=0) / each.mean() for each in work])),
        _ready(ready[0]) if ready else _even(own[0]),
        renewal,
    )


def _line(runs: Sequence[Observed], renewal: float, *phases: str) -> Line:
    """What is left of the CPU time when what renewals cost is taken off."""
    return line_through(
        [(each.setup.images, kept_of(renewal, each.setup) * float(np.median(each.cpu(*phases)))) for each in runs]
    )


def _renewal(runs: Sequence[Observed]) -> float:
    """CPU time lost with each renewal of a quota, by runs with as many images that had fewer renewals, or none."""
    alike: dict[float, list[Observed]] = {}
    for each in runs:
        alike.setdefault(each.setup.images, []).append(each)
    unlike = {
        images: those
        for images, those in alike.items()
        if max(each.setup.renewals for each in those) > FEWER * min(each.setup.renewals for each in those)
    }
    rows, totals = [], []
    for images, those in unlike.items():
        for each in those:
            seconds = float(np.median(each.cpu(*COMPUTING)))
            of_images = {f"{other:g} images": float(other == images) for other in unlike}
            rows.append({**of_images, "renewals": seconds * each.setup.renewals})
            totals.append(seconds)
    return non_negative(rows, totals)[-1] if rows else 0.0


def _thinned(values: Figures) -> list[float]:
    """So many of them that a file can hold them: evenly chosen from the smallest to the largest."""
    places = np.linspace(0, len(values) - 1, min(len(values), MOST_SAMPLES)).round().astype(int)
    return [round(float(each), 4) for each in np.sort(values)[places]]


def _ready(run: Observed) -> list[float]:
    """The median over steps of when each gradient is there, as a part of backward."""
    steps = [steps[0] for steps in run.steps]
    parts = []
    for step in steps:
        moments = [bucket.ready_seconds for bucket in step.buckets or ()]
        began, ended = step.data_seconds + step.forward_seconds, max(moments)
        parts.append([(moment - began) / (ended - began) for moment in moments])
    return [round(min(1.0, max(0.0, float(each))), 4) for each in np.maximum.accumulate(np.median(parts, axis=0))]


def _even(run: Observed) -> list[float]:
    """Where that was not measured: as if each gradient took as long as any other."""
    count = len(run.setup.shapes)
    return [(number + 1) / count for number in range(count)]


def _passing(members: Sequence[tuple[Observed, list[Part]]], phase: str = "sync") -> Passing:
    """CPU time of an exchange, a message, a byte: out of what this phase took on each rank of these runs."""
    rows, totals = [], []
    for each, parts in members:
        messages, sizes = _passed(parts, each.ranks)
        seconds = each.cpu(phase).mean(axis=1)
        for rank in range(each.ranks):
            rows.append({"call": float(len(parts)), "message": float(messages[rank]), "byte": float(sizes[rank])})
            totals.append(float(seconds[rank]))
    call, message, byte = non_negative(rows, totals)
    return Passing(call, message, byte, 0.0)


def _passed(parts: Sequence[Part], ranks: int) -> tuple[Figures, Figures]:
    """By rank, of all of them: messages, and bytes."""
    messages, sizes = np.sum([part.passed(ranks) for part in parts], axis=0)
    return messages, sizes


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


def _missed(model: Calibration, phase: str, measured: tuple[Setup, float]) -> float:
    setup, seconds = measured
    return math.log(simulate(setup, model, steps=3, samples=12).mean(phase) / seconds) ** 2


def _coding(run: Observed, model: Calibration) -> float:
    """What is left of the CPU time of synchronisation when the messages have had theirs."""
    parts = traffic(run.settings, run.setup.shapes, run.ranks)
    family = model.passing[parts[0].family]
    messages, sizes = _passed(parts, run.ranks)
    own = len(parts) * family.call + float((messages * family.message + sizes * family.byte).mean())
    gradients = ELEMENT_BYTES * sum(shape.numel() for shape in run.setup.shapes)
    return max(0.0, float(run.cpu("sync").mean()) - own) / gradients


def _domain(runs: Sequence[Observed]) -> Domain:
    """A single rank has no say in it: it passes nothing."""
    several = [each for each in runs if each.ranks > 1]
    rates = [read_rate(each.settings.link_rate) for each in several if each.settings.link_rate] or [0.0]
    quotas = [each.settings.rank_cpus for each in several if each.settings.rank_cpus] or [0.0]
    ranks = [each.ranks for each in several] or [1]
    models = list(dict.fromkeys(each.settings.model for each in runs))
    return Domain(models, min(ranks), max(ranks), min(rates), max(rates), min(quotas), max(quotas))


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
