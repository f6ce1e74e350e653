"""Where it stops paying: the number of ranks that halves efficiency, the rate below which compression is faster."""

import math
from dataclasses import replace

from app.modes import PLAIN_EXCHANGE
from app.settings.settings import Settings
from app.tools.prediction.forecast import MOST_RANKS, Forecast
from app.tools.prediction.setup import setup_of

HALF = 0.5
RATES = (1e6, 1e11)  # bits per second, as LINK_RATE can have: a break-even is looked for between them
HALVINGS = 9
MOST_WAVES = 20_000  # of messages in a simulation after which more ranks are tried: it takes some ten seconds


def ranks_at_half(forecast: Forecast) -> Forecast:
    """The least number of ranks with an efficiency under a half, each on a host of its own; else the most tried."""
    images = forecast.setup.settings.training.global_batch(forecast.setup.ranks)
    settings = forecast.setup.settings.changed(global_batch_size=images, batch_size_per_rank=None)
    good, bad = (_roughly(forecast, settings, ranks) for ranks in (1, 2))
    while bad.efficiency >= HALF:
        if 2 * bad.setup.ranks > min(MOST_RANKS, images) or bad.simulated.waves > MOST_WAVES:
            return bad
        good, bad = bad, _roughly(forecast, settings, 2 * bad.setup.ranks)
    while bad.setup.ranks - good.setup.ranks > max(1, good.setup.ranks // 16):
        between = min(max(_where_half(good, bad), good.setup.ranks + 1), bad.setup.ranks - 1)
        tried = _roughly(forecast, settings, between)
        good, bad = (tried, bad) if tried.efficiency >= HALF else (good, tried)
    return bad


def _where_half(good: Forecast, bad: Forecast) -> int:
    """Where efficiency would be a half if its logarithm were a line over the logarithm of the ranks."""
    part = math.log(good.efficiency / HALF) / math.log(good.efficiency / bad.efficiency)
    return int(good.setup.ranks * (bad.setup.ranks / good.setup.ranks) ** part + HALF)


def break_even(forecast: Forecast) -> float | None:
    """The rate of links, in bits per second, below which this compressor makes a step faster than its own absence.

    None where it is always faster or never, between 1 Mbit/s and 100 Gbit/s.
    """
    settings, ranks = forecast.setup.settings, forecast.setup.ranks
    plain = settings.changed(sync_mode=PLAIN_EXCHANGE, compression="none")

    def pays(rate: float) -> bool:
        at_rate = (each.changed(link_rate=f"{rate / 1e6:.6f}mbit") for each in (settings, plain))
        own, other = (_roughly(forecast, each, ranks).seconds for each in at_rate)
        return own < other

    low, high = RATES
    if not pays(low) or pays(high):
        return None
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if pays(middle) else (low, middle)
    return math.sqrt(low * high)


def _roughly(forecast: Forecast, settings: Settings, ranks: int) -> Forecast:
    setup = setup_of(settings, ranks, cores=forecast.calibration.provenance.cores, one_host=False)
    return replace(forecast, setup=setup, rough=True)
