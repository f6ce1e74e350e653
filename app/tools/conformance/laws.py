"""The laws for modes, by the class of their guarantee. Each law has a name, a sentence and a check."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from app.sync.contract import Law as LawClass
from app.sync.contract import tolerance_for
from app.tools.conformance.bias import is_biased
from app.tools.conformance.cases import Case, Gradients, Model, values
from app.tools.conformance.outcomes import TrialOutcome
from app.tools.conformance.trial import DRAWS, FED, STEPS, steps_of_many

STANDARD_ERRORS = 5  # deviation of an average from which more draws are taken
MORE_DRAWS = 8 * DRAWS
MOST_MISSING = 0.5  # of the final sum: a bounded residual may always remain
BYTES_TOLERANCE = 1e-6  # for sums of fractions: the payload itself is exact
HEADERS = 1.1  # most bytes on the loopback device per byte of payload, in long messages
SMALL_MESSAGES = 1 << 20  # most bytes of all other messages between the ranks in a trial

Array = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Evidence:
    """The gradients that the ranks of a case were given, and the outcomes that they reported."""

    case: Case
    seeds: Sequence[int]  # by rank
    outcomes: Sequence[TrialOutcome]
    again: Sequence[TrialOutcome] | None = None  # a repetition of the same trial
    named: str | None = None  # the mode's `law` in earlier cases
    carried: int | None = (
        None  # bytes that the kernel counted meanwhile; None if others use the loopback device as well
    )
    draws: int = DRAWS  # of an unbiased mode

    def given(self, step: int) -> list[list[Array]]:
        """Each rank's gradients of a step before the averaging, by parameter."""
        return [values(self.case.model, seed, step) for seed in self.seeds]

    @property
    def mean(self) -> Array:
        """The mean of all ranks' gradients of the first step, as one vector."""
        return np.asarray(np.mean([_joined(own, self.case.model) for own in self.given(0)], axis=0))

    @property
    def largest(self) -> float:
        """The largest magnitude of any rank's gradients in the first step."""
        return max(float(np.abs(_joined(own, self.case.model)).max()) for own in self.given(0))

    @property
    def payload(self) -> float:
        """Bytes of one rank's gradients, the minimum that it must send for the exact mean; 0 for a single rank."""
        model = self.case.model
        width = np.dtype(model.precision).itemsize if model.wire_precision == "fp32" else 2
        elements = sum(int(np.prod(model.parameters[at].shape)) for at in model.learned)
        return elements * width if self.case.world_size > 1 else 0

    @property
    def tolerance(self) -> float:
        """The tolerance for the mean, both relative and absolute."""
        model = self.case.model
        double = model.precision is np.float64
        return tolerance_for(model.wire_precision, double=double, ranks=self.case.world_size)


def _joined(gradients: Sequence[Array], model: Model) -> Array:
    return np.concatenate([gradients[at].ravel() for at in model.learned]).astype(np.float64)


@dataclass(frozen=True)
class Law:
    """One guarantee of a mode, and the check for a violation of it."""

    name: str
    sentence: str
    broken_by: Callable[[Evidence], str | None]  # returns the observation in words, or None


def first_broken(evidence: Evidence) -> tuple[Law, str] | None:
    """The first law that the mode breaks, in the order of `LAWS`, with the observation; None if it breaks none."""
    classes = {outcome.law for outcome in (*evidence.outcomes, *(evidence.again or ()))}
    classes |= {evidence.named} if evidence.named else set()
    laws = LAWS.get(min(classes))  # type: ignore[call-overload]  # declared by untrusted code
    if len(classes) > 1 or laws is None:
        return ENDS, f"`law` is {', '.join(sorted(classes))}. Set it to one of {', '.join(LAWS)}, always the same"
    if silent := [rank for rank in range(evidence.case.world_size) if not _reports_all(evidence, rank)]:
        return ENDS, f"rank {silent[0]} did not report the requested steps"
    found = ((law, law.broken_by(evidence)) for law in laws)
    return next(((law, words) for law, words in found if words), None)


def _reports_all(evidence: Evidence, rank: int) -> bool:
    """Whether a rank reports as many steps as its class requires, because a submission can forge the outcome."""
    outcome, model = evidence.outcomes[rank], evidence.case.model
    steps = steps_of_many(outcome.law, model, evidence.draws)
    expected = [(steps, *model.parameters[at].shape) for at in model.learned]
    return not steps or [each.shape for each in outcome.many or []] == expected


def _form(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        for step, gradients in enumerate(outcome.gradients):
            for at, gradient in zip(outcome.places[step], gradients, strict=True):
                expected = evidence.case.model.parameters[at].shape, np.dtype(evidence.case.model.precision)
                if (gradient.shape, gradient.dtype) != expected:
                    return (
                        f"step {step}, rank {rank}, parameter {at}: the gradient changed from "
                        f"{expected[1]} {expected[0]} to {gradient.dtype} {gradient.shape}"
                    )
    return None


def _rest(evidence: Evidence) -> str | None:
    learned = evidence.case.model.learned
    for rank, outcome in enumerate(evidence.outcomes):
        if outcome.moved:
            return f"rank {rank}: the values of parameter {outcome.moved[0]} changed, not only its gradient"
        for step, places in enumerate(outcome.places):
            if lost := sorted(set(learned) - set(places)):
                return f"step {step}, rank {rank}: parameter {lost[0]} lost its gradient"
            if got := sorted(set(places) - set(learned)):
                return f"step {step}, rank {rank}: parameter {got[0]} had no gradient and now has one"
    return None


def _random(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        if outcome.touched:
            return (
                f"rank {rank}: the global generator of {', '.join(outcome.touched)} changed. "
                "Use a generator of your own, such as torch.Generator()"
            )
    return None


def _results(evidence: Evidence, step: int) -> Iterator[tuple[str, int, list[Array], Array]]:
    """Each rank's result for each parameter: where it is, the rank, all ranks' gradients before, and the result."""
    everyones = evidence.given(step)
    for at in evidence.case.model.learned:
        given: list[Array] = [own[at].astype(np.float64) for own in everyones]
        for rank, outcome in enumerate(evidence.outcomes):
            gradient: Array = outcome.gradients[step][outcome.places[step].index(at)]
            yield f"step {step}, rank {rank}, parameter {at}", rank, given, gradient


def _alone(evidence: Evidence) -> str | None:
    if evidence.case.world_size > 1:
        return None
    for step in range(STEPS):
        for where, _, (own,), gradient in _results(evidence, step):
            if not np.array_equal(gradient, own):
                return f"{where}: {_shown(own, gradient)}"
    sent = evidence.outcomes[0].sent
    return f"the only rank sent {sent:g} bytes" if sent else None


def _zero(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        for at, gradient in zip(evidence.case.model.learned, outcome.zeros or [], strict=False):
            if not np.array_equal(gradient, np.zeros_like(gradient)):
                worst = gradient.ravel()[int(np.argmax(gradient.ravel() != 0))]
                return f"rank {rank}, parameter {at}: zero on all ranks became {worst:g}"
    return None


def _mean_of_step(evidence: Evidence, step: int) -> str | None:
    for where, rank, given, gradient in _results(evidence, step):
        mean = np.mean(given, axis=0)
        if not np.allclose(gradient, mean, rtol=evidence.tolerance, atol=evidence.tolerance):
            return f"{where}: {_shown(mean, gradient)}{_guess(given, gradient, rank)}"
    return None


def _replicas(evidence: Evidence) -> str | None:
    first = evidence.outcomes[0]
    for step, gradients in enumerate(first.gradients):
        for rank, outcome in enumerate(evidence.outcomes):
            if difference := _difference(gradients, outcome.gradients[step]):
                return f"step {step}: rank 0 and rank {rank} differ in {difference}"
    return None


def _repeat(evidence: Evidence) -> str | None:
    for rank, (one, other) in enumerate(zip(evidence.outcomes, evidence.again or evidence.outcomes, strict=True)):
        for step, gradients in enumerate(one.gradients):
            if difference := _difference(gradients, other.gradients[step]):
                return f"step {step}, rank {rank}: a repetition of the same gradients differs in {difference}"
    return None


def _resume(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        if outcome.resumed is not None and (difference := _difference(outcome.gradients[-1], outcome.resumed)):
            return (
                f"step {STEPS - 1}, rank {rank}: a fresh mode with the state after step {STEPS - 2} differs in "
                f"{difference}. Check that state() returns all that the mode remembers and load_state() restores it"
            )
    return None


def _received(evidence: Evidence) -> str | None:
    sent, received = (sum(getattr(each, what) for each in evidence.outcomes) for what in ("sent", "received"))
    if abs(sent - received) > BYTES_TOLERANCE * max(1, sent):
        return f"all ranks together sent {sent:g} bytes in a step and received {received:g}"
    return None


def _bytes(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        if outcome.formula is None:
            return "the mode defines no `cost`. Define the bytes a rank sends, such as cost = STAR, ALL_REDUCE or RING"
        # A mode with one buffer for all gradients also sends the slots of missing ones, unlike other modes.
        unused = any(each.unused for each in evidence.case.model.parameters)
        if not unused and not abs(outcome.sent - outcome.formula) <= BYTES_TOLERANCE:
            return f"rank {rank} sent {outcome.sent:g} bytes in a step, but `cost` predicts {outcome.formula:g}"
        if outcome.sent and not outcome.seconds > 0:
            return f"rank {rank} sent {outcome.sent:g} bytes in 0 s"
        if outcome.law == "exact" and not unused and outcome.sent < evidence.payload - BYTES_TOLERANCE:
            return (
                f"rank {rank} sent {outcome.sent:g} bytes in a step, but its own gradients have "
                f"{evidence.payload:g}, so the others lack part of the mean"
            )
    if evidence.payload and not any(outcome.sent_in_all for outcome in evidence.outcomes):
        return "no rank sent anything through the communicator"
    return _uncounted(evidence)


def _uncounted(evidence: Evidence) -> str | None:
    """Compare the ranks' counts with the kernel's. Small messages cannot be distinguished from headers."""
    if evidence.carried is None or not evidence.again:
        return None
    counted = sum(outcome.sent_in_all for outcome in evidence.again)
    once = (evidence.case.world_size - 1) * evidence.payload  # attach may send the model
    if not counted <= evidence.carried <= HEADERS * counted + once + SMALL_MESSAGES:
        return (
            f"the ranks counted {counted:g} bytes in {STEPS} steps, but the kernel {evidence.carried:g}. "
            "Send everything through the communicator and do not change its counters"
        )
    return None


def _unbiased(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        if not outcome.many:
            continue
        mean, draws = evidence.mean, _drawn(outcome)
        most = evidence.case.model.elements * evidence.largest
        if not np.abs(draws).max() <= most * (1 + evidence.tolerance):
            return f"rank {rank}: a draw has the value {np.abs(draws).max():g}, above the limit of {most:g}"
        if np.any(is_biased(draws, mean, most, evidence.tolerance)):
            return f"rank {rank}, over {len(draws)} draws: {_shown(mean, draws.mean(axis=0))}"
    return None


def is_in_doubt(evidence: Evidence) -> bool:
    """Whether an average deviates enough to justify more draws.

    The deviation alone does not prove a bias, because the estimated standard error is too small if values are rare.
    """
    for draws in (_drawn(each) for each in evidence.outcomes if each.law == "unbiased" and each.many):
        errors = draws.std(axis=0) / math.sqrt(len(draws))
        if np.any(np.abs(draws.mean(axis=0) - evidence.mean) > STANDARD_ERRORS * errors + evidence.tolerance):
            return True
    return False


def _drawn(outcome: TrialOutcome) -> Array:
    """The draws as a matrix, with one row per draw and one column per element."""
    return np.concatenate([each.reshape(len(each), -1) for each in outcome.many or ()], axis=1).astype(np.float64)


def _kept(evidence: Evidence) -> str | None:
    for rank, outcome in enumerate(evidence.outcomes):
        for at, applied in zip(evidence.case.model.learned, outcome.many or [], strict=False):
            wanted = np.sum([np.mean([own[at] for own in evidence.given(step)], axis=0) for step in range(FED)], axis=0)
            total = np.asarray(np.sum(applied, axis=0, dtype=np.float64))
            if not np.linalg.norm(total - wanted) <= MOST_MISSING * np.linalg.norm(wanted):
                return (
                    f"rank {rank}, parameter {at}, after {FED} steps and then zero gradients: the sum of the outputs "
                    f"is not the sum of the means: {_shown(wanted, total)}. Check that each step adds the previous "
                    "step's residual"
                )
    return None


def _vote(evidence: Evidence) -> str | None:
    for step in range(STEPS):
        for where, _, given, gradient in _results(evidence, step):
            votes = np.sum(np.sign(given), axis=0)
            if np.any((votes != 0) & (np.sign(gradient) != np.sign(votes))):
                return f"{where}: {_shown(np.sign(votes), np.sign(gradient))}"
    return None


def _difference(one: Gradients, other: Gradients) -> str | None:
    if len(one) != len(other):
        return f"number of gradients: {len(one)} and {len(other)}"
    for at, (left, right) in enumerate(zip(one, other, strict=True)):
        if not np.array_equal(left, right, equal_nan=True):
            if left.shape != right.shape:
                return f"shape of gradient {at}: {left.shape} and {right.shape}"
            where = int(np.argmax(left.ravel() != right.ravel()))
            return f"value of gradient {at}: {left.ravel()[where]!r} and {right.ravel()[where]!r}"
    return None


def _shown(expected: Array, got: Array) -> str:
    """The expected and the actual value at the element where they differ most."""
    if expected.shape != got.shape:
        return f"expected the shape {expected.shape}, got {got.shape}"
    apart = np.abs(np.nan_to_num(got.astype(np.float64), nan=np.inf) - expected).ravel()
    where = int(np.argmax(apart))
    return f"expected {expected.ravel()[where]:.6g}, got {got.ravel()[where]:.6g}"


def _guess(given: Sequence[Array], got: Array, rank: int) -> str:
    """The likely mistake, if the result matches that of a common one."""
    ranks, total = len(given), np.sum(given, axis=0)
    suspects = [
        (given[rank], f"That is rank {rank}'s own gradient. Write the mean into .grad."),
        (total, "That is the sum. Divide it by the number of ranks."),
        (total / ranks**2, "That is the mean, divided by the number of ranks again."),
    ]
    for by, words in (
        (1, "the sum without rank"),
        (ranks, "the mean with zeros from rank"),
        (max(1, ranks - 1), "the mean without rank"),
    ):
        suspects += [((total - own) / by, f"That is {words} {left}.") for left, own in enumerate(given)]
    alike = (words for suspect, words in suspects if suspect.shape == got.shape and np.allclose(got, suspect, 1e-5))
    return next((f". {words}" for words in alike), "")


ENDS = Law("ends", "Every rank completes every step within its limits and without an error.", lambda _: None)
FORM = Law("form", "A gradient keeps its shape and dtype.", _form)
REST = Law("rest", "Parameter values, frozen parameters and missing gradients stay unchanged.", _rest)
RANDOM = Law("random", "The global random generators of torch, numpy and Python stay unchanged.", _random)
ALONE = Law("alone", "A single rank keeps its gradients bitwise and sends nothing.", _alone)
ZERO = Law("zero", "Zero gradients stay zero: no NaN, no other value.", _zero)
MEAN = Law("mean", "Every gradient becomes the mean over all ranks, within rounding.", partial(_mean_of_step, step=0))
LATER = Law("later", "The second step is as correct as the first.", partial(_mean_of_step, step=1))
REPLICAS = Law("replicas", "All ranks end with bitwise identical gradients.", _replicas)
REPEAT = Law("repeat", "The same gradients give the same bits every time.", _repeat)
RESUME = Law("resume", "A fresh mode that loads the state continues with the same bits.", _resume)
RECEIVED = Law("received", "All bytes sent are received.", _received)
BYTES = Law("bytes", "A rank sends the bytes that the mode's formula predicts.", _bytes)

UNBIASED = Law(
    "unbiased",
    "The mean over many draws is the mean over the ranks. Of n elements, none exceeds n times the largest gradient.",
    _unbiased,
)
KEPT = Law("kept", "The residual of a step is applied later: nothing is lost.", _kept)
VOTE = Law("vote", "Every element has the sign of the majority of ranks.", _vote)

# Laws that hold for every class. The laws of a class's own guarantee come before them, as for `exact`.
COMMON = (REPLICAS, REPEAT, RESUME, RECEIVED, BYTES)
LAWS: dict[LawClass, tuple[Law, ...]] = {
    "exact": (FORM, REST, RANDOM, ALONE, ZERO, MEAN, LATER, *COMMON),
    "unbiased": (FORM, REST, RANDOM, ZERO, UNBIASED, *COMMON),
    "contraction": (FORM, REST, RANDOM, ZERO, KEPT, *COMMON),
    "vote": (FORM, REST, RANDOM, ZERO, VOTE, *COMMON),
}
