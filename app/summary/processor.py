"""What the CPUs gave to ranks in each phase, over their steps."""

from collections.abc import Sequence
from dataclasses import fields

from app.records.lines import PhaseSeconds, Step
from app.records.summary import Processor
from app.summary.averages import mean

PHASES = [field.name for field in fields(PhaseSeconds)]


def of(steps: Sequence[Step]) -> Processor | None:
    """None where no step has such an account."""
    known = [step for step in steps if step.cpu_seconds is not None]
    used = _means([step.cpu_seconds for step in known])
    if used is None:
        return None
    return Processor(
        cpu_seconds=used,
        no_core_seconds=_means([step.no_core_seconds for step in known]),
        quota_seconds=_means([step.quota_seconds for step in known]),
        no_core=_share([step.no_core_seconds for step in known], known),
        quota=_share([step.quota_seconds for step in known], known),
    )


def _means(accounts: Sequence[PhaseSeconds | None]) -> PhaseSeconds | None:
    """The mean of each phase."""
    measured = [account for account in accounts if account is not None]
    if not measured:
        return None
    means = {phase: mean(getattr(account, phase) for account in measured) for phase in PHASES}
    return PhaseSeconds(**{phase: value for phase, value in means.items() if value is not None})


def _share(accounts: Sequence[PhaseSeconds | None], steps: Sequence[Step]) -> float | None:
    """Of the time of the steps that have the account."""
    both = [(account.of(*PHASES), step.seconds) for account, step in zip(accounts, steps, strict=True) if account]
    taken = sum(seconds for _, seconds in both)
    return sum(lost for lost, _ in both) / taken if taken else None
