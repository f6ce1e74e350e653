"""Every measure by its name, and what columns, sentences and axes call it."""

import math
import re
from functools import partial
from typing import Any

from app.analysis import measures
from app.analysis.figures import Measure
from app.analysis.on_request import ON_REQUEST, WITH_A_NUMBER, mean_of_ranks
from app.analysis.table import Rows
from app.analysis.units import SECONDS

HEADINGS = {
    **{f"shares.{phase}": f"{phase}, share of the step" for phase in measures.PHASE_TIMES},
    "seconds.median": "step",
    "seconds.mean": "step (mean)",
    "images_per_second": "images/s",
    "node_user_percent": "user, % of its CPUs",
    "node_system_percent": "system, % of its CPUs",
    "cpu_user_percent": "user, % of a CPU",
    "cpu_system_percent": "system, % of a CPU",
}
LABELS = {  # in sentences and on axes; others are called as their columns
    "seconds.median": "time per step",
    "images_per_second": "images per second",
    "forward_seconds.mean": "time of the forward pass",
    "bandwidth.sync_seconds": "time of synchronisation",
    "long_run_seconds": "time per step in the long run",
    "epoch_seconds": "time per epoch",
    "epoch_computing_seconds": "computing",
    "epoch_communication_seconds": "communication",
    "computing_seconds": "computing",
    "averaging_share_seconds": "share of an averaging",
    "accuracy": "test accuracy",
    "training_seconds": "time of the whole training",
    "bytes_sent_in_all": "bytes that all ranks send in a step",
    "bytes_sent_per_second": "payload of a rank per second",
}

PHASE_MEANS = ("seconds.mean", *(f"{phase}_seconds.mean" for phase in measures.STEP_TIMES))
GROUPS = {"phases": PHASE_MEANS}  # names that stand for several


def _known() -> dict[str, Measure[Any]]:
    single = [_of_several(each) for each in measures.OF_ONE_RANK if each.unit.is_number]
    found = {each.name: each for each in (*single, *measures.OF_RUN, *ON_REQUEST)}
    return found | {timing.name: timing.median for timing in measures.TIMES}


def _of_several(measure: Measure[Any]) -> Measure[float]:
    return Measure(measure.name, measure.unit, f"{measure.meaning}; the mean over ranks", mean_of_ranks(measure.of))


KNOWN = _known()
NAMES = [*KNOWN, *(f"{name}(NUMBER)" for name in WITH_A_NUMBER), *GROUPS]


def find(name: str) -> Measure[Any] | None:
    if asked := re.fullmatch(r"([a-z_]+)\(([0-9.eE+-]{1,20})\)", name):
        try:
            number = float(asked[2])
        except ValueError:
            return None
        steps = number.is_integer() and number > 1 if asked[1] == "mean_seconds_to" else True
        if asked[1] not in WITH_A_NUMBER or not 0 < number < math.inf or not steps:
            return None
        meaning, of = WITH_A_NUMBER[asked[1]]
        return Measure(name, SECONDS, meaning.format(f"{number:g}"), partial(of, number))
    return KNOWN.get(name)


def named(name: str) -> Measure[Any]:
    """The measure of this name; KeyError if there is none."""
    found = find(name)
    if found is None:
        raise KeyError(name)
    return found


def value(measure: Measure[Any], rows: Rows) -> Any:
    return rows.once(("value", measure.name), lambda: measure.of(rows))


def heading(measure: Measure[Any]) -> str:
    if measure.name in HEADINGS:
        return HEADINGS[measure.name]
    if measure.name.endswith(")"):
        return measure.meaning
    words = measure.name.removesuffix(".median").replace("_seconds", "").replace("_per_second", "/s")
    return words.replace("_", " ").replace(".", ", ")


def label(measure: Measure[Any]) -> str:
    return LABELS.get(measure.name) or heading(measure)


def column(measure: Measure[Any]) -> str:
    return slug(measure.name.removesuffix(".median"))


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")


def rank_rows(rank: int | None, every: Rows) -> Rows:
    """Those of a rank; None stands for all."""
    return every if rank is None else every.table.ranks[rank]
