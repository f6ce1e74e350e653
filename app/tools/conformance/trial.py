"""One rank's part in a trial: a few steps of a mode on known gradients."""

import random
from collections.abc import Callable

import numpy as np
import torch

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.contract import GradientSync, size_of
from app.tools.conformance.cases import Gradients, Model, Weighted, coefficients
from app.tools.conformance.outcomes import TrialOutcome

STEPS = 2  # more than one, so that a mode's state between steps is used
DRAWS = 1000  # of an unbiased mode
FED, DRAINED = 20, 200  # steps of a contraction: with gradients, then with zeros
MOST_ELEMENTS = {"unbiased": 40, "contraction": 2200}  # of the largest model that is tried for many steps

Note = Callable[[str], object]


def synchronise(
    cluster: Cluster,
    mode: type[GradientSync],
    model: Model,
    seed: int | None = None,
    *,
    thorough: bool = False,
    draws: int = DRAWS,
    note: Note = lambda _: None,
) -> TrialOutcome:
    """Run a few steps of a mode on one rank. A `thorough` trial adds zero gradients, resuming and many steps."""
    settings = AveragingSettings(bucket_bytes=model.bucket_bytes, wire_precision=model.wire_precision)
    communicator = Communicator(cluster)
    law = mode.law  # read once, because a class can return a different value each time
    before = _generators()
    trial = _Trial(mode, communicator, settings, model, cluster.rank if seed is None else seed, note)
    steps: list[Gradients] = []
    places: list[list[int]] = []
    sent_in_all = 0.0
    remembered: dict[str, torch.Tensor] = {}
    for step in range(STEPS):
        note(f"forward and backward of step {step}")
        steps.append(trial.step(step))
        places.append(trial.places())
        sent_in_all += communicator.traffic.sent
        if step == STEPS - 2 and thorough:
            note(f"state() after step {step}")
            remembered = {name: tensor.clone() for name, tensor in trial.sync.state().items()}
    traffic = communicator.traffic
    size = size_of(trial.parameters, model.wire_precision)
    formula = None
    if states_cost(mode):
        formula = trial.sync.cost_for(trial.parameters).bytes_sent(size, cluster.rank, cluster.world_size)
    touched = [name for name, state in _generators().items() if state != before[name]]
    return TrialOutcome(
        steps,
        places,
        traffic.sent,
        sent_in_all,
        traffic.received,
        formula,
        traffic.seconds,
        law,
        trial.moved(),
        touched,
        _resume(trial.again(), remembered) if thorough else None,
        trial.again().zeros() if thorough else None,
        trial.again().many(law, draws) if thorough else None,
    )


def steps_of_many(law: str, model: Model, draws: int) -> int:
    """The number of steps that the law of a class requires; 0 if the usual ones suffice, or for a large model."""
    if model.elements > MOST_ELEMENTS.get(law, 0):
        return 0
    return draws if law == "unbiased" else FED + DRAINED


def states_cost(mode: type[GradientSync]) -> bool:
    """Whether the mode, or a base class other than GradientSync, defines a cost."""
    own = mode.__mro__[: mode.__mro__.index(GradientSync)]
    return any({"cost", "cost_of", "cost_for"} & vars(each).keys() for each in own)


class _Trial:
    """A new mode with a new model, without the state of earlier ones."""

    def __init__(
        self,
        mode: type[GradientSync],
        communicator: Communicator,
        settings: AveragingSettings,
        model: Model,
        seed: int,
        note: Note,
    ) -> None:
        self._given = (mode, communicator, settings, model, seed, note)
        self._communicator, self._model, self._seed = communicator, model, seed
        self.note = note
        self._module = Weighted(model)
        self.parameters = list(self._module.parameters())
        note("__init__")
        self.sync = mode(communicator, settings)
        note("attach")
        self._replica = self.sync.attach(self._module)

    def again(self) -> "_Trial":
        return _Trial(*self._given)

    def step(self, step: int) -> Gradients:
        return self._step(step, coefficients(self._model, self._seed, step))

    def zeros(self) -> Gradients:
        self.note("zero gradients")
        return self._step(0, [torch.zeros_like(each) for each in coefficients(self._model, self._seed, 0)])

    def many(self, law: str, draws: int) -> Gradients | None:
        """The results of many steps, for laws that a single step cannot test. The first dimension is the step.

        `unbiased` has the same gradients in every step. `contraction` has different ones in each step and then zeros,
        so that the residuals have to be applied.
        """
        results = []
        for step in range(steps_of_many(law, self._model, draws)):
            zero = law == "contraction" and step >= FED
            given = coefficients(self._model, self._seed, step if law == "contraction" else 0)
            results.append(self._step(step, [torch.zeros_like(each) if zero else each for each in given]))
        return [np.stack(each) for each in zip(*results, strict=True)] if results else None

    def places(self) -> list[int]:
        return [at for at, parameter in enumerate(self.parameters) if parameter.grad is not None]

    def moved(self) -> list[int]:
        return [at for at, parameter in enumerate(self.parameters) if parameter.detach().count_nonzero()]

    def _step(self, step: int, given: list[torch.Tensor]) -> Gradients:
        self._module.zero_grad()
        self._communicator.begin_step(step)
        loss = self._replica(*given)
        if loss.requires_grad:
            loss.backward()
        self.note(f"synchronise of step {step}")
        self.sync.synchronise(self.parameters)
        return [parameter.grad.numpy().copy() for parameter in self.parameters if parameter.grad is not None]


def _resume(trial: _Trial, remembered: dict[str, torch.Tensor]) -> Gradients:
    """Take the last step as a resumed run does: after a warm-up step, if the mode requires one."""
    if trial.sync.settles:
        trial.step(STEPS - 2)
    trial.note("load_state")
    trial.sync.load_state(remembered)
    return trial.step(STEPS - 1)


def _generators() -> dict[str, bytes]:
    """The state of each global random generator, as bytes to compare."""
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": b"".join(each.tobytes() for each in map(np.asarray, np.random.get_state())),
        "random": np.asarray(random.getstate()[1]).tobytes(),
    }
