"""Parameters averaged every H steps: the laws, on real ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from app.analysis import run_records
from app.analysis.run import summarise
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.modes import EXCHANGES
from app.settings.settings import Settings
from app.sync import from_settings
from app.sync.contract import size_of
from app.sync.periodic import Periodic
from tests.processes.conftest import GroupOf
from tests.processes.test_equivalence import LENET5, train

Vector = npt.NDArray[np.float64]
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01  # of the inner optimiser
STEPS = 12


class Net(nn.Module):
    """Two parameters, one of them as a transposed matrix in memory, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        values = torch.arange(12, dtype=torch.float64)
        self.matrix = nn.Parameter((values.view(3, 4) / 10).T.contiguous().T)
        self.bias = nn.Parameter(values[:5].clone())
        self.frozen = nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)


@dataclass(frozen=True)
class Outcome:
    """What one rank had."""

    parameters: list[Vector]  # after each step
    gradients: list[Vector]  # of each step, as they were given
    sent: list[float]  # in each step
    formula: float


def gradient_of(rank: int, step: int, shape: torch.Size) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng((rank, step, len(shape))).standard_normal(shape))


def steps(
    cluster: Cluster, values: dict[str, object], resumed_at: int | None = None, every_step: bool = False
) -> Outcome:
    """SGD on given gradients, with parameters averaged; or, with `every_step`, the gradients."""
    settings = Settings.of(precision="fp64", **values)
    communicator = Communicator(cluster)
    net = Net()
    learned = [net.matrix, net.bias]
    sgd = torch.optim.SGD(learned, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def make() -> Periodic:
        made = from_settings(settings.averaging, communicator)
        assert isinstance(made, Periodic)
        made.attach(net)
        return made

    sync = make()
    found = Outcome([], [], [], sync.cost_for(learned).bytes_sent(size_of(learned), cluster.rank, cluster.world_size))
    for step in range(STEPS):
        communicator.begin_step(step)
        if step == resumed_at:
            state = {name: tensor.clone() for name, tensor in sync.state().items()}
            sync = make()
            sync.load_state(state)
        for parameter in learned:
            parameter.grad = gradient_of(cluster.rank, step, parameter.shape)
            if every_step:
                communicator.all_reduce(parameter.grad)
                parameter.grad /= cluster.world_size
        found.gradients.append(as_vector([each.grad for each in learned if each.grad is not None]))
        sgd.step()
        if not every_step and sync.is_due(step, last=step + 1 == STEPS):
            sync.move_parameters()
        found.sent.append(communicator.traffic.sent)
        found.parameters.append(as_vector(learned))
    assert torch.equal(net.frozen, torch.ones(3, dtype=torch.float64))
    return found


def as_vector(tensors: Sequence[torch.Tensor]) -> Vector:
    vector: Vector = torch.cat([each.detach().reshape(-1) for each in tensors]).numpy().copy()
    return vector


def followed(outcomes: Sequence[Outcome], every: int, rate: float, momentum: float) -> list[Vector]:
    """The same in numpy, written down once more: the parameters after each average."""
    start = as_vector([Net().matrix, Net().bias])
    own, inner = [start.copy() for _ in outcomes], [np.zeros_like(start) for _ in outcomes]
    outer = np.zeros_like(start)
    found = []
    for step in range(STEPS):
        for rank, outcome in enumerate(outcomes):
            inner[rank] = MOMENTUM * inner[rank] + outcome.gradients[step] + DECAY * own[rank]
            own[rank] = own[rank] - RATE * inner[rank]
        if (step + 1) % every == 0 or step + 1 == STEPS:
            way = start - np.mean(own, axis=0)
            outer = momentum * outer + way
            start = start - rate * (way + momentum * outer)
            own = [start.copy() for _ in outcomes]
            found.append(start)
    return found


def check(outcomes: Sequence[Outcome], every: int, rate: float = 1.0, momentum: float = 0.0) -> None:
    """Replicas are the same bits after each average, and what the formula says; nothing is sent in other steps."""
    due = [step for step in range(STEPS) if (step + 1) % every == 0 or step + 1 == STEPS]
    wanted = followed(outcomes, every, rate, momentum)
    for step, parameters in zip(due, wanted, strict=True):
        for outcome in outcomes:
            assert np.array_equal(outcome.parameters[step], outcomes[0].parameters[step]), "replicas differ"
            np.testing.assert_allclose(outcome.parameters[step], parameters, rtol=1e-12, atol=1e-12)
    for outcome in outcomes:
        assert outcome.sent == [outcome.formula if step in due else 0 for step in range(STEPS)], "other bytes are sent"


CADENCES: list[dict[str, Any]] = [
    {"sync_every": 1},
    {"sync_every": 4},
    {"sync_every": 5},  # which does not divide the number of steps
    {"sync_every": 3, "outer_learning_rate": 0.7, "outer_momentum": 0.9},
]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("asked", CADENCES, ids=str)
def test_parameters_move_as_the_formula_says(group_of: GroupOf, asked: dict[str, Any], ranks: int) -> None:
    outcomes = group_of(ranks).run(steps, asked)
    check(outcomes, asked["sync_every"], asked.get("outer_learning_rate", 1.0), asked.get("outer_momentum", 0.0))


@pytest.mark.parametrize("mode", EXCHANGES)
def test_every_exchange_carries_parameters(group_of: GroupOf, mode: str) -> None:
    check(group_of(3).run(steps, {"sync_every": 6, "sync_mode": mode}), 6)


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_after_each_step_it_is_the_averaging_of_gradients(group_of: GroupOf, ranks: int) -> None:
    """SGD with momentum and weight decay is linear, so it makes no difference what is averaged."""
    moved, averaged = (group_of(ranks).run(steps, {"sync_every": 1}, None, each) for each in (False, True))
    for one, other in zip(moved[0].parameters, averaged[0].parameters, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "asked", [{"sync_every": 3, "outer_momentum": 0.5}, {"sync_every": 3, "compression": "power_sgd"}], ids=str
)
def test_killed_and_resumed_with_the_same_bits(group_of: GroupOf, asked: dict[str, Any]) -> None:
    """Between two averages, and in the step before one."""
    whole = group_of(2).run(steps, asked)
    for at in (4, 5):
        for one, other in zip(whole, group_of(2).run(steps, asked, at), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one.parameters, other.parameters, strict=True))


def test_a_run_says_what_was_sent_and_when_nothing_was(group_of: GroupOf, tmp_path: Path) -> None:
    """20 steps, averages after the 8th, the 16th and the last one."""
    changed = {"sync_every": 8, "epochs": 4, "max_steps": 20, "sync_mode": "ring_all_reduce"}
    group_of(3).run(train, tmp_path / "run", LENET5 | changed)
    summary = summarise(run_records.read(tmp_path / "run")).content()
    assert summary["complete"]
    assert summary["replicas_identical"]
    for rank in summary["ranks"]:
        assert rank["bytes_sent_per_step"] == pytest.approx(rank["formula_bytes_sent_per_step"], abs=1e-6)
    records = run_records.read(tmp_path / "run").ranks[1].steps
    assert [step.step for step in records if step.bytes_sent] == [7, 15, 19]
    assert all(step.wait_seconds is not None and step.sync_seconds is not None for step in records)
