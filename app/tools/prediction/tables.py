"""Predictions and the fits of a calibration as tables, and in sentences."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean

from app.analysis.units import COUNT, EXACT, PERCENT, SECONDS, TEXT, digits
from app.machine.parallel import on_all_cores
from app.pages.table import Column, Table
from app.tools.prediction import limits
from app.tools.prediction.calibration import Calibration, Fit
from app.tools.prediction.drift import AROUND, MOST_APART
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.names import RANKS, in_words, telling
from app.tools.prediction.verification import MOST_MEDIAN_ERROR, MOST_P90_ERROR, Checked, PredictionScore

PHASES = ("computing", "wait", "sync", "optimiser")


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
        Column[Forecast]("extrapolation", "outside", TEXT, lambda each: "; ".join(each.outside) or None),
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
        if each.setup.ranks > 1 and settings.averaging.sync_mode != "none":
            lines.setdefault(json.dumps(settings.values(but={"world_size"})), each)
    others = [name for name in telling(found, RANKS) if name not in ("SYNC_MODE", "COMPRESSION", "LINK_RATE")]
    for sentences in on_all_cores(partial(_limits, others), list(lines.values())):
        yield from sentences


def _limits(others: Sequence[str], each: Forecast) -> list[str]:
    settings, last = each.setup.settings, limits.ranks_at_half(each)
    compressor = "" if settings.averaging.compression == "none" else f" with {settings.averaging.compression}"
    named = [
        f"{settings.averaging.sync_mode}{compressor}",
        settings.links.link_rate or "unshaped",
        in_words(each, others),
    ]
    what = ", ".join(name for name in named if name)
    most = f"stays above 50 % up to {last.ranks:,} ranks, the most simulated"
    half = most if last.pays else f"falls below 50 % at {last.ranks:,} ranks"
    found = [f"{what}: efficiency {half}, if each rank has its own host."]
    if compressor:
        rate = limits.break_even(each)
        pays = f"below {rate / 1e6:.0f} Mbit/s" if rate else "at every rate from 1 Mbit/s to 100 Gbit/s, or at none"
        found.append(f"{what}: faster than without compression {pays}, on {each.setup.ranks} ranks.")
    return found


def verified(checked: Sequence[Checked]) -> Table:
    """Predicted and measured, a row for each cell."""
    columns = [
        Column[Checked]("cell", "cell", TEXT, lambda each: each.forecast.name),
        Column[Checked]("ranks", "world_size", COUNT, lambda each: each.forecast.setup.ranks),
        Column[Checked]("step, predicted", "seconds_predicted", SECONDS, lambda each: each.forecast.seconds),
        Column[Checked]("80 % from", "seconds_low", SECONDS, lambda each: each.forecast.interval[0]),
        Column[Checked]("to", "seconds_high", SECONDS, lambda each: each.forecast.interval[1]),
        Column[Checked]("measured", "seconds_measured", SECONDS, lambda each: each.measured.seconds()),
        Column[Checked]("without drift", "seconds_corrected", SECONDS, lambda each: each.corrected),
        Column[Checked]("drift", "drift", PERCENT, lambda each: mean(each.measured.drifts) - 1),
        Column[Checked]("error", "error", PERCENT, lambda each: each.error),
        Column[Checked]("by its forward passes", "own_error", PERCENT, lambda each: each.own_error),
        Column[Checked]("raw error", "raw_error", PERCENT, lambda each: each.raw_error),
        Column[Checked]("noise of repeats", "noise", PERCENT, lambda each: each.measured.noise),
        *(
            Column[Checked](f"{phase}, {which}", f"{phase}_seconds_{which}", SECONDS, partial(value, phase))
            for phase in PHASES
            for which, value in (("predicted", _predicted), ("measured", _measured))
        ),
        Column[Checked]("hidden, predicted", "hidden_predicted", SECONDS, lambda each: each.forecast.hidden),
        Column[Checked]("hidden, measured", "hidden_measured", SECONDS, lambda each: each.measured.hidden),
    ]
    note = (
        "Means over steps and ranks. Drift: how much slower the anchors computed than in the calibration, by the "
        f"middle of up to {AROUND} before the run and {AROUND} after it. Without drift: what processors do is divided "
        "by that, what links do is not. Error: predicted by that. By its forward passes: the error if not the anchors "
        "but the CPU time of the run's own forward passes tells the drift."
    )
    return Table.of("verified", "Predicted and measured", columns, checked, note)


def _predicted(phase: str, each: Checked) -> float:
    return each.forecast.simulated.mean(phase)


def _measured(phase: str, each: Checked) -> float:
    return each.measured.seconds(phase)


def verdict(score: PredictionScore) -> Iterator[str]:
    """In sentences."""
    yield (
        f"{score.cells} cells: the error of predicted steps is {score.median_error:.1%} in the median and "
        f"{score.p90_error:.1%} at p90 after correction for machine drift, {score.median_raw_error:.1%} without it."
    )
    yield (
        f"With drift taken from each run's own forward passes: {score.median_own_error:.1%} in the median, "
        f"{score.p90_own_error:.1%} at p90. If that is much less, the machine's speed changed between consecutive "
        "runs, which reference runs cannot show."
    )
    if score.median_error_mostly_sync is not None:
        yield f"With over half of the step in synchronisation: {score.median_error_mostly_sync:.1%} in the median."
    if score.disturbed:
        yield (
            f"{score.disturbed} of {score.runs} runs count although their repetition was disturbed too: by their own "
            f"forward passes, the machine was over {MOST_APART - 1:.0%} slower or faster than in the reference runs."
        )
    yield f"The 80 % intervals cover {score.held:.0%} of the cells."
    if score.order_right is not None:
        yield (
            f"{score.pairs} pairs of cells differ only in synchronisation, and by more than the noise: "
            f"{score.order_right:.0%} of them are predicted in the right order."
        )
    if score.overlap_error is not None:
        yield (
            "With communication overlapped with backward: the median errors of the hidden and the exposed part are "
            f"at most {score.overlap_error:.1%} of a step."
        )
    if score.slow_wait_error is not None:
        yield f"Waiting for a rank slowed by SLOW_FACTOR: {score.slow_wait_error:.1%} error in the median."
    yield conclusion(score)


def conclusion(score: PredictionScore) -> str:
    """Whether predictions hold."""
    bounds = f"{MOST_MEDIAN_ERROR:.0%} in the median and {MOST_P90_ERROR:.0%} at the 90th percentile"
    return f"The predictions {'hold' if score.holds else 'do not hold'}. The error limits are {bounds}."
