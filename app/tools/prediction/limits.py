"""Where it stops paying: the number of ranks that halves efficiency, the rate below which compression is faster."""

import math
from dataclasses import dataclass

from app.modes import PLAIN_EXCHANGE
from app.settings.settings import Settings
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.forecast import ALONE, MOST_RANKS, Forecast
from app.tools.prediction.setup import setup_of
from app.tools.prediction.simulation import Simulated, simulate

HALF = 0.5
RATES = (1e6, 1e11)  # bits per second, as LINK_RATE can have: a break-even is looked for between them
HALVINGS = 9
MOST_WAVES = 20_000  # of messages in a simulation after which more ranks are tried: it takes some ten seconds


@dataclass(frozen=True)
class Tried:
    """A number of ranks, and the efficiency that it has."""

    ranks: int
    efficiency: float

    @property
    def pays(self) -> bool:
        return self.efficiency >= HALF


def ranks_at_half(forecast: Forecast) -> Tried:
    """The least number of ranks with an efficiency under a half, each on a host of its own; else the most tried."""
    settings, calibration = forecast.setup.settings, forecast.calibration
    images = settings.training.global_batch(forecast.setup.ranks)
    fixed = settings.changed(global_batch_size=images, batch_size_per_rank=None)
    alone = _simulated(fixed.changed(**ALONE), 1, calibration).mean("step")
    waves = 0

    def of(ranks: int) -> Tried:
        nonlocal waves
        found = _simulated(fixed, ranks, calibration)
        waves = found.waves
        return Tried(ranks, alone / found.mean("step") / ranks)

    good, bad = Tried(1, 1.0), of(2)
    while bad.pays:
        if 2 * bad.ranks > min(MOST_RANKS, images) or waves > MOST_WAVES:
            return bad
        good, bad = bad, of(2 * bad.ranks)
    while bad.ranks - good.ranks > max(1, good.ranks // 16):
        tried = of(min(max(_where_half(good, bad), good.ranks + 1), bad.ranks - 1))
        good, bad = (tried, bad) if tried.pays else (good, tried)
    return bad


def _where_half(good: Tried, bad: Tried) -> int:
    """Where efficiency would be a half if its logarithm were a line over the logarithm of the ranks."""
    part = math.log(good.efficiency / HALF) / math.log(good.efficiency / bad.efficiency)
    return int(good.ranks * (bad.ranks / good.ranks) ** part + HALF)


def break_even(forecast: Forecast) -> float | None:
    """The rate of links, in bits per second, below which this compressor makes a step faster than its own absence.

    None where it is always faster or never, between 1 Mbit/s and 100 Gbit/s.
    """
    settings, calibration, ranks = forecast.setup.settings, forecast.calibration, forecast.setup.ranks
    plain = settings.changed(sync_mode=PLAIN_EXCHANGE, compression="none")

    def pays(rate: float) -> bool:
        rate_text = f"{rate / 1e6:.6f}mbit"
        steps = [_simulated(each.changed(link_rate=rate_text), ranks, calibration) for each in (settings, plain)]
        return steps[0].mean("step") < steps[1].mean("step")

    low, high = RATES
    if not pays(low) or pays(high):
        return None
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if pays(middle) else (low, middle)
    return math.sqrt(low * high)


def _simulated(settings: Settings, ranks: int, calibration: Calibration) -> Simulated:
    setup = setup_of(settings, ranks, cores=calibration.provenance.cores, one_host=False)
    return simulate(setup, calibration, steps=2, samples=4)
