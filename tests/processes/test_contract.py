"""The contract of every registered mode, on real Gloo groups of one to five processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from app import gradient_sync
from app.cluster import Cluster
from app.communicator import Communicator, all_reduce_share
from app.gradient_sync import MODES, mode_class
from app.gradient_sync.all_reduce import AllReduce
from app.gradient_sync.contract import GradientSync, gradients_of
from app.gradient_sync.gather_scatter import GatherScatter
from app.gradient_sync.ring_all_reduce import RingAllReduce
from app.settings import Settings
from tests.processes.conftest import GroupOf
from tests.processes.group import Group, run_group

SYNCHRONISING = [name for name in MODES if name != "none"]
STAR = ["gather_scatter", "send_recv"]
RING = ["all_reduce", "ring_all_reduce", "ddp"]
WORLD_SIZES = range(1, 6)
STEPS = 2  # so that what a mode keeps from one step to the next is used

Gradients = list[npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model under test."""

    shape: tuple[int, ...]
    frozen: bool = False
    transposed: bool = False  # in memory, so that its gradient is not contiguous


@dataclass(frozen=True)
class Model:
    """What the modes are tried on."""

    parameters: tuple[Parameter, ...]
    precision: type[np.floating] = np.float64
    bucket_bytes: int | None = None


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
        for each in model.parameters:
            zeros = torch.zeros(each.shape[::-1] if each.transposed else each.shape, dtype=dtype)
            value = zeros.permute(tuple(reversed(range(zeros.dim())))) if each.transposed else zeros
            self.parts.append(nn.Parameter(value, requires_grad=not each.frozen))

    def forward(self, *coefficients: torch.Tensor) -> torch.Tensor:
        return torch.stack([(part * each).sum() for part, each in zip(self.parts, coefficients, strict=True)]).sum()


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
    sync = mode(communicator, Settings(bucket_bytes=model.bucket_bytes))
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
    formula = sync.bytes_sent_per_step(parameters, cluster.rank, cluster.world_size)
    traffic = communicator.traffic
    return Outcome(steps, traffic.sent, traffic.received, formula, traffic.seconds)


def check(outcomes: Sequence[Outcome], model: Model) -> None:
    """The contract: the mean over the ranks, bitwise the same on all, for the bytes of the formula."""
    tolerance = 1e-12 if model.precision is np.float64 else 1e-5
    learned = [index for index, each in enumerate(model.parameters) if not each.frozen]
    for step in range(STEPS):
        everyones = [coefficients(model, rank, step) for rank in range(len(outcomes))]
        for place, index in enumerate(learned):
            mean = np.mean([each[index].numpy().astype(np.float64) for each in everyones], axis=0)
            for outcome in outcomes:
                assert len(outcome.gradients[step]) == len(learned)
                np.testing.assert_allclose(outcome.gradients[step][place], mean, rtol=tolerance, atol=tolerance)
                assert np.array_equal(outcome.gradients[step][place], outcomes[0].gradients[step][place])
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


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("mode", SYNCHRONISING)
def test_gradients_become_the_mean_at_the_price_of_the_formula(
    group_of: GroupOf, mode: str, model: Model, world_size: int
) -> None:
    check_mode(group_of(world_size), mode_class(mode), model)


PARAMETER = st.builds(
    Parameter,
    shape=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    frozen=st.booleans(),
    transposed=st.booleans(),
)


@pytest.mark.parametrize("mode", SYNCHRONISING)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model=st.builds(
        Model,
        parameters=st.lists(PARAMETER, min_size=1, max_size=6).map(tuple),
        precision=st.sampled_from([np.float64, np.float32]),
        bucket_bytes=st.none() | st.integers(1, 512),
    ),
    world_size=st.sampled_from(WORLD_SIZES),
)
@example(model=Model((Parameter((1,)), Parameter((1, 1, 1, 1)))), world_size=5)
def test_whatever_the_model(group_of: GroupOf, mode: str, model: Model, world_size: int) -> None:
    check_mode(group_of(world_size), mode_class(mode), model)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_the_star_costs_its_centre_and_the_ring_nobody_more_than_another(group_of: GroupOf, world_size: int) -> None:
    """The formulas of the documents, written down once more, apart from the modes' own."""
    model = MODELS["odd shapes"]
    size = 8 * sum(int(np.prod(each.shape)) for each in model.parameters)
    for mode in STAR + RING:
        sent = [outcome.sent for outcome in group_of(world_size).run(synchronise, mode_class(mode), model)]
        assert sum(sent) == pytest.approx(2 * (world_size - 1) * size)
        if mode in STAR:
            assert sent[0] == (world_size - 1) * size
            assert sent[1:] == [size] * (world_size - 1)
        else:
            assert sent == pytest.approx([all_reduce_share(size, world_size)] * world_size, abs=2 * 8)


@pytest.mark.parametrize("world_size", [2, 4])
def test_both_stars_agree_to_the_bit(group_of: GroupOf, world_size: int) -> None:
    one, other = (
        group_of(world_size).run(synchronise, mode_class(mode), MODELS["odd shapes"])[0].gradients for mode in STAR
    )
    for left, right in zip(one, other, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


class SmallPieces(RingAllReduce):
    """More pieces than places for them to land in, on models that are quick to try."""

    piece_bytes = 24
    receives_ahead = 2


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("name", ["odd shapes", "fewer elements than ranks", "some frozen", "single precision"])
def test_the_ring_in_many_pieces(group_of: GroupOf, name: str, world_size: int) -> None:
    check_mode(group_of(world_size), SmallPieces, MODELS[name])


class CountsAllReduces(Communicator):
    all_reduces = 0

    def start_all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        self.all_reduces += 1
        return super().start_all_reduce(tensor)


def count_buckets(cluster: Cluster, model: Model) -> int:
    communicator = CountsAllReduces(cluster)
    replica = mode_class("ddp")(communicator, Settings(bucket_bytes=model.bucket_bytes)).attach(Weighted(model))
    for step in range(STEPS):
        communicator.all_reduces = 0
        replica(*coefficients(model, cluster.rank, step)).backward()
    return communicator.all_reduces


@pytest.mark.parametrize(("bucket_bytes", "buckets"), [(None, 1), (1, 3), (6000, 2)])
def test_the_size_of_ddps_buckets_is_the_settings(group_of: GroupOf, bucket_bytes: int | None, buckets: int) -> None:
    """Parameters of 3200, 2400 and 4000 bytes; a bucket is closed as soon as it has its size."""
    model = replace(MODELS["many buckets"], bucket_bytes=bucket_bytes)
    assert group_of(2).run(count_buckets, model) == [buckets] * 2


def test_none_sends_nothing_and_changes_nothing(group_of: GroupOf) -> None:
    model = MODELS["odd shapes"]
    for rank, outcome in enumerate(group_of(3).run(synchronise, mode_class("none"), model)):
        for step, gradients in enumerate(outcome.gradients):
            own = coefficients(model, rank, step)
            assert all(np.array_equal(one, other) for one, other in zip(gradients, own, strict=True))
        assert outcome.sent == outcome.received == outcome.formula == outcome.seconds == 0


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

    @staticmethod
    def bytes_sent_per_step(parameters: Sequence[nn.Parameter], rank: int, world_size: int) -> float:
        return float((world_size - 1) * sum(parameter.nbytes for parameter in parameters))

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
def test_a_broken_mode_fails_this_suite(broken: type[GradientSync]) -> None:
    model = MODELS["odd shapes"]
    outcomes = run_group(4, synchronise, broken, model)
    with pytest.raises(AssertionError):
        check(outcomes, model)


def test_the_file_of_a_mode_is_named_as_its_setting() -> None:
    for name in MODES:
        assert mode_class(name).__module__ == f"{gradient_sync.__name__}.{name}"


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_states_its_formula_its_bytes_its_messages_and_its_equal(mode: str) -> None:
    text = mode_class(mode).__doc__ or ""
    for word in ("Formula: ", "Bytes per ", "essage", "Equivalent to "):
        assert word in text
