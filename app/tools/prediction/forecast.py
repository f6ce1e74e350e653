"""What a cell would take: seconds with an interval, what bounds it, and what of it lies outside the calibration."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from app import sync
from app.cluster.wire.bandwidth import LinkSpeed
from app.machine.parallel import on_all_cores
from app.settings.concern import Mark
from app.settings.settings import FIELDS, Settings, marked
from app.sync.contract import size_of
from app.tools.experiment.plan.cells import Cell
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.setup import CellSetup, parameters_of
from app.tools.prediction.simulation import Simulated, simulate

MOST_RANKS = 1024  # that are simulated
VERIFIED_RANKS = 8  # beyond them nothing has been checked against a run
MOST_RANKS_IN_SAMPLES = 64  # beyond them a sample has ranks enough to tell their spread


@dataclass(frozen=True)
class Forecast:
    """A cell, predicted."""

    cell: Cell
    setup: CellSetup
    calibration: Calibration
    rough: bool = False  # few steps and samples: one of many that a limit is looked for with

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def settings(self) -> Settings:
        return self.setup.settings

    @property
    def ranks(self) -> int:
        return self.setup.ranks

    @property
    def one_host(self) -> bool:
        return self.setup.cpus.shared_cores is not None

    @cached_property
    def simulated(self) -> Simulated:
        """The steps; where there are many ranks, fewer samples show as much."""
        many = self.ranks > MOST_RANKS_IN_SAMPLES
        steps, samples = (2, 4) if self.rough else (3, 4) if many else (6, 24)
        return simulate(self.setup, self.calibration, steps=steps, samples=samples)

    def mean(self, phase: str) -> float:
        return self.simulated.means[phase]

    @property
    def seconds(self) -> float:
        return self.mean("step")

    @property
    def interval(self) -> tuple[float, float]:
        """In which four of five measured cells lie, if this one is as well predicted as the calibration's own runs."""
        margin = self.calibration.margin(self.settings.training.model)
        return self.seconds / margin, self.seconds * margin

    @property
    def images_per_second(self) -> float:
        return self.settings.training.global_batch(self.ranks) / self.seconds

    @cached_property
    def speedup(self) -> float:
        """The seconds of one usual rank that takes the same global batch, by those of all of these."""
        if self.ranks == 1:
            return 1.0
        images = self.settings.training.global_batch(self.ranks)
        alone = self.settings.changed(batch_size_per_rank=None, slow_rank=None, global_batch_size=images)
        return replace(self, setup=self.setup.alone(alone)).seconds / self.seconds

    @property
    def efficiency(self) -> float:
        return self.speedup / self.ranks

    @cached_property
    def least_sync(self) -> float:
        """The least time of its messages on the links; of a step in the long run where parameters are averaged."""
        if self.ranks == 1:
            return 0.0
        averaging = self.settings.averaging
        parameters = parameters_of(self.settings.training.model, self.setup.classes)
        links = [LinkSpeed(*each) for each in zip(self.setup.links.sends, self.setup.links.receives, strict=True)]
        size = size_of(parameters, averaging.wire_precision)
        return sync.cost_of(averaging, parameters).seconds_at_least(size, links) / (averaging.sync_every or 1)

    @property
    def bound(self) -> str:
        on_links = min(self.least_sync, self.mean("sync"))
        parts = {
            "computation": self.mean("computing") + self.mean("optimiser"),
            "waiting for the slowest rank": self.mean("wait"),
            "links": on_links,
            "messages: their number and the processor": self.mean("sync") - on_links,
        }
        return max(parts, key=lambda name: parts[name])

    @property
    def unverified(self) -> bool:
        return self.ranks > VERIFIED_RANKS

    def outside(self) -> Iterator[str]:
        """What lies outside the calibration."""
        settings, averaging = self.settings, self.settings.averaging
        computing = self.calibration.computing[settings.training.model]
        least, most = self.calibration.covered(lambda run: run.ranks)
        if self.unverified:
            yield f"{self.ranks} ranks: simulated, not verified beyond {VERIFIED_RANKS}"
        elif self.ranks > most:
            yield f"{self.ranks} ranks: calibrated with {least:g} to {most:g}"
        yield from self._links_outside()
        least, most = self.calibration.covered(lambda run: run.asked.place.rank_cpus)
        quota = settings.place.rank_cpus
        if quota is None or not least <= quota <= most:
            asked = "no RANK_CPUS" if quota is None else f"RANK_CPUS={quota:g}"
            yield f"{asked}: calibrated with {least:g} to {most:g}"
        least, most = computing.least_images, computing.most_images
        if not least <= self.setup.images <= most:
            yield f"{self.setup.images:g} images of a rank in a step: calibrated with {least:g} to {most:g}"
        if computing.alone and self.ranks > 1:
            yield f"MODEL={settings.training.model}: measured on one rank; how ranks differ is another model's"
        if self.ranks > 1 and averaging.sync_mode not in {
            run.asked.averaging.sync_mode for run in self.calibration.fits
        }:
            yield f"SYNC_MODE={averaging.sync_mode}: costs of messages are those of other modes"
        for name, value in settings.values(only=marked(Mark.UNCALIBRATED)).items():
            if value != FIELDS[name].default:
                yield f"{name.upper()}={value}: not modelled"

    def _links_outside(self) -> Iterator[str]:
        least, most = self.calibration.rates
        rates = {self.settings.links.of(rank).bits_per_second for rank in range(self.ranks)}
        for rate in sorted(each for each in rates if each):
            if not least <= rate <= most:
                yield f"links of {_rate(rate)}: calibrated with {_rate(least)} to {_rate(most)}"
        if self.ranks > 1 and None in rates:
            yield "links without a rate: calibrated with rates only"
        if len(rates) > 1:
            yield "links that differ: calibrated with equal ones"


def _rate(bits: float) -> str:
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"


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
