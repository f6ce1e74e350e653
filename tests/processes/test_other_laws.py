"""The laws of modes that promise something else than the mean, as users' own modes are held to them."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from app.cluster.wire.communicator import Communicator
from app.settings.averaging import AveragingSettings
from app.sync.compressors.compressed import Compressed
from app.sync.compressors.contract import Aggregate
from app.sync.compressors.random_k import RandomK
from app.sync.compressors.sign import Sign
from app.sync.compressors.top_k import TopK
from app.sync.contract import Law
from app.sync.exchange import Exchange
from app.sync.modes.flat_all_reduce import FlatAllReduce
from app.sync.modes.gathered_all_reduce import GatheredAllReduce
from app.sync.modes.parameter_server import ParameterServer
from app.tools.conformance.cases import Case, Model, Parameter, values
from app.tools.conformance.laws import COMMON, LAWS, MORE_DRAWS, UNBIASED, Evidence, is_in_doubt
from app.tools.conformance.outcomes import TrialOutcome
from app.tools.conformance.trial import DRAWS
from tests.processes.conftest import GroupOf
from tests.processes.contract import broken_law
from tests.processes.test_broken_modes import lawful

MODEL = Model((Parameter((3, 5)), Parameter((4,), frozen=True), Parameter((7,))))
SMALL = Model((Parameter((2, 2)), Parameter((1,), frozen=True), Parameter((3,))))  # so that few draws show a bias


class Mode(Compressed):
    """A compressor with its exchange, as a mode."""

    inside: ClassVar[type[Exchange]]
    values: ClassVar[dict[str, object]]

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        own = AveragingSettings.model_validate(self.values)
        super().__init__(self.inside(communicator, own), communicator, own)


class RandomMode(Mode):
    law: ClassVar[Law] = "unbiased"
    inside = FlatAllReduce
    values: ClassVar[dict[str, object]] = {"compression": "random_k", "compression_ratio": 0.2}


class TopMode(Mode):
    law: ClassVar[Law] = "contraction"
    inside = GatheredAllReduce
    values: ClassVar[dict[str, object]] = {"compression": "top_k", "compression_ratio": 0.2}


class SignMode(Mode):
    law: ClassVar[Law] = "vote"
    inside = ParameterServer
    values: ClassVar[dict[str, object]] = {"compression": "sign"}


def drawn(elements: int, factor: float, chance: np.random.Generator, number: int, noise: float = 0.0) -> Evidence:
    """A mode that sends a single random element in each step, times a factor, and adds noise to it."""
    model = Model((Parameter((elements,)),))
    (given,) = values(model, 1, 0)
    draws = noise * chance.choice([-1.0, 1.0], (number, elements))
    places = chance.integers(elements, size=number)
    draws[np.arange(number), places] += factor * given[places]
    outcome = TrialOutcome([], [], 0.0, 0.0, 0.0, None, 0.0, "unbiased", many=[draws])
    return Evidence(Case(1, model), [1], [outcome], draws=number)


def test_unbiased_modes_keep_their_law_however_rare_their_values_are() -> None:
    chance = np.random.default_rng(0)
    for number, often in ((DRAWS, 60), (MORE_DRAWS, 4)):
        assert not any(UNBIASED.broken_by(drawn(40, 40, chance, number)) for _ in range(often))


@pytest.mark.parametrize(
    ("elements", "factor", "noise"),
    [(40, 0, 0), (40, 1, 0), (40, 20, 0), (3, 1, 0), (3, 2.4, 0), (1, 0.9, 0), (1, 1.1, 0), (3, 0, 0.5), (3, 3, 1e6)],
)
def test_a_biased_mode_is_caught_with_more_draws_if_not_at_once(elements: int, factor: float, noise: float) -> None:
    chance = np.random.default_rng(0)
    few, more = (drawn(elements, factor, chance, number, noise) for number in (DRAWS, MORE_DRAWS))
    assert UNBIASED.broken_by(few) or is_in_doubt(few)
    assert UNBIASED.broken_by(more)


class Unscaled(RandomMode):
    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._kind = UnscaledRandomK


class UnscaledRandomK(RandomK):
    def encode(self, values: torch.Tensor) -> torch.Tensor:
        return values[torch.from_numpy(self._draw()[0])]


class Forgetful(TopMode):
    values: ClassVar[dict[str, object]] = {**TopMode.values, "error_feedback": "off"}


class Doubled(TopMode):
    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._kind = SummedTopK


class SummedTopK(TopK):
    """A sum for a mean."""

    def aggregate(self, values: torch.Tensor, exchange: Exchange) -> Aggregate:
        mean, own = super().aggregate(values, exchange)
        return Aggregate(mean * self._communicator.world_size, own)


class FirstRankDecides(SignMode):
    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self._kind = FirstVote


class FirstVote(Sign):
    def _count(self, ballots: dict[int, torch.Tensor], length: int) -> torch.Tensor:  # type: ignore[override]
        return super()._count({0: ballots[0]}, length)


BROKEN: dict[type[Mode], tuple[str, str]] = {
    Unscaled: ("unbiased", "over 1000 draws"),
    Forgetful: ("kept", "expected"),
    Doubled: ("kept", "the sum of"),
    FirstRankDecides: ("vote", "expected"),
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda mode: mode.__name__)
def test_a_broken_one_is_told_which_law_it_breaks(group_of: GroupOf, broken: type[Mode]) -> None:
    law, words = BROKEN[broken]
    model = SMALL if law == "unbiased" else MODEL
    told = broken_law(group_of(3).run(lawful, broken, model), model)
    assert told is not None
    assert told.startswith(f"{law}: ")
    assert words in told


def test_every_law_of_these_classes_has_a_mode_that_breaks_it() -> None:
    """Those that hold for the exact class as well: test_broken_modes.py."""
    own = {law.name for name, laws in LAWS.items() if name != "exact" for law in laws}
    known = {law.name for law in (*LAWS["exact"], *COMMON)}
    assert own - known == {law for law, _ in BROKEN.values()}
