"""Modes with the mistakes that people make. Each of them must fail the contract."""

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from app.costs.patterns import Cost
from app.gradient_sync.all_reduce import AllReduce
from app.gradient_sync.contract import GradientSync, gradients_of
from app.gradient_sync.gather_scatter import GatherScatter
from app.gradient_sync.ring_all_reduce import RingAllReduce
from tests.processes.contract import MODELS, check, synchronise
from tests.processes.group import run_group


class ForgetsToDivide(AllReduce):
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        for gradient in gradients_of(parameters):
            self._communicator.all_reduce(gradient)


class SkipsTheLastParameter(AllReduce):
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        super().synchronise(parameters[:-1])


class LeavesOneRankOut(GatherScatter):
    """The centre forgets the last rank's gradient, and divides by as many as it has."""

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        for gradient in gradients_of(parameters):
            everyones = self._communicator.gather(gradient)[:-1]
            mean = sum(everyones, torch.zeros_like(gradient)) / max(1, len(everyones))
            parts = [mean] * self._communicator.world_size if everyones else []
            self._communicator.scatter(gradient, parts)


class SendsWholeTensorsRound(RingAllReduce):
    """The ring as it is often published: the mean is right, and the bytes are N/2 times those of a ring."""

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        world_size, rank = self._communicator.world_size, self._communicator.rank
        for gradient in gradients_of(parameters):
            travelling: dict[int, torch.Tensor] = {rank: gradient.clone()}
            for step in range(world_size - 1):
                arriving = torch.empty_like(gradient)
                sending = self._communicator.start_send(travelling[(rank - step) % world_size], (rank + 1) % world_size)
                self._communicator.start_receive(arriving, (rank - 1) % world_size).wait()
                sending.wait()
                travelling[(rank - step - 1) % world_size] = arriving
            gradient.copy_(torch.stack([travelling[each] for each in range(world_size)]).mean(0))


class SumsInItsOwnOrder(SendsWholeTensorsRound):
    """Each rank starts the sum with its own gradient: replicas that agree within rounding, and drift apart."""

    cost = Cost(lambda size, rank, world_size: float((world_size - 1) * size.bytes))

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        world_size, rank = self._communicator.world_size, self._communicator.rank
        for gradient in gradients_of(parameters):
            passing = gradient.clone()
            for _ in range(world_size - 1):
                arriving = torch.empty_like(gradient)
                sending = self._communicator.start_send(passing, (rank + 1) % world_size)
                self._communicator.start_receive(arriving, (rank - 1) % world_size).wait()
                sending.wait()
                passing = arriving
                gradient += arriving
            gradient /= world_size


@pytest.mark.parametrize(
    "broken",
    [ForgetsToDivide, SkipsTheLastParameter, LeavesOneRankOut, SendsWholeTensorsRound, SumsInItsOwnOrder],
)
def test_a_broken_mode_fails_the_contract(broken: type[GradientSync]) -> None:
    model = MODELS["odd shapes"]
    outcomes = run_group(4, synchronise, broken, model)
    with pytest.raises(AssertionError):
        check(outcomes, model)
