"""What the CPUs gave to ranks in each phase, over their steps."""

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from app.records.lines import PhaseSeconds, Step
from app.records.summary import Processor

PHASES = [field.name for field in fields(PhaseSeconds)]
in_order = attrgetter(*PHASES)

Numbers = npt.NDArray[np.float64]


def of(steps: Sequence[Step]) -> Processor | None:
    """None where no step has such an account."""
    known = [step for step in steps if step.cpu_seconds is not None]
    if not known:
        return None
    used, others, quota = (
        _by_step([getattr(step, name) for step in known])
        for name in ("cpu_seconds", "no_core_seconds", "quota_seconds")
    )
    seconds = np.array([step.seconds for step in known])
    return Processor(
        cpu_seconds=_means(used),
        no_core_seconds=None if np.isnan(others).all() else _means(others),
        quota_seconds=None if np.isnan(quota).all() else _means(quota),
        no_core=_share(others, seconds),
        quota=_share(quota, seconds),
    )


def _by_step(accounts: Sequence[PhaseSeconds | None]) -> Numbers:
    """A row for each step, a column for each phase; no number where the step has none."""
    nothing = (None,) * len(PHASES)
    return np.array([nothing if account is None else in_order(account) for account in accounts], dtype=float)


def _means(by_step: Numbers) -> PhaseSeconds:
    """The mean of each phase."""
    columns = {phase: by_step[:, n] for n, phase in enumerate(PHASES)}
    return PhaseSeconds(
        **{phase: float(np.nanmean(column)) for phase, column in columns.items() if not np.isnan(column).all()}
    )


def _share(by_step: Numbers, seconds: Numbers) -> float | None:
    """Of the time of the steps that have the account."""
    known = ~np.isnan(by_step).all(1)
    taken = float(seconds[known].sum())
    return float(np.nansum(by_step[known])) / taken if taken else None
