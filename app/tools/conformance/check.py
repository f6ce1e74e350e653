"""Checks one mode on fixed cases and on random ones from Hypothesis, and reduces a failing case to a small one."""

import secrets
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import HealthCheck, find
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning, NoSuchExample

from app.errors import JoinError
from app.tools.conformance.cases import MODELS, Case, Model, Parameter
from app.tools.conformance.confinement import carried, end_all_others
from app.tools.conformance.forked import Load
from app.tools.conformance.laws import ENDS, LAWS, MORE_DRAWS, Evidence, Law, first_broken, is_in_doubt
from app.tools.conformance.ranks import EndedError, Ranks

TOTAL_SECONDS = 160.0
SHRINK_SECONDS = 15.0
EXAMPLES = 60
LEAST_EXAMPLES = 20  # required for a verdict; the others are tried if time permits
WORLD_SIZES = (2, 1, 3, 4, 5)  # two ranks reveal most mistakes, and one rank a division by N - 1
LARGE_WORLD_SIZES = (6, 7, 8)
FORMING_ATTEMPTS = 3

TINY = Model((Parameter((3,)),))
UNUSED = Model((Parameter((3, 5)), Parameter((20,), unused=True), Parameter((11,))), bucket_bytes=1)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Submission:
    """A mode to check, and the function that loads it."""

    load: Load
    file: str  # path of its code, to find its line numbers in stack traces
    takes_unused: bool = True  # DistributedDataParallel refuses a model with a parameter that it does not use


@dataclass(frozen=True)
class ConformanceVerdict:
    """The result of checking one mode."""

    law: Law | None  # the first law that the mode breaks; None if it breaks none
    case: Case | None
    seen: str
    kind: str  # the mode's `law`, which selects the laws
    cases: int
    laws: int
    seconds: float
    left_out: str = ""  # cases untested for lack of time; if there are any, the mode does not conform


class Checker:
    """Tries cases on groups of ranks, which are reused until a case fails."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._groups: dict[int, Ranks] = {}
        self._known: dict[Case, tuple[Law, str] | None] = {}
        self._began = time.monotonic()
        self._hung = False
        self._class: str | None = None  # the mode's `law` in the first case

    def run(self, say: Say) -> ConformanceVerdict:
        """Try fixed cases, then random ones, until one breaks a law or TOTAL_SECONDS have passed."""
        chosen = self._chosen_cases()
        try:
            for number, case in enumerate(chosen):
                if self._seconds() > TOTAL_SECONDS:
                    left = sorted({each.world_size for each in chosen[number:]})
                    some = f"{len(chosen) - number} of {len(chosen)} fixed cases, on {', '.join(map(str, left))} ranks"
                    return self._verdict(None, f"{some}, and all {LEAST_EXAMPLES} random ones")
                if broken := self._try(case):
                    say(f"law '{broken[0].name}': broken on {case}")
                    return self._verdict(self._smaller((case, *broken)))
            say(f"{len(self._known)} cases pass. Trying random ones")
            found = self._any()
            missing = LEAST_EXAMPLES - (len(self._known) - len(chosen))
            return self._verdict(found, f"{missing} of {LEAST_EXAMPLES} random cases" if missing > 0 else "")
        finally:
            self._end_groups()

    def _chosen_cases(self) -> list[Case]:
        models = [TINY, *MODELS.values(), *([UNUSED] if self._submission.takes_unused else [])]
        large = MODELS["many pieces"]  # with five ranks it would fill the memory
        first = [
            Case(ranks, model) for model in models for ranks in WORLD_SIZES if model is not large or ranks in (2, 3)
        ]
        return first + [Case(ranks, MODELS["odd shapes"]) for ranks in LARGE_WORLD_SIZES]

    def _any(self) -> tuple[Case, Law, str] | None:
        """The smallest failing case that Hypothesis finds, or None."""
        return self._find(TOTAL_SECONDS, EXAMPLES)

    def _smaller(self, found: tuple[Case, Law, str]) -> tuple[Case, Law, str]:
        """Simplify a case while it breaks the same law, but not after a hang, because every attempt would take long."""
        until = self._seconds() + SHRINK_SECONDS
        while not self._hung and self._seconds() < until:
            simpler = ((case, self._try(case)) for case in _simpler(found[0]) if self._seconds() < until)
            better = next(((case, *broken) for case, broken in simpler if broken and broken[0] is found[1]), None)
            if better is None or self._hung:
                break
            found = better
        return found

    def _find(self, until: float, examples: int) -> tuple[Case, Law, str] | None:
        smallest: list[tuple[Case, Law, str]] = []  # each at most as large as the one before

        def is_broken(case: Case) -> bool:
            if case not in self._known and (self._seconds() > until or self._hung):
                return False
            broken = self._try(case)
            if broken is None or (smallest and broken[0] is not smallest[0][1]):
                return False
            if not smallest or _size(case) <= _size(smallest[-1][0]):
                smallest.append((case, *broken))
            return True

        settings = hypothesis_settings(
            max_examples=examples,
            database=None,
            derandomize=True,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        warnings.simplefilter("ignore", HypothesisWarning)  # about its own handling of random generators
        with suppress(NoSuchExample):
            find(self._strategy(), is_broken, settings=settings)
        return smallest[-1] if smallest else None

    def _strategy(self) -> st.SearchStrategy[Case]:
        parameter = st.builds(
            Parameter,
            shape=st.lists(st.integers(1, 9), max_size=4).map(tuple),
            frozen=st.booleans(),
            transposed=st.booleans(),
            unused=st.booleans() if self._submission.takes_unused else st.just(False),
        )
        model = st.builds(
            Model,
            parameters=st.lists(parameter, min_size=1, max_size=6).map(tuple),
            precision=st.sampled_from([np.float64, np.float32]),
        )
        return st.builds(Case, world_size=st.integers(1, 5), model=model.map(_with_a_use))

    def _try(self, case: Case) -> tuple[Law, str] | None:
        """The first law that the case breaks, with the observation; None if it breaks none. Results are cached."""
        if case not in self._known:
            try:
                group = self._group(case.world_size)
                # Drawn after all ranks were forked, and for this case only, so that no rank inherits another's seed.
                seeds = [secrets.randbits(63) for _ in range(case.world_size)]
                outcomes = group.ask(case.model, seeds, thorough=True)
                before, again, after = carried(), group.ask(case.model, seeds, thorough=False), carried()
                passed = None if before is None or after is None else after - before
                self._class = self._class or outcomes[0].law
                evidence = Evidence(case, seeds, outcomes, again, self._class, passed)
                self._known[case] = first_broken(evidence)
                if not self._known[case] and is_in_doubt(evidence):
                    more = group.ask(case.model, seeds, thorough=True, draws=MORE_DRAWS)
                    self._known[case] = first_broken(replace(evidence, outcomes=more, draws=MORE_DRAWS))
            except EndedError as error:
                self._hung = error.hung
                self._known[case] = (ENDS, str(error))
            except (ArithmeticError, LookupError, TypeError, ValueError):
                # A submission can forge its ranks' answers.
                self._known[case] = (ENDS, "a rank sent the checker an invalid message")
            if self._known[case]:
                self._end_groups()
        return self._known[case]

    def _group(self, world_size: int) -> Ranks:
        for _ in range(FORMING_ATTEMPTS):
            if world_size not in self._groups:
                with suppress(EndedError):
                    self._groups[world_size] = Ranks(
                        world_size, self._submission.load, self._submission.file, _free_port()
                    )
        if world_size not in self._groups:
            raise JoinError(
                f"{world_size} ranks did not form a group in {FORMING_ATTEMPTS} attempts. "
                "Repeat the check when the machine is less busy."
            )
        return self._groups[world_size]

    def _end_groups(self) -> None:
        """End all groups and any leftover processes. Their messages in flight would disturb the next case."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()
        end_all_others()

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _verdict(self, found: tuple[Case, Law, str] | None, left_out: str = "") -> ConformanceVerdict:
        case, law, seen = found or (None, None, "")
        laws = 1 + len(LAWS.get(self._class, ()))  # type: ignore[call-overload]  # named by the submission
        kind = self._class or ""
        return ConformanceVerdict(
            law, case, seen, kind, len(self._known), laws, self._seconds(), "" if law else left_out
        )


def _size(case: Case) -> tuple[int, ...]:
    """A sort key for cases: ranks, parameters, special properties, elements and dimensions, in this order."""
    shapes = [each.shape for each in case.model.parameters]
    odd = sum(each.frozen + each.transposed + each.unused for each in case.model.parameters)
    return case.world_size, len(shapes), odd, sum(int(np.prod(shape)) for shape in shapes), sum(map(len, shapes))


def _simpler(case: Case) -> Iterator[Case]:
    """Cases that are one step simpler: one parameter fewer, a plainer or smaller parameter, or fewer ranks."""
    model = case.model
    for at, parameter in enumerate(model.parameters):
        others = (*model.parameters[:at], *model.parameters[at + 1 :])
        if others and not all(each.unused for each in others):
            yield replace(case, model=replace(model, parameters=others))
        shape = parameter.shape
        shapes = [shape[:place] + shape[place + 1 :] for place in range(len(shape))]
        shapes += [(*shape[:place], 1, *shape[place + 1 :]) for place, width in enumerate(shape) if width > 1]
        plainer = [
            replace(parameter, frozen=False),
            replace(parameter, transposed=False),
            replace(parameter, unused=False),
        ]
        for each in [*plainer, *(replace(parameter, shape=smaller) for smaller in shapes)]:
            if each == parameter:
                continue
            yield replace(
                case, model=replace(model, parameters=(*model.parameters[:at], each, *model.parameters[at + 1 :]))
            )
    for ranks in range(1, case.world_size):
        yield replace(case, world_size=ranks)


def _with_a_use(model: Model) -> Model:
    """Let the output depend on a parameter, because a model without one has no backward pass."""
    if all(each.unused for each in model.parameters):
        return replace(model, parameters=tuple(replace(each, unused=False) for each in model.parameters))
    return model


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
