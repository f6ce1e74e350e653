"""Modes with the mistakes that people make: each breaks one law, and the words say which and how."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest
import torch
from torch import nn

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.errors import LockstepError
from app.modes import ANY_WIRE_PRECISION, MODES
from app.settings.averaging import AveragingSettings, WirePrecision
from app.sync.contract import GradientSync, gradients_of, learned_of
from app.sync.modes import mode_class
from app.sync.modes.all_reduce import AllReduce
from app.sync.modes.gather_scatter import GatherScatter
from app.sync.modes.ring_all_reduce import RingAllReduce
from app.sync.schedules.costs import ALL_REDUCE, Cost
from app.tools.conformance.cases import Model, Parameter
from app.tools.conformance.laws import LAWS
from app.tools.conformance.outcomes import TrialOutcome
from app.tools.conformance.trial import synchronise
from app.training.compared_gradient import ComparedGradient
from app.training.mean_check import check_for, warn_if_not_checked
from tests.processes.conftest import GroupOf
from tests.processes.contract import broken_law
from tests.processes.group import Group


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


class DividesTwice(AllReduce):
    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        values /= self._communicator.world_size


class AveragesACopy(AllReduce):
    def average(self, values: torch.Tensor) -> None:
        super().average(values.clone())


class Reseeds(AllReduce):
    """So that all ranks draw the same, and whoever draws next draws what it has drawn before."""

    def average(self, values: torch.Tensor) -> None:
        torch.manual_seed(0)
        super().average(values)


class Normalises(AllReduce):
    """The norm is divided out for the way, and comes back afterwards; of zeros it is zero."""

    def average(self, values: torch.Tensor) -> None:
        norm = values.norm()
        everyones = torch.stack(self._communicator.all_gather(norm)).max()
        values /= everyones
        super().average(values)
        values *= everyones


class StaysFrozen(AllReduce):
    """Gives parameters a gradient that have none."""

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        super().synchronise(parameters)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


class FlattensThem(AllReduce):
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        super().synchronise(parameters)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.resize_(parameter.grad.numel())


class TouchesTheLoner(AllReduce):
    """Rounds what comes back, even where nothing went away."""

    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        values *= 1 + 1e-14


class WorksOnce(AllReduce):
    """Keeps the first means, and adds them to the second ones."""

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self.kept: dict[int, torch.Tensor] = {}

    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        if self._communicator.world_size > 1:
            values += self.kept.get(len(values), torch.zeros(1))
        self.kept[len(values)] = values.clone()


class NeverTheSame(AllReduce):
    """Depends on how often any of its kind has been used in this process."""

    used: ClassVar[list[int]] = []

    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        self.used.append(0)
        if self._communicator.world_size > 1:
            values *= 1 + 1e-15 * len(self.used)


class Forgets(AllReduce):
    """Which rank's values come first follows from a counter, which its state leaves out: other bits after a resume."""

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self.counter = 0

    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        if self._communicator.world_size > 1:
            values *= 1 + 1e-15 * self.counter
        self.counter += 1


class SendsToNobody(AllReduce):
    """Announces one more message than anybody receives."""

    cost = Cost(lambda size, rank, world_size: ALL_REDUCE.bytes_sent(size, rank, world_size) + 8 * (world_size > 1))

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        super().synchronise(parameters)
        if self._communicator.world_size > 1:
            self._communicator.traffic.begin(8, 0)


class StatesNoCost(GradientSync):
    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        for gradient in gradients_of(parameters):
            self._communicator.all_reduce(gradient)
            gradient /= self._communicator.world_size


BROKEN: dict[type[GradientSync], tuple[str, str]] = {
    ForgetsToDivide: ("mean", "the number of ranks"),
    DividesTwice: ("mean", "divided by the number of ranks again"),
    LeavesOneRankOut: ("mean", "That is the mean without rank 2."),
    SkipsTheLastParameter: ("mean", ".grad"),
    AveragesACopy: ("mean", ".grad"),
    SendsWholeTensorsRound: ("bytes", "`cost`"),
    SumsInItsOwnOrder: ("replicas", "rank 0 and rank 1 differ in value of gradient"),
    Reseeds: ("random", " torch "),
    Normalises: ("zero", "zero on all ranks became nan"),
    StaysFrozen: ("rest", "had no gradient"),
    FlattensThem: ("form", "float64 (3, 5)"),
    WorksOnce: ("later", "step 1, rank 0"),
    NeverTheSame: ("repeat", "value of gradient"),
    Forgets: ("resume", "state()"),
    SendsToNobody: ("received", "sent"),
    StatesNoCost: ("bytes", "STAR, ALL_REDUCE or RING"),
}
PARTS = (Parameter((3, 5)), Parameter((4,), frozen=True), Parameter((7, 1, 3)), Parameter(()))


def trial(group: Group, mode: type[GradientSync], model: Model) -> str | None:
    outcomes = group.run(lawful, mode, model)
    return broken_law(outcomes, model, group.run(lawful, mode, model))


def lawful(cluster: Cluster, mode: type[GradientSync], model: Model) -> TrialOutcome:
    return synchronise(cluster, mode, model, thorough=True)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda mode: mode.__name__)
def test_a_broken_mode_breaks_its_law_and_the_words_say_how(group_of: GroupOf, broken: type[GradientSync]) -> None:
    law, words = BROKEN[broken]
    told = trial(group_of(3), broken, Model(PARTS))
    assert told is not None
    assert told.startswith(f"{law}: ")
    assert words in told


def test_a_single_rank_keeps_its_gradients_to_the_bit(group_of: GroupOf) -> None:
    told = trial(group_of(1), TouchesTheLoner, Model(PARTS))
    assert told is not None
    assert told.startswith("alone: ")


def test_every_law_has_a_mode_that_breaks_it() -> None:
    """`ends`: test_conformance.py."""
    assert {law.name for law in LAWS["exact"]} == {law for law, _ in BROKEN.values()} | {"alone"}


class Counts(AllReduce):
    """As Forgets, but with its state."""

    law = "contraction"

    def __init__(self, communicator: Communicator, settings: AveragingSettings) -> None:
        super().__init__(communicator, settings)
        self.counter = torch.zeros(1, dtype=torch.float64)

    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        values *= 1 + 1e-3 * float(self.counter)
        self.counter += 1

    def state(self) -> dict[str, torch.Tensor]:
        return {"counter": self.counter}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        self.counter = state["counter"].clone()


def test_a_mode_of_another_class_may_miss_the_mean_and_must_keep_the_rest(group_of: GroupOf) -> None:
    assert trial(group_of(2), Counts, Model(PARTS)) is None


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_the_modes_keep_all_laws_even_from_a_state_and_on_zeros(group_of: GroupOf, mode: str, world_size: int) -> None:
    assert trial(group_of(world_size), mode_class(mode), Model(PARTS)) is None


def test_a_transposed_column_is_a_case_that_ddp_takes(group_of: GroupOf) -> None:
    assert trial(group_of(1), mode_class("ddp"), Model((Parameter((2, 1), transposed=True),))) is None


class WrongOnOneRank(AllReduce):
    def average(self, values: torch.Tensor) -> None:
        super().average(values)
        if self._communicator.rank == 1:
            values *= 1.001


class DoesNotShareIt(AllReduce):
    """Overlaps with backward, and averages nothing."""

    explicit: ClassVar[bool] = False

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None: ...


class DividesDuringBackward(ForgetsToDivide):
    """Correct: its hooks have divided each gradient before it is accumulated."""

    def attach(self, model: nn.Module) -> nn.Module:
        for parameter in learned_of(model.parameters()):
            parameter.register_hook(lambda gradient: gradient / self._communicator.world_size)  # type: ignore[no-untyped-call]
        return model


# The parameter that deviates most, where there is one, the ranks that are wrong, and the result in units of the mean.
WRONG: dict[type[GradientSync], tuple[str, list[int], float | None]] = {
    ForgetsToDivide: ("", [0, 1, 2], 3),
    DividesTwice: ("", [0, 1, 2], 1 / 3),
    SkipsTheLastParameter: ("1.bias", [0, 1, 2], None),
    AveragesACopy: ("", [0, 1, 2], None),
    LeavesOneRankOut: ("", [0, 1, 2], None),
    FlattensThem: ("0.weight", [0, 1, 2], None),
    WrongOnOneRank: ("", [1], 1.001),
    DoesNotShareIt: ("", [0, 1, 2], None),
}


def first_mean(
    cluster: Cluster, mode: type[GradientSync], wire_precision: WirePrecision, scale: float
) -> tuple[LockstepError | None, float]:
    """The error of the check of a mode as a user's own, and the bytes of the mode in that step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
    model[0].bias.requires_grad_(False)
    communicator = Communicator(cluster)
    averaging = AveragingSettings(wire_precision=wire_precision).model_copy(update={"sync_mode": "my_mode"})
    sync = mode(communicator, averaging)
    check = check_for(sync, averaging, cluster, model)
    replica = sync.attach(model)
    for step in range(2):  # as in a resumed run, the first backward is a warm-up step
        torch.manual_seed(10 * step + cluster.rank)
        model.zero_grad()
        communicator.begin_step(step)
        (replica(torch.randn(4, 7)).square().sum() * scale).backward()
    if sync.explicit:
        sync.synchronise(list(model.parameters()))
    try:
        check()
    except LockstepError as error:
        return error, communicator.traffic.sent
    for parameter in model.parameters():
        parameter.grad = None  # which no check would let pass
    check()
    assert mode is DividesDuringBackward or not any(each._backward_hooks for each in model.parameters())
    return None, communicator.traffic.sent


@pytest.mark.parametrize("wrong", WRONG, ids=lambda mode: mode.__name__)
def test_all_ranks_stop_at_the_first_wrong_mean(group_of: GroupOf, wrong: type[GradientSync]) -> None:
    parameter, ranks, ratio = WRONG[wrong]
    for rank, (error, _) in enumerate(group_of(3).run(first_mean, wrong, "fp32", 1.0)):
        assert error is not None
        assert (error.name, error.exit_code, error.deterministic) == ("wrong-mean", 1, True)
        example = rank if rank in ranks else ranks[0]
        assert f"rank {rank}: extensions/my_mode.py " in str(error)
        assert f" {', '.join(map(str, ranks))}. On rank {example}, " in str(error)
        assert parameter in str(error)
        assert "scripts/conformance my_mode" in str(error)
        if ratio:
            expected, got = map(float, re.findall(r"(?:expected|got) (-?[\d.e-]+\d)", str(error)))
            assert got / expected == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize("mode", [*(mode for mode in MODES if mode != "none"), "my_mode"])
def test_the_check_accepts_every_rounding_of_the_mean(group_of: GroupOf, mode: str) -> None:
    """Also of gradients that are hardly more than zero, and of modes that scale and send them during backward."""
    kind = mode_class(mode) if mode in MODES else DividesDuringBackward
    wires: tuple[WirePrecision, ...] = ("fp32", "bf16", "fp16") if mode in ANY_WIRE_PRECISION else ("fp32",)
    for wire, scale in [(wire, scale) for wire in wires for scale in (1.0, 1e-7, 1e-40)]:
        for error, sent in group_of(4).run(first_mean, kind, wire, scale):
            assert error is None, (wire, scale, error)
            assert sent > 0


def checked_and_warned(cluster: Cluster, ranks: int, changed: dict[str, object]) -> tuple[bool, bool]:
    """Whether a mode of a user's own with these settings is checked, and whether a warning says that it is not."""
    averaging = AveragingSettings().model_copy(update={"sync_mode": "my_mode", **changed})
    mode, model = Counts if changed.get("sync_mode") == "counts" else AllReduce, nn.Linear(2, 2)
    sync = mode(Communicator(cluster), averaging)
    check_for(sync, averaging, cluster, model)
    return bool(model.weight._backward_hooks), warn_if_not_checked(sync, averaging, ranks) is not None


@pytest.mark.parametrize(
    ("changed", "ranks", "found"),
    [
        ({}, 2, (True, False)),
        ({"sync_every": 8}, 2, (False, True)),
        ({"compression": "power_sgd"}, 2, (False, True)),
        ({"sync_mode": "counts"}, 2, (False, True)),  # a contraction
        ({"sync_mode": "all_reduce"}, 2, (False, False)),  # built in
        ({"sync_every": 8}, 1, (False, False)),
    ],
)
def test_a_mean_is_checked_or_a_warning_names_the_mode(
    group_of: GroupOf, changed: dict[str, object], ranks: int, found: tuple[bool, bool]
) -> None:
    assert group_of(ranks).run(checked_and_warned, ranks, changed) == [found] * ranks


def test_each_common_mistake_has_its_own_diagnosis() -> None:
    mean, local, ranks = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 5.0]), 4
    results = [local, local / ranks, mean * ranks, mean / ranks]
    found = [ComparedGradient("weight", got, local, mean, 1e-5, ranks) for got in (*results, mean + 0.1, mean)]
    assert len({each.diagnosis() for each in found[:4]} - {""}) == 4
    assert [each.diagnosis() for each in found[4:]] == ["", ""]
    assert [each.is_wrong for each in found] == [True] * 5 + [False]
