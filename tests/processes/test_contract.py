"""The contract of every registered mode, on real Gloo groups of one to five processes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from app import gradient_sync
from app.communicator import Communicator
from app.gradient_sync import MODES, mode_class
from app.gradient_sync.all_reduce import AllReduce
from app.gradient_sync.contract import GradientSync
from tests.processes.group import run_group

SYNCHRONISING = [name for name in MODES if name != "none"]
WORLD_SIZES = range(1, 6)
SHAPES = ((3, 5), (1,), (7, 1, 3), (64, 33), ())

Gradients = list[npt.NDArray[np.float64]]
Outcome = tuple[Gradients, float, float]


class Weighted(nn.Module):
    """A model whose gradients are exactly the coefficients that it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros(shape, dtype=torch.float64) for shape in SHAPES)

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        return torch.stack([(part * each).sum() for part, each in zip(self.parts, coefficients, strict=True)]).sum()


def coefficients(rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


def synchronise(communicator: Communicator, rank: int, mode: type[GradientSync]) -> Outcome:
    """The gradients after synchronisation, the bytes counted, and the bytes of the formula."""
    model = Weighted()
    parameters = list(model.parameters())
    sync = mode(communicator)
    replica = sync.attach(model)
    communicator.begin_step(0)
    replica(*coefficients(rank)).backward()
    sync.synchronise(parameters)
    formula = sync.bytes_sent_per_step([parameter.nbytes for parameter in parameters], communicator.world_size)
    return [p.grad.numpy() for p in parameters if p.grad is not None], communicator.traffic.sent, formula


def check_mean(outcomes: Sequence[Outcome]) -> None:
    """Equal to the mean over the ranks, and bitwise the same on all."""
    world_size = len(outcomes)
    everyones = [coefficients(rank) for rank in range(world_size)]
    for index, gradient in enumerate(outcomes[0][0]):
        mean = np.mean([each[index].numpy() for each in everyones], axis=0)
        np.testing.assert_allclose(gradient, mean, rtol=1e-12, atol=1e-13)
        for gradients, _, _ in outcomes:
            assert np.array_equal(gradients[index], gradient)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("mode", SYNCHRONISING)
def test_gradients_become_the_mean_at_the_price_of_the_formula(mode: str, world_size: int) -> None:
    outcomes = run_group(world_size, synchronise, mode_class(mode))
    check_mean(outcomes)
    again = run_group(world_size, synchronise, mode_class(mode))
    for (first, sent, formula), (second, _, _) in zip(outcomes, again, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
        assert sent == pytest.approx(formula)


def test_none_sends_nothing_and_changes_nothing() -> None:
    for rank, (gradients, sent, formula) in enumerate(run_group(3, synchronise, mode_class("none"))):
        assert all(np.array_equal(one, other) for one, other in zip(gradients, coefficients(rank), strict=True))
        assert sent == formula == 0


class ForgetsToDivide(AllReduce):
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                self._communicator.all_reduce(parameter.grad)


class SkipsTheLastParameter(AllReduce):
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        super().synchronise(parameters[:-1])


@pytest.mark.parametrize("broken", [ForgetsToDivide, SkipsTheLastParameter])
def test_a_broken_mode_fails_this_suite(broken: type[GradientSync]) -> None:
    with pytest.raises(AssertionError):
        check_mean(run_group(3, synchronise, broken))


def test_the_file_of_a_mode_is_named_as_its_setting() -> None:
    for name in MODES:
        assert mode_class(name).__module__ == f"{gradient_sync.__name__}.{name}"
