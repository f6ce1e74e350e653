"""What every compressor is held to: vectors on real ranks, step after step, and what came out of them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.settings.settings import Settings
from app.sync.compressors.compressed import RESIDUAL, Compressed
from app.sync.compressors.contract import Compressor
from app.sync.contract import size_of
from app.sync.exchange import Exchange
from app.sync.modes import mode_class

Vector = npt.NDArray[np.float64]
Vectors = Callable[[int, int], Vector]  # a rank's, in a step

Shapes = tuple[tuple[int, ...], ...]

SHAPES: Shapes = ((12, 7), (5,), (3, 2, 3, 3), ())
ELEMENTS = sum(int(np.prod(shape)) for shape in SHAPES)


def drawn(rank: int, step: int) -> Vector:
    return np.random.default_rng((rank, step)).standard_normal(ELEMENTS)


@dataclass(frozen=True)
class Outcome:
    """What one rank had."""

    given: list[Vector]
    taken: list[Vector]  # for the means, after each step
    residual: Vector | None
    sent: float  # counted, in the last step
    received: float
    formula: float
    random_untouched: bool


def steps(
    cluster: Cluster,
    values: Mapping[str, object],
    count: int,
    vectors: Vectors = drawn,
    kind: type[Compressor] | None = None,
    resumed_at: int | None = None,
    elsewhere: type[Compressed] = Compressed,
) -> Outcome:
    """So many steps with these settings; at a step, perhaps, with a new one that is given the old one's state."""
    settings = Settings.of(**values)
    communicator = Communicator(cluster)
    dtype = torch.float64 if settings.training.precision == "fp64" else torch.float32
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
    exchange = _make(settings.averaging, communicator, parameters, kind, elsewhere)
    before = _random_states()
    given, taken = [], []
    for step in range(count):
        communicator.begin_step(step)
        if step == resumed_at:
            state = {name: tensor.clone() for name, tensor in exchange.state().items()}
            exchange = _make(settings.averaging, communicator, parameters, kind, elsewhere)
            exchange.load_state(state)
        vector = torch.from_numpy(vectors(cluster.rank, step)).to(dtype)
        given.append(vector.double().numpy().copy())
        exchange.average(vector)
        taken.append(vector.double().numpy().copy())
    untouched = all(np.array_equal(one, other) for one, other in zip(before, _random_states(), strict=True))
    residual = exchange.state().get(RESIDUAL)
    formula = exchange.cost_for(parameters).bytes_sent(size_of(parameters), cluster.rank, cluster.world_size)
    traffic = communicator.traffic
    return Outcome(
        given,
        taken,
        None if residual is None else residual.double().numpy().copy(),
        traffic.sent,
        traffic.received,
        formula,
        untouched,
    )


def _make(
    settings: AveragingSettings,
    communicator: Communicator,
    parameters: Sequence[nn.Parameter],
    kind: type[Compressor] | None,
    around: type[Compressed],
) -> Exchange:
    mode = mode_class(settings.sync_mode)(communicator, settings)
    assert isinstance(mode, Exchange)
    exchange = around(mode, communicator, settings)
    if kind:
        exchange._kind = kind
        exchange._error_feedback = kind.law == "contraction" and settings.error_feedback == "on"
    exchange.expect(parameters)
    return exchange


def _random_states() -> list[npt.NDArray[np.float64]]:
    python = np.array(random.getstate()[1], np.float64)
    keys = np.asarray(cast("tuple[Any, ...]", np.random.get_state(legacy=True))[1], np.float64)
    return [torch.get_rng_state().numpy().astype(np.float64), keys, python]


def mean_of(outcomes: Sequence[Outcome], step: int) -> Vector:
    mean: Vector = np.mean([outcome.given[step] for outcome in outcomes], axis=0)
    return mean


# The laws.


def check_alike(outcomes: Sequence[Outcome]) -> None:
    """The same bits on all ranks, for the bytes of the formula, without a touch of the global random state."""
    for outcome in outcomes:
        for step, taken in enumerate(outcome.taken):
            assert np.array_equal(taken, outcomes[0].taken[step]), "replicas differ"
        assert outcome.sent == outcome.formula, "bytes differ from the formula"
        assert outcome.random_untouched, "the global random state has changed"
    assert sum(each.sent for each in outcomes) == sum(each.received for each in outcomes)


def check_unbiased(outcomes: Sequence[Outcome]) -> None:
    """Over many draws for the same vectors, the mean within five standard errors."""
    draws = np.stack(outcomes[0].taken)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    off = np.abs(draws.mean(axis=0) - mean_of(outcomes, 0))
    assert np.all(off <= 5 * error + 1e-12), "the mean of the draws is another one"


def check_nothing_is_lost(outcomes: Sequence[Outcome]) -> None:
    """What was applied, and the mean of what is left out, are together the sum of the means."""
    applied = np.sum(outcomes[0].taken, axis=0)
    left = np.mean([outcome.residual for outcome in outcomes if outcome.residual is not None], axis=0)
    wanted = np.sum([mean_of(outcomes, step) for step in range(len(outcomes[0].taken))], axis=0)
    np.testing.assert_allclose(applied + left, wanted, rtol=0, atol=1e-12)


def check_the_mean(outcomes: Sequence[Outcome]) -> None:
    """Where nothing is left out."""
    for step, taken in enumerate(outcomes[0].taken):
        np.testing.assert_allclose(taken, mean_of(outcomes, step), rtol=1e-12, atol=1e-12)


def check_zero(outcomes: Sequence[Outcome], after: int) -> None:
    """Zero gradients make zero steps, and gradients after them others again."""
    for step, taken in enumerate(outcomes[0].taken):
        assert np.all(np.isfinite(taken)), "not a number"
        assert np.any(taken) == (step >= after), "a zero gradient moves" if step < after else "a gradient moves nothing"


def check_same(one: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """To the bit."""
    for left, right in zip(one, other, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(left.taken, right.taken, strict=True)), "the bits differ"
