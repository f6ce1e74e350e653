"""Batch normalisation over uneven parts on many ranks is PyTorch's own over the whole batch in one process."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import all_reduce_share
from app.cluster.wire.communicator import Communicator
from app.errors import SettingError
from app.training.batch_norm import LocalBatchNorm2d, SynchronisedBatchNorm2d
from tests.processes.conftest import GroupOf

CHANNELS = 5
STEPS = 3
PARTS = [(4,), (3, 2), (4, 0, 1), (1, 1, 1, 1), (2, 0, 0, 3, 1)]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """What one rank had in the last step."""

    output: Array
    input_gradient: Array
    parameter_gradients: list[Array]
    buffers: list[Array]
    evaluated: Array
    sent: float


def batch(samples: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of which each channel has another mean and spread, and the gradient that comes back to them."""
    random = np.random.default_rng((samples, step))
    spread = np.arange(1.0, CHANNELS + 1).reshape(1, -1, 1, 1)
    values = random.standard_normal((samples, CHANNELS, 3, 2)) * spread + 10 * spread
    return torch.from_numpy(values), torch.from_numpy(random.standard_normal(values.shape))


def layer_of(kind: type[nn.BatchNorm2d], *arguments: object) -> nn.BatchNorm2d:
    layer = kind(CHANNELS, *arguments).double()  # type: ignore[arg-type]
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-1, 2, CHANNELS))
        layer.bias.copy_(torch.linspace(3, 0, CHANNELS))
    return layer


def use(layer: nn.BatchNorm2d, parts: tuple[int, ...], rank: int | None) -> Outcome:
    """A few steps on this rank's part, or on the whole batch."""
    own = slice(None) if rank is None else slice(sum(parts[:rank]), sum(parts[: rank + 1]))
    for step in range(STEPS):
        values, gradient = batch(sum(parts), step)
        values = values[own].clone().requires_grad_()
        layer.zero_grad()
        layer.train()
        output = layer(values)
        output.backward(gradient[own])
    layer.eval()
    evaluated = layer(values)
    assert values.grad is not None
    return Outcome(
        output.detach().numpy(),
        values.grad.numpy(),
        [each.grad.numpy() for each in layer.parameters() if each.grad is not None],
        [each.numpy() for each in layer.buffers()],
        evaluated.detach().numpy(),
        sent=0,
    )


def synchronised(cluster: Cluster, parts: tuple[int, ...]) -> Outcome:
    communicator = Communicator(cluster)
    outcome = use(layer_of(SynchronisedBatchNorm2d, communicator), parts, cluster.rank)
    return Outcome(**{**outcome.__dict__, "sent": communicator.traffic.sent / STEPS})


@pytest.mark.parametrize("parts", PARTS)
def test_it_is_one_process_with_the_whole_batch(group_of: GroupOf, parts: tuple[int, ...]) -> None:
    world_size = len(parts)
    outcomes = group_of(world_size).run(synchronised, parts)
    whole = use(layer_of(nn.BatchNorm2d), parts, None)

    def check(got: Array, expected: Array) -> None:
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)

    check(np.concatenate([outcome.output for outcome in outcomes]), whole.output)
    check(np.concatenate([outcome.evaluated for outcome in outcomes]), whole.evaluated)
    check(np.concatenate([outcome.input_gradient for outcome in outcomes]), whole.input_gradient)
    for index, expected in enumerate(whole.parameter_gradients):
        check(np.sum([outcome.parameter_gradients[index] for outcome in outcomes], axis=0), expected)
    for outcome in outcomes:
        assert len(outcome.parameter_gradients) == 2  # also where there was no image
        for got, expected, first in zip(outcome.buffers, whole.buffers, outcomes[0].buffers, strict=True):
            check(got, expected)
            assert np.array_equal(got, first)
        statistics = (world_size - 1) * (2 * CHANNELS + 1) * 8
        assert outcome.sent == pytest.approx(statistics + all_reduce_share(2 * CHANNELS * 8, world_size))


def refusal(cluster: Cluster) -> SettingError | None:
    """Of a single value per channel, which rank 0 has; the same ranks can go on."""
    layer = SynchronisedBatchNorm2d(CHANNELS, Communicator(cluster))
    layer(torch.ones(1, CHANNELS, 1, 2)[: 1 - cluster.rank])
    try:
        layer(torch.ones(1, CHANNELS, 1, 1)[: 1 - cluster.rank])
    except SettingError as error:
        return error
    return None


def test_one_value_per_channel_is_refused_on_all_ranks_at_once(group_of: GroupOf) -> None:
    for error in group_of(2).run(refusal):
        assert error is not None
        assert error.deterministic
        assert "BATCH_NORM=synchronised" in str(error)
    layer = LocalBatchNorm2d(CHANNELS)
    layer(torch.ones(1, CHANNELS, 1, 2))
    with pytest.raises(SettingError, match="BATCH_NORM=local"):
        layer(torch.ones(1, CHANNELS, 1, 1))
    layer.eval()(torch.ones(1, CHANNELS, 1, 1))


def test_a_local_layer_without_images_keeps_its_statistics_and_has_gradients_of_zero() -> None:
    layer = layer_of(LocalBatchNorm2d)
    before = [each.clone() for each in layer.buffers()]
    empty = torch.zeros(0, CHANNELS, 3, 2, dtype=torch.float64)
    layer(empty).sum().backward()
    assert all(torch.equal(one, other) for one, other in zip(layer.buffers(), before, strict=True))
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_a_local_layer_with_images_is_pytorchs_own() -> None:
    ours, theirs = (use(layer_of(kind), (4,), None) for kind in (LocalBatchNorm2d, nn.BatchNorm2d))
    assert np.array_equal(ours.output, theirs.output)
    assert np.array_equal(ours.input_gradient, theirs.input_gradient)
