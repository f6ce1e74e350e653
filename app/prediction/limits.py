"""Where it stops paying: the number of ranks that halves efficiency, the rate below which compression is faster."""

import math

from app.prediction.calibration import Calibration
from app.prediction.forecast import ALONE, MOST_RANKS, Forecast
from app.prediction.setup import setup_of
from app.prediction.simulation import simulate
from app.settings.fields import Settings

HALF = 0.5
RATES = (1e6, 1e11)  # bits per second, as LINK_RATE can have: a break-even is looked for between them
HALVINGS = 9


def ranks_at_half(forecast: Forecast) -> int | None:
    """The least number of ranks with an efficiency under a half, each on a host of its own; None up to 1024."""
    settings, calibration = forecast.setup.settings, forecast.calibration
    images = settings.global_batch(forecast.setup.ranks)
    fixed = settings.model_copy(update={"global_batch_size": images, "batch_size_per_rank": None})
    alone = _seconds(fixed.model_copy(update=ALONE), 1, calibration)

    def pays(ranks: int) -> bool:
        return alone / _seconds(fixed, ranks, calibration) / ranks >= HALF

    good, bad = 1, 2
    while pays(bad):
        good, bad = bad, 2 * bad
        if bad > min(MOST_RANKS, images):
            return None
    while bad - good > max(1, good // 16):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if pays(middle) else (good, middle)
    return bad


def break_even(forecast: Forecast) -> float | None:
    """The rate of links, in bits per second, below which this compressor makes a step faster than its own absence.

    None where it is always faster or never, between 1 Mbit/s and 100 Gbit/s.
    """
    settings, calibration, ranks = forecast.setup.settings, forecast.calibration, forecast.setup.ranks
    plain = settings.model_copy(
        update={
            "compression": "none",
            "sync_mode": "flat_all_reduce",
            "compression_ratio": None,
            "compression_rank": None,
        }
    )

    def pays(rate: float) -> bool:
        given = {"link_rate": f"{rate / 1e6:.6f}mbit"}
        seconds = [_seconds(each.model_copy(update=given), ranks, calibration) for each in (settings, plain)]
        return seconds[0] < seconds[1]

    low, high = RATES
    if not pays(low) or pays(high):
        return None
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if pays(middle) else (low, middle)
    return math.sqrt(low * high)


def _seconds(settings: Settings, ranks: int, calibration: Calibration) -> float:
    setup = setup_of(settings, ranks, cores=calibration.provenance.cores, one_host=False)
    return simulate(setup, calibration, steps=2, samples=4).mean("step")
