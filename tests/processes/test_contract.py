"""The contract of every registered mode, on real Gloo groups of one to five processes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import all_reduce_share
from app.cluster.wire.communicator import Communicator
from app.modes import ANY_WIRE_PRECISION, MODES
from app.settings.averaging import AveragingSettings, WirePrecision
from app.settings.settings import Settings
from app.sync import from_settings, modes
from app.sync.contract import GradientSync, gradients_of
from app.sync.modes import mode_class
from app.sync.modes.ring_all_reduce import RingAllReduce
from app.sync.periodic import Periodic
from app.tools.conformance.cases import MODELS, Gradients, Model, Parameter, Weighted, coefficients
from app.tools.conformance.trial import STEPS, synchronise
from app.training.optimiser import LearningRateSchedule, Optimiser, cosine
from tests.processes.conftest import GroupOf
from tests.processes.contract import check, check_mode
from tests.processes.test_faults import AS_THE_RING

SYNCHRONISING = [name for name in MODES if name != "none"]
STAR = ["gather_scatter", "send_recv"]
RING = ["all_reduce", "flat_all_reduce", "ring_all_reduce", "ddp", "bucketed_all_reduce"]
WORLD_SIZES = range(1, 6)
MODELS_BY_RANKS = {
    1: ["odd shapes", "none with a gradient"],
    2: ["odd shapes", "many buckets"],
    3: [name for name in MODELS if name != "many pieces"],
    4: ["odd shapes", "not contiguous"],
    **{ranks: ["odd shapes", "fewer elements than ranks"] for ranks in (5, 6, 7, 8)},
}
# What those as the ring have of their own is their schedule, in which it matters how many ranks there are.
CASES = [
    (world_size, mode, name)
    for world_size, names in MODELS_BY_RANKS.items()
    for mode in SYNCHRONISING
    for name in names
    if mode in AS_THE_RING or world_size in WORLD_SIZES
]


@pytest.mark.parametrize(("world_size", "mode", "name"), [*CASES, (4, "ring_all_reduce", "many pieces")])
def test_gradients_become_the_mean_at_the_price_of_the_formula(
    group_of: GroupOf, mode: str, name: str, world_size: int
) -> None:
    check_mode(group_of(world_size), mode_class(mode), MODELS[name])


HALF = [
    ("odd shapes", "bf16", 1),
    ("many buckets", "bf16", 2),
    ("none with a gradient", "fp16", 2),
    ("odd shapes", "fp16", 3),
    ("fewer elements than ranks", "fp16", 5),
]


@pytest.mark.parametrize(("name", "wire_precision", "world_size"), HALF)
@pytest.mark.parametrize("mode", ANY_WIRE_PRECISION[1:])
def test_half_precision_on_the_wire_sends_half_the_bytes(
    group_of: GroupOf, mode: str, name: str, wire_precision: WirePrecision, world_size: int
) -> None:
    """The contract as ever, but for the tolerance; what a single rank does not send is not rounded."""
    whole = replace(MODELS[name], precision=np.float32)
    halves = check_mode(group_of(world_size), mode_class(mode), replace(whole, wire_precision=wire_precision))
    exact = group_of(world_size).run(synchronise, mode_class(mode), whole)
    for half, one in zip(halves, exact, strict=True):
        assert half.sent == one.sent / 2
        for rounded, gradients in zip(half.gradients, one.gradients, strict=True):
            same = all(np.array_equal(left, right) for left, right in zip(rounded, gradients, strict=True))
            assert same is (world_size == 1 or not gradients)


@pytest.mark.parametrize("mode", [mode for mode in SYNCHRONISING if mode != "ddp"])  # which refuses such a model
def test_a_parameter_without_a_gradient_holds_nobody_up(group_of: GroupOf, mode: str) -> None:
    """The model's output does not depend on the second one; as many buckets as parameters, where there are buckets."""
    parts = (Parameter((3, 5)), Parameter((20,), unused=True), Parameter((11,)))
    model = Model(parts, bucket_bytes=1)
    check(group_of(3).run(synchronise, mode_class(mode), model), model)


class AssignsContiguousGradients(GradientSync):
    """As a user may write it."""

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        for gradient in gradients_of(parameters):
            self._communicator.all_reduce(gradient)
            gradient /= self._communicator.world_size


RATE = 0.5
STRIDED = MODELS["not contiguous"]


def parameters_after_a_step(
    cluster: Cluster, values: dict[str, object], mode: type[GradientSync] | None = None
) -> Gradients:
    """From zeros, of a kernel in channels_last and a matrix that lies transposed in memory."""
    settings = Settings.of(precision="fp64", momentum=0, weight_decay=0, **values)
    communicator = Communicator(cluster)
    sync = mode(communicator, settings.averaging) if mode else from_settings(settings.averaging, communicator)
    model = Weighted(STRIDED)
    model.register_buffer("statistics", torch.zeros(2, 3, 5, 7))  # which ddp sends
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(model.parameters())
    assert not any(parameter.is_contiguous() for parameter in parameters)
    replica = sync.attach(model)
    replica(*coefficients(STRIDED, cluster.rank, 0)).backward()
    sync.synchronise(parameters)
    Optimiser(parameters, settings.training, LearningRateSchedule(RATE, 0, 1, cosine)).step(0)
    if isinstance(sync, Periodic):
        sync.move_parameters()
    return [parameter.detach().numpy().copy() for parameter in parameters]


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        *(({"sync_mode": mode}, None) for mode in SYNCHRONISING),
        ({"compression": "random_k", "compression_ratio": 1.0}, None),
        ({"sync_every": 1}, None),
        ({}, AssignsContiguousGradients),
    ],
    ids=str,
)
def test_whatever_its_layout_a_parameter_moves_against_the_mean_gradient(
    group_of: GroupOf, values: dict[str, object], mode: type[GradientSync] | None
) -> None:
    """PyTorch's fused SGD would pair elements by their place in memory, and not by their index."""
    everyones = [coefficients(STRIDED, rank, 0) for rank in range(3)]
    for moved in group_of(3).run(parameters_after_a_step, values, mode):
        for own, gradients in zip(moved, zip(*everyones, strict=True), strict=True):
            np.testing.assert_allclose(own, -RATE * torch.stack(gradients).mean(0).numpy(), rtol=1e-12)


class Conditional(nn.Module):
    """Its second parameter has a gradient only if it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = nn.Parameter(torch.zeros(9)), nn.Parameter(torch.zeros(5))

    def forward(self, values: torch.Tensor, weight: float | None) -> torch.Tensor:
        loss = (self.always * values[:9]).sum()
        return loss if weight is None else loss + weight * (self.sometimes * values[9:]).sum()


def second_step(
    cluster: Cluster, values: dict[str, object], weight: float | None
) -> tuple[npt.NDArray[np.float32], bool, float | None]:
    """In which the second parameter has this weight: the first one's gradient, whether the second one has any."""
    settings = AveragingSettings.model_validate({"bucket_bytes": 1, "log_every": 1, **values})
    communicator = Communicator(cluster)
    sync = from_settings(settings, communicator)
    model = Conditional()
    replica = sync.attach(model)
    for step in range(2):
        model.zero_grad()
        communicator.begin_step(step)
        random = torch.Generator().manual_seed(10 * step + cluster.rank)
        replica(torch.randn(14, generator=random), weight if step else 100.0).backward()
        sync.synchronise(list(model.parameters()))
    assert model.always.grad is not None
    return model.always.grad.numpy().copy(), model.sometimes.grad is not None, communicator.traffic.rounding_error


@pytest.mark.parametrize(
    "values",
    [
        {"compression": "top_k", "compression_ratio": 0.2},
        {"compression": "sign"},
        {"sync_mode": "bucketed_all_reduce", "wire_precision": "bf16"},
    ],
    ids=str,
)
def test_a_gradient_that_is_missing_counts_as_zeros_whatever_an_earlier_step_had(
    group_of: GroupOf, values: dict[str, object]
) -> None:
    missing, zero = (group_of(3).run(second_step, values, weight) for weight in (None, 0.0))
    for (one, has_any, error), (other, _, expected) in zip(missing, zero, strict=True):
        assert np.array_equal(one, other)
        assert error == expected
        assert not has_any


PARAMETER = st.builds(
    Parameter,
    shape=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    frozen=st.booleans(),
    transposed=st.booleans(),
)


@pytest.mark.parametrize("mode", SYNCHRONISING)
@settings(
    max_examples=settings().max_examples // 10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
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


@pytest.mark.parametrize("world_size", [1, 4])
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


@pytest.mark.parametrize("world_size", [2, 3, 5])
@pytest.mark.parametrize("name", ["not contiguous", "some frozen"])
def test_the_ring_in_many_pieces(group_of: GroupOf, name: str, world_size: int) -> None:
    check_mode(group_of(world_size), SmallPieces, MODELS[name])


class CountsAllReduces(Communicator):
    all_reduces = 0

    def start_all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        self.all_reduces += 1
        return super().start_all_reduce(tensor)


def count_buckets(cluster: Cluster, mode: str, model: Model) -> int:
    communicator = CountsAllReduces(cluster)
    replica = mode_class(mode)(communicator, AveragingSettings(bucket_bytes=model.bucket_bytes)).attach(Weighted(model))
    for step in range(STEPS):
        replica.zero_grad()
        communicator.all_reduces = 0
        replica(*coefficients(model, cluster.rank, step)).backward()
    return communicator.all_reduces


@pytest.mark.parametrize("mode", ["ddp", "bucketed_all_reduce"])
@pytest.mark.parametrize(("bucket_bytes", "buckets"), [(None, 1), (1, 3), (6000, 2)])
def test_the_size_of_buckets_is_the_settings(
    group_of: GroupOf, mode: str, bucket_bytes: int | None, buckets: int
) -> None:
    """Parameters of 3200, 2400 and 4000 bytes; a bucket is closed as soon as it has its size."""
    model = replace(MODELS["many buckets"], bucket_bytes=bucket_bytes)
    assert group_of(2).run(count_buckets, mode, model) == [buckets] * 2


def test_none_sends_nothing_and_changes_nothing(group_of: GroupOf) -> None:
    model = MODELS["odd shapes"]
    for rank, outcome in enumerate(group_of(3).run(synchronise, mode_class("none"), model)):
        for step, gradients in enumerate(outcome.gradients):
            own = coefficients(model, rank, step)
            assert all(np.array_equal(one, other) for one, other in zip(gradients, own, strict=True))
        assert outcome.sent == outcome.received == outcome.formula == outcome.seconds == 0


def test_the_file_of_a_mode_is_named_as_its_setting() -> None:
    for name in MODES:
        assert mode_class(name).__module__ == f"{modes.__name__}.{name}"


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_states_its_formula_its_bytes_its_messages_and_its_equal(mode: str) -> None:
    text = mode_class(mode).__doc__ or ""
    for word in ("Formula: ", "Bytes per ", "essage", "Equivalent to "):
        assert word in text
