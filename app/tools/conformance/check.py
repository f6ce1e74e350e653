"""Checks one mode on fixed cases and on random ones, and reduces a failing case to a small one."""

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from random import Random

import numpy as np

from app.errors import JoinError
from app.machine.say import Say, counted
from app.tools.conformance.cases import MODELS, Case, Model, Parameter
from app.tools.conformance.confinement import carried, end_all_others
from app.tools.conformance.forked import Load
from app.tools.conformance.laws import ENDS, LAWS, MORE_DRAWS, Evidence, Law, first_broken, is_in_doubt
from app.tools.conformance.ranks import EndedError, Ranks

TOTAL_SECONDS = 160.0
SHRINK_SECONDS = 15.0
SHRINK_RANDOM_SECONDS = 60.0  # for the reduction of a random case, which takes more steps
MOST_SECONDS = 175.0  # including the reduction
RANDOM_CASES = 60
LEAST_RANDOM_CASES = 20  # required for a verdict; the others are tried if time permits
WORLD_SIZES = (2, 1, 3, 4, 5)  # two ranks reveal most mistakes, and one rank a division by N - 1
LARGE_WORLD_SIZES = (6, 7, 8)
ODD = 0.25  # share of frozen parameters, of transposed and of unused ones in random cases
FORMING_ATTEMPTS = 3

TINY = Model((Parameter((3,)),))
UNUSED = Model((Parameter((3, 5)), Parameter((20,), unused=True), Parameter((11,))), bucket_bytes=1)


@dataclass(frozen=True)
class Submission:
    """A mode to check, and the function that loads it."""

    load: Load
    file: str  # path of its code, to find its line numbers in stack traces
    takes_unused: bool = True  # DistributedDataParallel refuses a model with a parameter that it does not use


@dataclass(frozen=True)
class Broken:
    """A case on which the mode breaks a law, and the observation."""

    case: Case
    law: Law
    seen: str


@dataclass(frozen=True)
class ConformanceVerdict:
    """The result of checking one mode."""

    broken: Broken | None
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
        self._cases = 0
        self._began = time.monotonic()
        self._hung = False
        self._class: str | None = None  # the mode's `law` in the first case

    def run(self, say: Say) -> ConformanceVerdict:
        """Try fixed cases, then random ones, until one breaks a law or TOTAL_SECONDS have passed."""
        fixed = self._fixed_cases()
        chance = Random(0)  # noqa: S311  # the same cases for all
        drawn = (random_case(chance, takes_unused=self._submission.takes_unused) for _ in range(RANDOM_CASES))
        try:
            for number, case in enumerate(chain(fixed, drawn)):
                if self._seconds() > TOTAL_SECONDS:
                    return self._verdict(None, _left_out(fixed[number:], number - len(fixed)))
                if number == len(fixed):
                    say(f"{number} cases pass. Trying random ones")
                if broken := self._try(case):
                    say(f"law '{broken.law.name}': broken on {case}")
                    limit = SHRINK_SECONDS if number < len(fixed) else SHRINK_RANDOM_SECONDS
                    return self._verdict(self._smaller(broken, limit))
            return self._verdict(None)
        finally:
            self._end_groups()

    def _fixed_cases(self) -> list[Case]:
        models = [TINY, *MODELS.values(), *([UNUSED] if self._submission.takes_unused else [])]
        large = MODELS["many pieces"]  # with five ranks it would fill the memory
        first = [
            Case(ranks, model) for model in models for ranks in WORLD_SIZES if model is not large or ranks in (2, 3)
        ]
        return first + [Case(ranks, MODELS["odd shapes"]) for ranks in LARGE_WORLD_SIZES]

    def _smaller(self, found: Broken, limit: float) -> Broken:
        """Simplify a case while it breaks the same law, but not after a hang, because every attempt would take long."""
        until = min(self._seconds() + limit, MOST_SECONDS)
        while not self._hung and self._seconds() < until:
            tried = (self._try(case) for case in _simpler(found.case) if self._seconds() < until)
            better = next((broken for broken in tried if broken and broken.law is found.law), None)
            if better is None or self._hung:
                break
            found = better
        return found

    def _try(self, case: Case) -> Broken | None:
        """The first law that the case breaks; None if it breaks none."""
        self._cases += 1
        broken = self._observe(case)
        if broken:
            self._end_groups()
        return broken and Broken(case, *broken)

    def _observe(self, case: Case) -> tuple[Law, str] | None:
        try:
            group = self._group(case.world_size)
            # Drawn after all ranks were forked, and for this case only, so that no rank inherits another's seed.
            seeds = [secrets.randbits(63) for _ in range(case.world_size)]
            outcomes = group.ask(case.model, seeds, thorough=True)
            before, again, after = carried(), group.ask(case.model, seeds, thorough=False), carried()
            passed = None if before is None or after is None else after - before
            self._class = self._class or outcomes[0].law
            evidence = Evidence(case, seeds, outcomes, again, self._class, passed)
            broken = first_broken(evidence)
            if not broken and is_in_doubt(evidence):
                more = group.ask(case.model, seeds, thorough=True, draws=MORE_DRAWS)
                broken = first_broken(replace(evidence, outcomes=more, draws=MORE_DRAWS))
            return broken
        except EndedError as error:
            self._hung = error.hung
            return ENDS, str(error)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            # A submission can forge its ranks' answers.
            return ENDS, "a rank sent the checker an invalid message"

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

    def _verdict(self, broken: Broken | None, left_out: str = "") -> ConformanceVerdict:
        laws = 1 + len(LAWS.get(self._class, ()))  # type: ignore[call-overload]  # named by the submission
        return ConformanceVerdict(broken, self._class or "", self._cases, laws, self._seconds(), left_out)


def _left_out(fixed: list[Case], random_cases: int) -> str:
    """The cases that are missing for a verdict, from the fixed ones left and the number of random ones tried."""
    if fixed:
        sizes = ", ".join(map(str, sorted({case.world_size for case in fixed})))
        return f"{counted(len(fixed), 'fixed case')}, on {sizes} ranks, and all {LEAST_RANDOM_CASES} random ones"
    missing = LEAST_RANDOM_CASES - random_cases
    return f"{missing} of {LEAST_RANDOM_CASES} random cases" if missing > 0 else ""


def random_case(chance: Random, *, takes_unused: bool) -> Case:
    """A small model with a gradient, on one to five ranks."""
    parameters = [
        Parameter(
            shape=tuple(chance.randint(1, 9) for _ in range(chance.randint(0, 4))),
            frozen=chance.random() < ODD,
            transposed=chance.random() < ODD,
            unused=takes_unused and chance.random() < ODD,
        )
        for _ in range(chance.randint(1, 6))
    ]
    if all(each.unused for each in parameters):  # a model whose output depends on no parameter has no backward pass
        parameters[0] = replace(parameters[0], unused=False)
    precision = np.float64 if chance.random() < 0.5 else np.float32
    return Case(chance.randint(1, 5), Model(tuple(parameters), precision))


def _simpler(case: Case) -> Iterator[Case]:
    """Cases that are one step simpler: fewer ranks, one parameter fewer, or a plainer or smaller parameter."""
    for ranks in range(1, case.world_size):
        yield replace(case, world_size=ranks)
    parameters = case.model.parameters
    fewer = [(*parameters[:at], *parameters[at + 1 :]) for at in range(len(parameters))]
    smaller = [
        (*parameters[:at], each, *parameters[at + 1 :])
        for at, parameter in enumerate(parameters)
        for each in _plainer(parameter)
    ]
    for left in fewer + smaller:
        if not all(each.unused for each in left):
            yield replace(case, model=replace(case.model, parameters=left))


def _plainer(parameter: Parameter) -> Iterator[Parameter]:
    shape = parameter.shape
    yield from [Parameter(())] if parameter != Parameter(()) else []
    plain = (replace(parameter, frozen=False), replace(parameter, transposed=False), replace(parameter, unused=False))
    yield from (each for each in plain if each != parameter)
    for place, width in enumerate(shape):
        for instead in ((), (1,)) if width > 1 else ((),):
            yield replace(parameter, shape=(*shape[:place], *instead, *shape[place + 1 :]))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
