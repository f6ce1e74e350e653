"""What a cell would take: seconds with an interval, what bounds it, and what of it lies outside the calibration."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from app import sync
from app.cluster.wire.bandwidth import LinkSpeed
from app.errors import SettingError
from app.machine.parallel import on_all_cores
from app.settings.concern import Mark
from app.settings.settings import FIELDS, Settings, marked
from app.sync.contract import size_of
from app.tools.experiment.plan.cells import Cell
from app.tools.prediction.calibration import Calibration, Domain
from app.tools.prediction.setup import CellSetup, parameters_of
from app.tools.prediction.simulation import PHASES, Simulated, simulate

MOST_RANKS = 1024  # that are simulated
VERIFIED_RANKS = 8  # beyond them nothing has been checked against a run
SAMPLES, STEPS = 24, 6
MOST_RANKS_IN_SAMPLES = 64  # beyond them a sample has ranks enough to tell their spread

ALONE: dict[str, object] = {"batch_size_per_rank": None, "slow_rank": None}  # one usual rank


@dataclass(frozen=True)
class Forecast:
    """A cell, predicted."""

    cell: Cell
    setup: CellSetup
    calibration: Calibration

    @property
    def name(self) -> str:
        return self.cell.name

    @cached_property
    def simulated(self) -> Simulated:
        """The steps; where there are many ranks, fewer samples show as much."""
        few = self.setup.ranks > MOST_RANKS_IN_SAMPLES
        return simulate(self.setup, self.calibration, steps=3 if few else STEPS, samples=4 if few else SAMPLES)

    def mean(self, phase: str) -> float:
        return self.simulated.mean(phase)

    @property
    def seconds(self) -> float:
        return self.mean("step")

    @property
    def hidden(self) -> float:
        return float(self.simulated.hidden.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """In which four of five measured cells lie, if this one is as well predicted as the calibration's own runs."""
        margin = self.calibration.margin(self.setup.settings.training.model)
        return self.seconds / margin, self.seconds * margin

    @property
    def images_per_second(self) -> float:
        return self.setup.settings.training.global_batch(self.setup.ranks) / self.seconds

    @cached_property
    def speedup(self) -> float:
        """The seconds of one rank that takes the same global batch, by those of all of these."""
        if self.setup.ranks == 1:
            return 1.0
        asked = self.setup.settings
        alone = asked.changed(**ALONE, global_batch_size=asked.training.global_batch(self.setup.ranks))
        return replace(self, setup=self.setup.alone(alone)).seconds / self.seconds

    @property
    def efficiency(self) -> float:
        return self.speedup / self.setup.ranks

    @cached_property
    def least_sync(self) -> float:
        """The least time of its messages on the links; of a step in the long run where parameters are averaged."""
        if self.setup.ranks == 1:
            return 0.0
        parameters = parameters_of(self.setup.settings.training.model)
        links = [LinkSpeed(*each) for each in zip(self.setup.links.sends, self.setup.links.receives, strict=True)]
        cost = sync.cost_of(self.setup.settings.averaging, parameters)
        whole = cost.seconds_at_least(size_of(parameters, self.setup.settings.averaging.wire_precision), links)
        return whole / (self.setup.settings.averaging.sync_every or 1)

    @property
    def bound(self) -> str:
        means = self.simulated.means
        on_links = min(self.least_sync, means["sync"])
        parts = {
            "computation": means["computing"] + means["optimiser"],
            "waiting for the slowest rank": means["wait"],
            "links": on_links,
            "messages: their number and the processor": means["sync"] - on_links,
        }
        return max(parts, key=lambda name: parts[name])

    @property
    def unverified(self) -> bool:
        return self.setup.ranks > VERIFIED_RANKS

    @property
    def outside(self) -> list[str]:
        return list(_outside(self.setup, self.calibration))

    def as_json(self) -> dict[str, object]:
        low, high = self.interval
        return {
            "cell": self.name,
            "settings": self.cell.settings,
            "world_size": self.setup.ranks,
            "one_host": self.setup.cpus.shared_cores is not None,
            "seconds": self.seconds,
            "seconds_low": low,
            "seconds_high": high,
            "phases": {phase: self.mean(phase) for phase in PHASES},
            "hidden_sync_seconds": self.hidden,
            "sync_seconds_at_least": self.least_sync,
            "images_per_second": self.images_per_second,
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "bound": self.bound,
            "outside": self.outside,
        }


def work_out(forecasts: Sequence[Forecast], say: Callable[[str], object] = lambda _: None) -> list[Forecast]:
    """The same with what takes time done, on all cores; says how far it is."""
    found = []
    for number, each in enumerate(on_all_cores(_worked_out, forecasts), 1):
        say(f"[{number}/{len(forecasts)}] {each.name}")
        found.append(each)
    return found


def _worked_out(forecast: Forecast) -> Forecast:
    _ = forecast.simulated, forecast.speedup, forecast.least_sync  # each is kept
    return forecast


def check(settings: Settings, calibration: Calibration) -> None:
    """Refuse what the simulation has no costs for."""
    if settings.training.model not in calibration.computing:
        known = ", ".join(calibration.computing)
        raise SettingError(
            f"MODEL={settings.training.model} is not in calibration '{calibration.name}' ({known}). "
            f"scripts/predict MODEL={settings.training.model} adds it.",
            "not-calibrated",
        )
    if settings.averaging.compression not in ("none", *calibration.coding):
        known = ", ".join(("none", *calibration.coding))
        message = f"COMPRESSION={settings.averaging.compression} is not calibrated. Choose from: {known}."
        raise SettingError(message, "not-calibrated")


def _outside(setup: CellSetup, calibration: Calibration) -> Iterator[str]:
    domain, settings, computing = (
        calibration.domain,
        setup.settings,
        calibration.computing[setup.settings.training.model],
    )
    if setup.ranks > VERIFIED_RANKS:
        yield f"{setup.ranks} ranks: simulated, not verified beyond {VERIFIED_RANKS}"
    elif setup.ranks > domain.most_ranks:
        yield f"{setup.ranks} ranks: calibrated with {domain.least_ranks} to {domain.most_ranks}"
    yield from _links_outside(setup, domain)
    if settings.place.rank_cpus is None or not domain.least_quota <= settings.place.rank_cpus <= domain.most_quota:
        asked = "no RANK_CPUS" if settings.place.rank_cpus is None else f"RANK_CPUS={settings.place.rank_cpus:g}"
        yield f"{asked}: calibrated with {domain.least_quota:g} to {domain.most_quota:g}"
    if not computing.least_images <= setup.images <= computing.most_images:
        yield (
            f"{setup.images:g} images of a rank in a step: calibrated with {computing.least_images:g} to "
            f"{computing.most_images:g}"
        )
    if computing.alone and setup.ranks > 1:
        yield f"MODEL={settings.training.model}: measured on one rank; how ranks differ is another model's"
    if setup.ranks > 1 and settings.averaging.sync_mode not in {
        each.asked.averaging.sync_mode for each in calibration.fits
    }:
        yield f"SYNC_MODE={settings.averaging.sync_mode}: costs of messages are those of other modes"
    for name, value in settings.values(only=marked(Mark.UNCALIBRATED)).items():
        if value != FIELDS[name].default:
            yield f"{name.upper()}={value}: not modelled"


def _links_outside(setup: CellSetup, domain: Domain) -> Iterator[str]:
    rates = {setup.settings.links.of(rank).bits_per_second for rank in range(setup.ranks)}
    for rate in sorted(each for each in rates if each):
        if not domain.least_rate <= rate <= domain.most_rate:
            yield f"links of {_rate(rate)}: calibrated with {_rate(domain.least_rate)} to {_rate(domain.most_rate)}"
    if setup.ranks > 1 and None in rates:
        yield "links without a rate: calibrated with rates only"
    if len(rates) > 1:
        yield "links that differ: calibrated with equal ones"


def _rate(bits: float) -> str:
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"
