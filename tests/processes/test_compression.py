"""The compressors keep the laws of their class, and compute what their formulas say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.modes import COMPRESSORS, EXCHANGES, FITS, PLAIN_EXCHANGE
from app.settings.averaging import AveragingSettings
from app.sync import from_settings
from app.sync.compressors import compressor_class
from app.sync.compressors.bits import pack, unpack
from app.sync.compressors.compressed import RESIDUAL, Compressed
from app.sync.compressors.matrices import orthogonalise
from app.sync.compressors.top_k import TopK
from app.sync.exchange import Exchange
from app.sync.modes import mode_class
from app.sync.modes.all_reduce import AllReduce
from app.tools.conformance.cases import Model, Parameter, Weighted, coefficients
from app.tools.conformance.outcomes import TrialOutcome
from app.tools.conformance.trial import synchronise
from tests.processes.conftest import GroupOf
from tests.processes.contract import broken_law

Values = dict[str, Any]
Vector = npt.NDArray[np.float64]
Vectors = Callable[[int, int], Vector]  # a rank's, in a step

SHAPES: tuple[tuple[int, ...], ...] = ((12, 7), (5,), (3, 2, 3, 3), ())
ELEMENTS = sum(int(np.prod(shape)) for shape in SHAPES)
ASKED: dict[str, Values] = {
    "top_k": {"compression_ratio": 0.2},
    "random_k": {"compression_ratio": 0.2},
    "power_sgd": {"compression_rank": 2},
    "sign": {},
}
SMALL = Model((Parameter((2, 2)), Parameter((1,), frozen=True), Parameter((3,))))  # so that few draws show a bias
LARGE = Model(tuple(map(Parameter, (*SHAPES, (40, 60)))))  # is tried for a few


@cache
def kind_of(compression: str, mode: str) -> type[Compressed]:
    """A compressor with its exchange, as a mode."""
    settings = AveragingSettings.model_validate({"compression": compression, "sync_mode": mode, **ASKED[compression]})

    class Mode(Compressed):
        law = compressor_class(compression).law

        def __init__(self, communicator: Communicator, _: AveragingSettings) -> None:
            exchange = mode_class(mode)(communicator, settings)
            assert isinstance(exchange, Exchange)
            super().__init__(exchange, communicator, settings)

    return Mode


def trial(cluster: Cluster, compression: str, mode: str, model: Model, thorough: bool) -> TrialOutcome:
    return synchronise(cluster, kind_of(compression, mode), model, thorough=thorough)


FITTING = [(name, mode) for name in COMPRESSORS for mode in FITS.get(name, EXCHANGES)]
FIRST = {name: FITS.get(name, (PLAIN_EXCHANGE,))[0] for name in COMPRESSORS}


@pytest.mark.parametrize(
    ("compression", "mode", "model", "ranks"),
    [
        *((*fitting, LARGE, 3) for fitting in FITTING),
        *((*fitting, SMALL, 3) for fitting in FIRST.items()),
        *((*fitting, LARGE, ranks) for ranks in (1, 2, 4, 5, 8) for fitting in FIRST.items()),
    ],
    ids=str,
)
def test_compressors_keep_the_laws_of_their_class(
    group_of: GroupOf, compression: str, mode: str, model: Model, ranks: int
) -> None:
    """The same bits everywhere, again and after a resume, for the bytes of the formula: and the law of the class."""
    outcomes, again = (group_of(ranks).run(trial, compression, mode, model, each) for each in (True, False))
    assert broken_law(outcomes, model, again) is None


@dataclass(frozen=True)
class Outcome:
    """What one rank had."""

    given: list[Vector]
    taken: list[Vector]  # for the means, after each step
    residual: Vector | None


def drawn(rank: int, step: int) -> Vector:
    return np.random.default_rng((rank, step)).standard_normal(ELEMENTS)


def alike(rank: int, step: int) -> Vector:
    return drawn(0, step)


def steps(cluster: Cluster, values: Values, count: int, vectors: Vectors = drawn) -> Outcome:
    communicator = Communicator(cluster)
    exchange = from_settings(AveragingSettings.model_validate(values), communicator)
    assert isinstance(exchange, Compressed)
    exchange.expect([nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES])
    given, taken = [], []
    for step in range(count):
        communicator.begin_step(step)
        vector = torch.from_numpy(vectors(cluster.rank, step))
        given.append(vector.numpy().copy())
        exchange.average(vector)
        taken.append(vector.numpy())
    residual = exchange.state().get(RESIDUAL)
    return Outcome(given, taken, None if residual is None else residual.numpy())


def mean_of(outcomes: Sequence[Outcome], step: int) -> Vector:
    mean: Vector = np.mean([outcome.given[step] for outcome in outcomes], axis=0)
    return mean


@pytest.mark.parametrize("compression", ["top_k", "power_sgd"])
def test_with_error_feedback_nothing_is_lost(group_of: GroupOf, compression: str) -> None:
    """What was applied, and the mean of what is left out, are together the sum of the means."""
    asked = {"compression": compression, **ASKED[compression]}
    outcomes = group_of(3).run(steps, asked, 20)
    left = np.mean([outcome.residual for outcome in outcomes if outcome.residual is not None], axis=0)
    wanted = np.sum([mean_of(outcomes, step) for step in range(20)], axis=0)
    np.testing.assert_allclose(np.sum(outcomes[0].taken, axis=0) + left, wanted, rtol=0, atol=1e-12)
    without = group_of(3).run(steps, {**asked, "error_feedback": "off"}, 2)
    assert without[0].residual is None
    assert not np.allclose(without[0].taken[1], outcomes[0].taken[1])


@pytest.mark.parametrize(
    ("compression", "mode", "whole"),
    [
        ("top_k", "gathered_all_reduce", {"compression_ratio": 1.0}),
        ("random_k", "ring_all_reduce", {"compression_ratio": 1.0}),
        ("power_sgd", "flat_all_reduce", {"compression_rank": 12}),
    ],
)
def test_where_nothing_is_left_out_it_is_the_mean(
    group_of: GroupOf, compression: str, mode: str, whole: Values
) -> None:
    outcomes = group_of(3).run(steps, {"compression": compression, "sync_mode": mode, **whole}, 3)
    for step, taken in enumerate(outcomes[0].taken):
        np.testing.assert_allclose(taken, mean_of(outcomes, step), rtol=1e-12, atol=1e-12)


def test_top_k_sends_the_largest(group_of: GroupOf) -> None:
    """On one vector for all ranks, so that what they take is what each has sent."""
    outcome, *_ = group_of(2).run(steps, {"compression": "top_k", **ASKED["top_k"], "error_feedback": "off"}, 3, alike)
    for given, taken in zip(outcome.given, outcome.taken, strict=True):
        largest = np.argsort(-np.abs(given))[: round(0.2 * ELEMENTS)]
        expected = np.zeros(ELEMENTS)
        expected[largest] = given[largest]
        np.testing.assert_allclose(taken, expected, rtol=1e-12)


def sent_and_meant(cluster: Cluster) -> tuple[float, float]:
    """The error of one rank's message of 70,000 increasing values, and the size of these values, as norms."""
    compressor = TopK(
        Communicator(cluster), AveragingSettings(compression="top_k"), [torch.Size([70_000])], torch.float32
    )
    values = torch.arange(70_000, dtype=torch.float32)
    return float((values - compressor.decode(compressor.encode(values))).norm()), float(values.norm())


def test_indices_beyond_65_536_are_sent(group_of: GroupOf) -> None:
    ((off, size),) = group_of(1).run(sent_and_meant)
    assert off < size


def zero_at_first(rank: int, step: int) -> Vector:
    return drawn(rank, step) * (step >= 2)


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_gradients_after_a_zero_one_move_something_again(group_of: GroupOf, compression: str) -> None:
    (outcome, *_) = group_of(3).run(steps, {"compression": compression, **ASKED[compression]}, 4, zero_at_first)
    matrix = int(np.prod(SHAPES[0]))  # power_sgd does not compress vectors
    assert [bool(np.any(taken[:matrix])) for taken in outcome.taken] == [False, False, True, True]
    assert np.all(np.isfinite(outcome.taken))


# PowerSGD.


def test_power_sgd_is_pytorchs_own(group_of: GroupOf) -> None:
    """From the state that PyTorch's hook has after its first compressed step, on three ranks, in fp32."""
    for theirs, ours in group_of(3).run(pytorchs_and_ours):
        assert len(theirs) == 5
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def pytorchs_and_ours(cluster: Cluster) -> tuple[list[Vector], list[Vector]]:
    # On a rank alone, because its import warns of a later Python.
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    parts = tuple(Parameter(shape) for shape in SHAPES if shape)
    model = Weighted(Model(parts, precision=np.float32))
    parameters = list(model.parameters())
    shapes = [tuple(parameter.shape) for parameter in parameters]
    order: list[tuple[int, ...]] = []

    def hook(state: powerSGD_hook.PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        order[:] = [tuple(gradient.shape) for gradient in bucket.gradients()]
        return powerSGD_hook.powerSGD_hook(state, bucket)

    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=1)
    replica = DistributedDataParallel(model)
    replica.register_comm_hook(state, hook)

    def in_our_order(vector: torch.Tensor, sizes: Mapping[tuple[int, ...], int]) -> torch.Tensor:
        split = dict(zip(order, torch.split(vector, [sizes[shape] for shape in order]), strict=True))
        return torch.cat([split[shape].reshape(-1) for shape in shapes])

    settings = AveragingSettings(compression="power_sgd", compression_rank=2, sync_mode="all_reduce")
    communicator = Communicator(cluster)
    ours = Compressed(AllReduce(communicator, settings), communicator, settings)
    ours.expect(parameters)
    found: tuple[list[Vector], list[Vector]] = ([], [])
    for step in range(8):
        own = coefficients(Model(parts, precision=np.float32), cluster.rank, step)
        model.zero_grad()
        replica(*own).backward()
        if step == 2:
            whole = {shape: int(np.prod(shape)) for shape in shapes}
            right = {shape: 2 * whole[shape] // shape[0] if len(shape) > 1 else 0 for shape in shapes}
            ours.load_state(
                {
                    "residual": in_our_order(state.error_dict[0], whole),
                    "right": in_our_order(state.q_memory_dict[0], right),
                }
            )
        if step > 2:
            vector = torch.cat([each.view(-1) for each in own])
            ours.average(vector)
            found[0].append(
                torch.cat([each.grad.view(-1) for each in parameters if each.grad is not None]).numpy().copy()
            )
            found[1].append(vector.numpy())
    return found


def test_columns_are_made_orthonormal_even_if_they_depend_on_each_other() -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    matrix[:, 2] = 3 * matrix[:, 0] - matrix[:, 1]
    matrix[:, 3] = matrix[:, 1] * (1 + 1e-9)
    filled = matrix.clone()
    orthogonalise(matrix)
    assert torch.isfinite(matrix).all()
    assert not matrix[:, 2].any()
    orthogonalise(filled, spare=torch.randn(30, 4, generator=generator, dtype=torch.float64))
    torch.testing.assert_close(filled.T @ filled, torch.eye(4, dtype=torch.float64))


# The vote.


@pytest.mark.parametrize("ranks", [3, 4, 5])
def test_a_vote_is_won_by_most_and_has_the_mean_of_all_sizes(group_of: GroupOf, ranks: int) -> None:
    outcomes = group_of(ranks).run(steps, {"compression": "sign"}, 5)
    for step, taken in enumerate(outcomes[0].taken):
        given = np.stack([outcome.given[step] for outcome in outcomes])
        votes = np.sign(given).sum(axis=0)
        assert np.array_equal(np.sign(taken)[votes != 0], np.sign(votes)[votes != 0])
        np.testing.assert_allclose(np.abs(taken), np.abs(given).mean(), rtol=1e-6)


def opposed(rank: int, step: int) -> Vector:
    return np.full(ELEMENTS, 1.0 if rank else -1.0)


def some_zeros(rank: int, step: int) -> Vector:
    return np.where(np.arange(ELEMENTS) % 2, 0.0, 1.0)


@pytest.mark.parametrize(("ranks", "vectors", "first"), [(2, opposed, 0), (3, some_zeros, 1)])
def test_a_tie_is_decided_by_a_coin(group_of: GroupOf, ranks: int, vectors: Vectors, first: int) -> None:
    """As often for one side as for the other, within five standard errors."""
    outcomes = group_of(ranks).run(steps, {"compression": "sign"}, 50, vectors)
    undecided = np.sign(np.stack(outcomes[0].taken))[:, first :: first + 1]
    assert abs(undecided.mean()) < 5 / np.sqrt(undecided.size)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100])
def test_bits_are_packed_and_unpacked(count: int) -> None:
    bits = np.random.default_rng(count).integers(0, 2, count, dtype=np.bool_)
    message = pack(0.5, bits)
    assert len(message) == 4 + -(-count // 8)
    number, found = unpack(message, count)
    assert number == 0.5
    assert np.array_equal(found, bits)
