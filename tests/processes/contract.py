"""What every mode is held to: models to try it on, a few steps on real ranks, and the check of what came out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from app.cluster.members import Cluster
from app.gradient_sync.contract import GradientSync, size_of
from app.settings.fields import Settings, WirePrecision
from app.wire.communicator import Communicator
from tests.processes.group import Group

STEPS = 2  # so that what a mode keeps from one step to the next is used

# What is sent in half precision is rounded up to N times, each time by half of what separates 1 from the next number.
TOLERANCES: dict[WirePrecision, float] = {"bf16": 4 * 2**-7, "fp16": 4 * 2**-10}

Gradients = list[npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model under test."""

    shape: tuple[int, ...]
    frozen: bool = False
    transposed: bool = False  # in memory, so that its gradient is not contiguous
    unused: bool = False  # by the model, so that it gets no gradient


@dataclass(frozen=True)
class Model:
    """What the modes are tried on."""

    parameters: tuple[Parameter, ...]
    precision: type[np.floating] = np.float64
    bucket_bytes: int | None = None
    wire_precision: WirePrecision = "fp32"


@dataclass(frozen=True)
class Outcome:
    """What one rank had in the end."""

    gradients: list[Gradients]  # of each step
    sent: float  # counted, in the last step
    received: float
    formula: float
    seconds: float


MODELS = {
    "odd shapes": Model((Parameter((3, 5)), Parameter((1,)), Parameter((7, 1, 3)), Parameter((64, 33)), Parameter(()))),
    "one element": Model((Parameter((1,)),)),
    "fewer elements than ranks": Model((Parameter((1,)), Parameter((2,)))),
    "not contiguous": Model((Parameter((4, 9), transposed=True), Parameter((2, 3, 5, 7), transposed=True))),
    "some frozen": Model((Parameter((8,), frozen=True), Parameter((5, 5)), Parameter((3,), frozen=True))),
    "none with a gradient": Model((Parameter((8,), frozen=True), Parameter((5, 5), frozen=True))),
    "many pieces": Model((Parameter((1_300_001,)), Parameter((3, 1000)))),
    "many buckets": Model((Parameter((400,)), Parameter((300,)), Parameter((500,))), bucket_bytes=2048),
    "single precision": Model((Parameter((100, 7)), Parameter((11,))), precision=np.float32),
}


class Weighted(nn.Module):
    """A model whose gradients are exactly the coefficients that it is called with."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        dtype = torch.from_numpy(np.zeros(0, model.precision)).dtype
        self.parts = nn.ParameterList()
        self._used = [not each.unused for each in model.parameters]
        for each in model.parameters:
            zeros = torch.zeros(each.shape[::-1] if each.transposed else each.shape, dtype=dtype)
            value = zeros.permute(tuple(reversed(range(zeros.dim())))) if each.transposed else zeros
            self.parts.append(nn.Parameter(value, requires_grad=not each.frozen))

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        products = [(part * each).sum() for part, each in zip(self.parts, coefficients, strict=True)]
        return torch.stack([product for product, used in zip(products, self._used, strict=True) if used]).sum()


def coefficients(model: Model, rank: int, step: int) -> list[torch.Tensor]:
    random = np.random.default_rng((rank, step))
    return [
        torch.from_numpy(np.asarray(random.standard_normal(each.shape), model.precision)) for each in model.parameters
    ]


def synchronise(cluster: Cluster, mode: type[GradientSync], model: Model) -> Outcome:
    """A few steps of a mode on one rank."""
    communicator = Communicator(cluster)
    module = Weighted(model)
    parameters = list(module.parameters())
    settings = Settings(bucket_bytes=model.bucket_bytes, wire_precision=model.wire_precision)
    sync = mode(communicator, settings)
    replica = sync.attach(module)
    steps: list[Gradients] = []
    for step in range(STEPS):
        module.zero_grad()
        communicator.begin_step(step)
        loss = replica(*coefficients(model, cluster.rank, step))
        if loss.requires_grad:
            loss.backward()
        sync.synchronise(parameters)
        steps.append([parameter.grad.numpy().copy() for parameter in parameters if parameter.grad is not None])
    size = size_of(parameters, model.wire_precision)
    formula = sync.cost_for(parameters).bytes_sent(size, cluster.rank, cluster.world_size)
    traffic = communicator.traffic
    return Outcome(steps, traffic.sent, traffic.received, formula, traffic.seconds)


def check_means(outcomes: Sequence[Outcome], model: Model) -> None:
    """The mean over the ranks, bitwise the same on all."""
    tolerance = TOLERANCES.get(model.wire_precision, 1e-12 if model.precision is np.float64 else 1e-5)
    learned = [index for index, each in enumerate(model.parameters) if not each.frozen and not each.unused]
    for step in range(STEPS):
        everyones = [coefficients(model, rank, step) for rank in range(len(outcomes))]
        for place, index in enumerate(learned):
            mean = np.mean([each[index].numpy().astype(np.float64) for each in everyones], axis=0)
            for outcome in outcomes:
                assert len(outcome.gradients[step]) == len(learned)
                np.testing.assert_allclose(outcome.gradients[step][place], mean, rtol=tolerance, atol=tolerance)
                assert np.array_equal(outcome.gradients[step][place], outcomes[0].gradients[step][place])


def check(outcomes: Sequence[Outcome], model: Model) -> None:
    """The contract: the means, for the bytes of the formula."""
    check_means(outcomes, model)
    for outcome in outcomes:
        assert outcome.sent == pytest.approx(outcome.formula, abs=1e-6)
        assert outcome.seconds > 0 or outcome.sent == 0
    assert sum(outcome.sent for outcome in outcomes) == pytest.approx(sum(outcome.received for outcome in outcomes))


def check_mode(group: Group, mode: type[GradientSync], model: Model) -> list[Outcome]:
    """The contract, and the same again to the bit."""
    outcomes, again = (group.run(synchronise, mode, model) for _ in range(2))
    check(outcomes, model)
    for first, second in zip(outcomes, again, strict=True):
        for one, other in zip(first.gradients, second.gradients, strict=True):
            assert all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))
    return outcomes
