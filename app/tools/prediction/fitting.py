"""From the runs of a calibration to a calibration: all costs, and how well the runs fit them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from app.errors import LockstepError
from app.machine.parallel import on_all_cores
from app.settings.link_rates import read_rate
from app.tools.prediction.calibration import Calibration, Domain, Fit, Provenance
from app.tools.prediction.computing_costs import by_model, own_work
from app.tools.prediction.observed import Observed
from app.tools.prediction.passing_costs import coding_of, cpu_times, members_of, with_hidden, with_passing
from app.tools.prediction.setup import CellSetup
from app.tools.prediction.simulation import simulate
from app.tools.prediction.traffic import Family, overlaps

FAMILIES: dict[Family, str] = {  # whose costs every prediction may need
    "rounds": "rounds of messages",
    "all_reduce": "the backend's all-reduce",
    "star": "the backend's gather and scatter",
}


def fit(name: str, runs: Sequence[Observed]) -> Calibration:
    """All costs, one after another: each is fitted with those before it."""
    if not runs:
        raise LockstepError("no calibration run finished. Run scripts/calibrate again.", "run-failed")
    members = members_of(runs)
    if not members:
        raise LockstepError("no calibration run with collectives finished. Run scripts/calibrate again.", "run-failed")
    between = median(each.between for each in runs)
    found = Calibration(name, _provenance(runs[0]), _domain(runs), by_model(runs), {}, between, 0.0, {})
    found = with_passing(found, members)
    if lacking := [words for family, words in FAMILIES.items() if family not in found.passing]:
        raise LockstepError(
            f"no calibration run with {' and with '.join(lacking)} finished. Run scripts/calibrate again.", "run-failed"
        )
    if hidden := [each for each in runs if each.ranks > 1 and overlaps(each.settings.averaging)]:
        found = with_hidden(found, hidden)
    coding: dict[str, float] = {}
    for each in runs:
        if each.settings.averaging.compression != "none":
            coding[each.settings.averaging.compression] = coding_of(each, found)
    found = replace(found, coding=coding)
    return replace(found, fits=_fits(runs, found, [_without(each, runs, found) for each in runs]))


def _fits(runs: Sequence[Observed], model: Calibration, without: Sequence[Calibration]) -> list[Fit]:
    """Each run beside its simulation, and beside that by a model that does not know it."""
    asked = [(run.setup, model, other) for run, other in zip(runs, without, strict=True)]
    return [
        Fit(run.name, run.given, run.ranks, run.seconds, simulated, foreseen["step"])
        for run, (simulated, foreseen) in zip(runs, on_all_cores(_by_both, asked), strict=True)
    ]


def _by_both(asked: tuple[CellSetup, Calibration, Calibration]) -> tuple[dict[str, float], dict[str, float]]:
    setup, one, other = asked
    return simulate(setup, one).means, simulate(setup, other).means


def _without(run: Observed, runs: Sequence[Observed], model: Calibration) -> Calibration:
    """With the CPU times that the other runs show."""
    others = [each for each in runs if each is not run]
    passing = dict(model.passing)
    for family, cpu in cpu_times(members_of(others)).items():
        passing[family] = replace(passing[family], call=cpu.call, message=cpu.message, byte=cpu.byte)
    return replace(model, computing=model.computing | by_model(others), passing=passing)


def with_model(model: Calibration, runs: Sequence[Observed]) -> Calibration:
    """The same with another model's own work, by its runs on one rank."""
    name = runs[0].settings.training.model
    like = next(each for each in model.computing.values() if not each.alone)
    own = replace(own_work(runs, runs), own_spread=like.own_spread, renewal=like.renewal, alone=True)
    found = replace(
        model,
        computing=model.computing | {name: own},
        domain=replace(model.domain, models=list(dict.fromkeys([*model.domain.models, name]))),
    )
    fits = [each for each in model.fits if each.asked.training.model != name]
    return replace(found, fits=[*fits, *_fits(runs, found, [found] * len(runs))])


def _domain(runs: Sequence[Observed]) -> Domain:
    """A single rank has no say in it: it passes nothing."""
    several = [each for each in runs if each.ranks > 1]
    rates = [read_rate(each.settings.links.link_rate) for each in several if each.settings.links.link_rate] or [0.0]
    quotas = [each.settings.place.rank_cpus for each in several if each.settings.place.rank_cpus] or [0.0]
    ranks = [each.ranks for each in several] or [1]
    models = list(dict.fromkeys(each.settings.training.model for each in runs))
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
