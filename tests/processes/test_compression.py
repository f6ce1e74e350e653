"""The laws of the compressors, each with implementations that break it: the mistakes that others have shipped."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.modes import COMPRESSORS, EXCHANGES, FITS
from app.settings.averaging import AveragingSettings
from app.sync.compressors import compressor_class
from app.sync.compressors.bits import Bits, pack, unpack
from app.sync.compressors.compressed import Compressed
from app.sync.compressors.contract import Aggregate, Compressor
from app.sync.compressors.matrices import orthogonalise
from app.sync.compressors.power_sgd import PowerSgd
from app.sync.compressors.random_k import RandomK
from app.sync.compressors.sign import Sign
from app.sync.compressors.top_k import TopK
from app.sync.exchange import Exchange
from app.sync.modes.all_reduce import AllReduce
from app.tools.conformance.cases import Model, Parameter, Weighted, coefficients
from tests.processes.compression import (
    ELEMENTS,
    SHAPES,
    Outcome,
    Vector,
    Vectors,
    check_alike,
    check_nothing_is_lost,
    check_same,
    check_the_mean,
    check_unbiased,
    check_zero,
    drawn,
    steps,
)
from tests.processes.conftest import GroupOf

FP64 = {"precision": "fp64"}
SOME = {"compression_ratio": 0.1, "compression_rank": 2}
RANKS = [2, 3, 4]


def asked(compression: str, mode: str | None = None, **more: object) -> dict[str, Any]:
    """The settings of a compressor, without those of others."""
    own = {
        "top_k": ("compression_ratio", "error_feedback"),
        "random_k": ("compression_ratio",),
        "power_sgd": ("compression_rank", "error_feedback"),
    }.get(compression, ())
    values = {**SOME, **more}
    kept = {name: value for name, value in values.items() if name in own or name not in ("error_feedback", *SOME)}
    return {"compression": compression, **FP64, **({"sync_mode": mode} if mode else {}), **kept}


FITTING = [(name, mode) for name in COMPRESSORS for mode in FITS.get(name, EXCHANGES)]


@pytest.mark.parametrize("ranks", [1, *RANKS])
@pytest.mark.parametrize(("compression", "mode"), FITTING)
def test_all_ranks_take_the_same_for_the_bytes_of_the_formula(
    group_of: GroupOf, compression: str, mode: str, ranks: int
) -> None:
    outcomes = group_of(ranks).run(steps, asked(compression, mode), 3)
    check_alike(outcomes)
    if ranks == 1:
        check_the_mean(outcomes)


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("ranks", [5, 6, 7, 8])  # in the last place, so that it changes last
def test_on_more_ranks_as_well(group_of: GroupOf, compression: str, ranks: int) -> None:
    check_alike(group_of(ranks).run(steps, {**asked(compression), "precision": "fp32"}, 2))


def same(rank: int, step: int) -> Vector:
    return drawn(rank, 0)


def test_random_k_is_unbiased(group_of: GroupOf) -> None:
    check_unbiased(group_of(2).run(steps, asked("random_k"), 4000, same))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("compression", ["top_k", "power_sgd"])
def test_with_error_feedback_nothing_is_lost(group_of: GroupOf, compression: str, ranks: int) -> None:
    outcomes = group_of(ranks).run(steps, asked(compression), 50)
    check_nothing_is_lost(outcomes)
    without = group_of(ranks).run(steps, asked(compression, error_feedback="off"), 2)
    assert without[0].residual is None
    assert not np.allclose(without[0].taken[1], outcomes[0].taken[1])


@pytest.mark.parametrize("compression", ["top_k", "power_sgd"])
def test_a_contraction_is_nearer_than_nothing(group_of: GroupOf, compression: str) -> None:
    """On one vector for all ranks, so that what they take is what each has sent."""
    outcome, *_ = group_of(2).run(steps, asked(compression, error_feedback="off"), 20, alike)
    for given, taken in zip(outcome.given, outcome.taken, strict=True):
        assert np.linalg.norm(given - taken) < np.linalg.norm(given)


def alike(rank: int, step: int) -> Vector:
    return drawn(0, step)


@pytest.mark.parametrize("mode", ["gathered_all_reduce", "flat_all_reduce", "ring_all_reduce"])
def test_where_nothing_is_left_out_it_is_the_mean(group_of: GroupOf, mode: str) -> None:
    whole: dict[str, object] = {"compression_ratio": 1.0, "compression_rank": 12}
    for compression in ("top_k",) if mode == "gathered_all_reduce" else ("random_k", "power_sgd"):
        check_the_mean(group_of(3).run(steps, asked(compression, mode, **whole), 3))


def zero_at_first(rank: int, step: int) -> Vector:
    return drawn(rank, step) * (step >= 2)


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_a_zero_gradient_moves_nothing(group_of: GroupOf, compression: str) -> None:
    check_zero(group_of(3).run(steps, asked(compression), 4, zero_at_first), after=2)


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_killed_and_resumed_with_the_same_bits(group_of: GroupOf, compression: str) -> None:
    whole, resumed = (group_of(3).run(steps, asked(compression), 6, drawn, None, at) for at in (None, 3))
    check_same(whole, resumed)


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


def fixed(rank: int, step: int) -> Vector:
    """Matrices whose largest directions stand out, the same in each step."""
    random = np.random.default_rng(rank // 100)
    return np.concatenate([_slanted(shape, random) for shape in SHAPES])


def _slanted(shape: tuple[int, ...], random: np.random.Generator) -> Vector:
    values = (
        random.standard_normal((shape[0], int(np.prod(shape[1:])))) if len(shape) > 1 else random.standard_normal(shape)
    )
    if len(shape) > 1:
        left, sizes, right = np.linalg.svd(values, full_matrices=False)
        values = left * sizes * 0.5 ** np.arange(len(sizes)) @ right
    return values.reshape(-1)


def check_warm_start(outcomes: Sequence[Outcome]) -> None:
    """On the same matrices again and again, it comes to the best product that there is."""
    start = 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        if len(shape) > 1 and 2 * (shape[0] + size // shape[0]) < size:
            given, taken = (
                each[-1][start : start + size].reshape(shape[0], -1) for each in (outcomes[0].given, outcomes[0].taken)
            )
            least = np.linalg.norm(np.linalg.svd(given, compute_uv=False)[2:])
            assert np.linalg.norm(given - taken) <= 1.001 * least, "it does not come to the best product"
        start += size


def test_power_sgd_comes_to_the_best_product(group_of: GroupOf) -> None:
    check_warm_start(group_of(2).run(steps, asked("power_sgd", error_feedback="off"), 25, fixed))


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


def check_vote(outcomes: Sequence[Outcome]) -> None:
    """Each element has the sign that most ranks have, and the size of the mean of all ranks' sizes."""
    for step, taken in enumerate(outcomes[0].taken):
        given = np.stack([outcome.given[step] for outcome in outcomes])
        votes = np.sign(given).sum(axis=0)
        assert np.array_equal(np.sign(taken)[votes != 0], np.sign(votes)[votes != 0]), "the minority has won"
        np.testing.assert_allclose(np.abs(taken), np.abs(given).mean(), rtol=1e-6)


def check_ties(outcomes: Sequence[Outcome]) -> None:
    """As often for one side as for the other, within five standard errors."""
    signs = np.sign(np.stack(outcomes[0].taken))
    assert abs(signs.mean()) < 5 / np.sqrt(signs.size), "ties have a winner"


@pytest.mark.parametrize("ranks", [3, 4, 5])
def test_a_vote_is_won_by_most(group_of: GroupOf, ranks: int) -> None:
    check_vote(group_of(ranks).run(steps, asked("sign"), 5))


def opposed(rank: int, step: int) -> Vector:
    return np.full(ELEMENTS, 1.0 if rank else -1.0)


def some_zeros(rank: int, step: int) -> Vector:
    return np.where(np.arange(ELEMENTS) % 2, 0.0, 1.0)


def test_a_tie_is_decided_by_a_coin(group_of: GroupOf) -> None:
    outcomes = group_of(2).run(steps, asked("sign"), 200, opposed)
    check_ties(outcomes)
    check_alike(outcomes)
    zeros = group_of(3).run(steps, asked("sign"), 200, some_zeros)
    odd = np.sign(np.stack(zeros[0].taken))[:, 1::2]
    assert abs(odd.mean()) < 5 / np.sqrt(odd.size)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100])
def test_bits_are_packed_and_unpacked(count: int) -> None:
    bits = np.random.default_rng(count).integers(0, 2, count, dtype=np.bool_)
    message = pack(0.5, bits)
    assert len(message) == 4 + -(-count // 8)
    number, found = unpack(message, count)
    assert number == 0.5
    assert np.array_equal(found, bits)


# Mistakes.


class BytesForBits(Sign):
    """One-bit that is sent as bytes; the bits are still what the formula says."""

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        shared = super().aggregate(values, exchange)
        self._communicator.all_reduce((values > 0).to(torch.uint8))
        return shared


class TiesArePlus(Sign):
    def _decided(self, bits: Bits, undecided: Bits, which: int) -> Bits:
        bits[undecided] = True
        return bits


class MinorityWins(Sign):
    def _count(self, ballots: Mapping[int, torch.Tensor], length: int) -> torch.Tensor:
        return super()._count({0: ballots[0]}, length)


class ReseedsEverything(RandomK):
    def encode(self, values: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(self._communicator.step)
        return super().encode(values)


class ForgetsTheLengths(RandomK):
    """The mean is k/d of the mean."""

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        return values[torch.from_numpy(self._draw()[0])]


class DrawsForItself(RandomK):
    def decode(self, message: torch.Tensor) -> torch.Tensor:
        values = message.new_zeros(self._elements)
        values[torch.from_numpy(self._draw()[0]) - self._communicator.rank] = message
        return values


class SumsForMeans(TopK):
    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        mean, own = super().aggregate(values, exchange)
        return Aggregate(mean * self._communicator.world_size, own)


class RemembersNothing(Compressed):
    def average(self, values: torch.Tensor) -> None:
        self._residual.zero_()
        super().average(values)


class RemembersWhatItSent(Compressed):
    """The wrong sign."""

    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        self._residual.neg_()


class ForgetsOnResume(Compressed):
    def state(self) -> dict[str, torch.Tensor]:
        return {}


class StartsColdOnResume(PowerSgd):
    def state(self) -> dict[str, torch.Tensor]:
        return {"right": self._first}


class StartsCold(PowerSgd):
    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        self._right = self._first.clone()
        return super().aggregate(values, exchange)


class DividesByZero(PowerSgd):
    def _factors_of(self, values: torch.Tensor, average: Callable[[torch.Tensor], None]) -> tuple[torch.Tensor, ...]:
        uncompressed, left, right = super()._factors_of(values, average)
        return uncompressed, left / left.norm(), right


class StaysDead(PowerSgd):
    """After a zero gradient all its directions are zero."""

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        self._first.zero_()
        mean, own = super().aggregate(values, exchange)
        mean[self._matrices.uncompressed] = 0
        return Aggregate(mean, own)


BROKEN: list[tuple[type[Compressor], str, Callable[[Sequence[Outcome]], None], Vectors, int]] = [
    (BytesForBits, "bytes differ", check_alike, drawn, 2),
    (TiesArePlus, "ties have a winner", check_ties, opposed, 50),
    (MinorityWins, "the minority has won", check_vote, drawn, 2),
    (ReseedsEverything, "random state", check_alike, drawn, 2),
    (ForgetsTheLengths, "the mean of the draws", check_unbiased, same, 300),
    (DrawsForItself, "replicas differ", check_alike, drawn, 2),
    (SumsForMeans, "", check_nothing_is_lost, drawn, 5),
    (StartsCold, "the best product", check_warm_start, fixed, 25),
    (DividesByZero, "not a number", partial(check_zero, after=2), zero_at_first, 4),
    (StaysDead, "moves nothing", partial(check_zero, after=2), zero_at_first, 4),
]


@pytest.mark.parametrize(
    ("broken", "told", "law", "vectors", "count"), BROKEN, ids=[each[0].__name__ for each in BROKEN]
)
def test_a_broken_compressor_breaks_its_law(
    group_of: GroupOf,
    broken: type[Compressor],
    told: str,
    law: Callable[[Sequence[Outcome]], None],
    vectors: Vectors,
    count: int,
) -> None:
    (base,) = [name for name in COMPRESSORS if issubclass(broken, compressor_class(name))]
    feedback = {} if law is check_nothing_is_lost else {"error_feedback": "off"}
    outcomes = group_of(2 if law is check_ties else 3).run(steps, asked(base, **feedback), count, vectors, broken)
    with pytest.raises(AssertionError, match=told):
        law(outcomes)


@pytest.mark.parametrize("broken", [RemembersNothing, RemembersWhatItSent])
def test_a_broken_memory_loses_something(group_of: GroupOf, broken: type[Compressed]) -> None:
    outcomes = group_of(2).run(steps, asked("top_k"), 10, drawn, None, None, broken)
    with pytest.raises(AssertionError):
        check_nothing_is_lost(outcomes)


@pytest.mark.parametrize(
    ("compression", "kind", "around"),
    [("top_k", None, ForgetsOnResume), ("power_sgd", StartsColdOnResume, Compressed)],
)
def test_what_forgets_does_not_go_on_with_the_same_bits(
    group_of: GroupOf, compression: str, kind: type[Compressor] | None, around: type[Compressed]
) -> None:
    whole, resumed = (
        group_of(2).run(steps, asked(compression), 6, drawn, kind, resumed_at, around) for resumed_at in (None, 3)
    )
    with pytest.raises(AssertionError, match="the bits differ"):
        check_same(whole, resumed)


class SixteenBits(TopK):
    """65,536 and more begin at 0 again."""

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        message = super().encode(values)
        half = len(message) // 2
        message[half:] = message[half:].view(torch.int32).remainder(1 << 16).view(torch.uint8)
        return message


def sent_and_meant(cluster: Cluster, kind: type[TopK]) -> tuple[float, float]:
    """How far one rank's message is from 70,000 numbers, of which the last ones are large, and how far zero is."""
    settings = AveragingSettings(compression="top_k")
    compressor = kind(Communicator(cluster), settings, [torch.Size([70_000])], torch.float32)
    values = torch.arange(70_000, dtype=torch.float32)
    return float((values - compressor.decode(compressor.encode(values))).norm()), float(values.norm())


def test_indices_are_long_enough(group_of: GroupOf) -> None:
    ((off, size),) = group_of(1).run(sent_and_meant, TopK)
    assert off < size
    ((off, size),) = group_of(1).run(sent_and_meant, SixteenBits)
    assert off > size
