"""Predictions and the fits of a calibration as tables, and in sentences."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from app.prediction import limits
from app.prediction.calibration import Calibration, Fit
from app.prediction.forecast import Forecast
from app.report.table import COUNT, EXACT, PERCENT, SECONDS, TEXT, Column, Table, digits

PHASES = ("computing", "wait", "sync", "optimiser")
OF_SIZE = {"workers", "world_size", "compose_world_size"}  # settings that say how many ranks there are


def fits(model: Calibration) -> Table:
    """Of a calibration's own runs, measured and simulated."""
    columns = [
        Column[Fit]("run", "run", TEXT, lambda fit: fit.run),
        *(
            Column[Fit](f"{phase}, {which}", f"{phase}_{which}", SECONDS, _phase(which, phase))
            for phase in ("step", "sync")
            for which in ("measured", "simulated")
        ),
        Column[Fit]("error of the step", "error", PERCENT, lambda fit: fit.error),
    ]
    return Table.of("fits", "The calibration's own runs", columns, model.fits)


def _phase(which: str, phase: str) -> Callable[[Fit], float]:
    return lambda fit: float(getattr(fit, which)[phase])


def _mean(phase: str, each: Forecast) -> float:
    return each.simulated.mean(phase)


def predicted(found: Sequence[Forecast]) -> Table:
    """A row for each cell."""
    columns = [
        Column[Forecast]("cell", "cell", TEXT, lambda each: each.name),
        Column[Forecast]("ranks", "world_size", COUNT, lambda each: each.setup.ranks),
        Column[Forecast]("step", "seconds", SECONDS, lambda each: each.seconds),
        Column[Forecast]("80 % from", "seconds_low", SECONDS, lambda each: each.interval[0]),
        Column[Forecast]("to", "seconds_high", SECONDS, lambda each: each.interval[1]),
        *(Column[Forecast](phase, f"{phase}_seconds", SECONDS, partial(_mean, phase)) for phase in PHASES),
        Column[Forecast]("images/s", "images_per_second", EXACT, lambda each: float(digits(each.images_per_second))),
        Column[Forecast]("speedup", "speedup", EXACT, lambda each: float(digits(each.speedup))),
        Column[Forecast]("efficiency", "efficiency", PERCENT, lambda each: each.efficiency),
        Column[Forecast]("bound by", "bound", TEXT, lambda each: each.bound),
        Column[Forecast]("outside what was calibrated", "outside", TEXT, lambda each: "; ".join(each.outside) or None),
    ]
    note = (
        "Step: the mean over steps and ranks, with the interval in which four of five measured steps lie, if these are "
        "as well predicted as the calibration's own runs. Speedup: against one such rank with the same global batch."
    )
    return Table.of("predictions", "Predicted", columns, found, note)


def limits_of(found: Sequence[Forecast]) -> Iterator[str]:
    """Where more ranks stop paying, and compression begins to: a sentence for each line of cells."""
    lines: dict[str, Forecast] = {}
    for each in found:
        settings = each.setup.settings
        if each.setup.ranks > 1 and settings.sync_mode != "none":
            lines.setdefault(settings.model_dump_json(exclude=OF_SIZE), each)
    for each in lines.values():
        settings, ranks = each.setup.settings, limits.ranks_at_half(each)
        compressor = "" if settings.compression == "none" else f" with {settings.compression}"
        what = f"{settings.sync_mode}{compressor}, {settings.link_rate or 'unshaped'}"
        most = f"as far as was tried, {limits.MOST_RANKS:,} ranks or as many as have an image each"
        half = f"falls under a half at {ranks} ranks" if ranks else f"stays above a half {most}"
        yield f"{what}: efficiency {half}, if each rank has a host of its own."
        if compressor:
            rate = limits.break_even(each)
            pays = f"below {rate / 1e6:.0f} Mbit/s" if rate else "at all rates from 1 Mbit/s to 100 Gbit/s, or at none"
            yield f"{what}: faster than without compression {pays}, on {each.setup.ranks} ranks."
