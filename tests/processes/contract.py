"""The laws of app/tools/conformance, on the groups of the tests."""

from collections.abc import Sequence

from app.sync.contract import GradientSync
from app.tools.conformance.cases import Case, Model
from app.tools.conformance.laws import Evidence, first_broken
from app.tools.conformance.outcomes import TrialOutcome
from app.tools.conformance.trial import synchronise
from tests.processes.group import Group


def broken_law(
    outcomes: Sequence[TrialOutcome], model: Model, again: Sequence[TrialOutcome] | None = None
) -> str | None:
    """The first law that does not hold, and what was seen; every rank's seed is its number."""
    case = Case(len(outcomes), model)
    broken = first_broken(Evidence(case, range(len(outcomes)), outcomes, again))
    return f"{broken[0].name}: {broken[1]}" if broken else None


def check(outcomes: Sequence[TrialOutcome], model: Model) -> None:
    assert broken_law(outcomes, model) is None


def check_mode(group: Group, mode: type[GradientSync], model: Model) -> list[TrialOutcome]:
    """All laws, for the same steps twice."""
    outcomes, again = (group.run(synchronise, mode, model) for _ in range(2))
    assert broken_law(outcomes, model, again) is None
    return outcomes
