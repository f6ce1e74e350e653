"""`app.sync` in a training loop of somebody else's, on a plain process group."""

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import nn

from app.cluster.members import Cluster
from app.errors import SettingError
from app.modes import MODES
from app.settings.averaging import AveragingSettings
from app.sync import Communicator, Exchange, Synchroniser, cost_of, create, from_settings
from app.sync.contract import size_of
from tests.processes.conftest import GroupOf
from tests.processes.group import PATIENCE_SECONDS, ROOT, free_port

SYNCHRONISING = [name for name in MODES if name != "none"]
STEPS, RATE = 3, 0.1


class Net(nn.Module):
    """Tied weights that lie transposed in memory, a frozen layer, a buffer of whole numbers."""

    count: torch.Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second, self.frozen = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.first.weight = self.second.weight = nn.Parameter(torch.randn(6, 6).t())
        self.frozen.requires_grad_(requires_grad=False)
        self.register_buffer("count", torch.tensor(seed))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.frozen(torch.tanh(self.second(torch.tanh(self.first(values)))))
        return result


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * rank + step))


Result = tuple[list[torch.Tensor], list[float], int]


def train(model: Net, mode: Synchroniser, rank: int, *, to_none: bool = True) -> Result:
    """A plain loop; the parameters in the end, the bytes of each step, the buffer."""
    replica = mode.attach(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    sent = []
    for step in range(STEPS):
        optimiser.zero_grad(set_to_none=to_none)
        replica(batch(rank, step)).square().mean().backward()
        mode.synchronise(model.parameters())
        optimiser.step()
        sent.append(mode.bytes_sent)
    return [each.detach().clone() for each in model.parameters()], sent, int(model.count)


def loop(cluster: Cluster, name: str, options: dict[str, object], to_none: bool) -> Result:
    mode = create(name, Communicator.over(), **options)
    return train(Net(seed=cluster.rank), mode, cluster.rank, to_none=to_none)


def alone(ranks: list[int]) -> list[torch.Tensor]:
    """One process on everyone's batch, from the parameters of the first rank."""
    model = Net(seed=ranks[0])
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        optimiser.zero_grad()
        model(torch.cat([batch(rank, step) for rank in ranks])).square().mean().backward()
        optimiser.step()
    return [each.detach() for each in model.parameters()]


def check_equal(results: list[Result], expected: list[torch.Tensor]) -> None:
    for parameters, _, _ in results:
        for own, first, right in zip(parameters, results[0][0], expected, strict=True):
            assert torch.equal(own, first)
            torch.testing.assert_close(own, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("to_none", [True, False], ids=["gradients none", "gradients zero"])
@pytest.mark.parametrize("name", SYNCHRONISING)
def test_ranks_that_start_differently_train_as_one_process_and_send_what_the_formula_says(
    group_of: GroupOf, name: str, to_none: bool
) -> None:
    results = group_of(3).run(loop, name, {}, to_none)
    check_equal(results, alone([0, 1, 2]))
    parameters = learned(Net(0))
    cost = cost_of(AveragingSettings(sync_mode=name), parameters)
    for rank, (_, sent, count) in enumerate(results):
        assert sent == pytest.approx([cost.bytes_sent(size_of(parameters), rank, 3)] * STEPS)
        assert count == 0


def in_a_subgroup(cluster: Cluster, name: str) -> Result | None:
    group = dist.new_group([1, 2])
    if cluster.rank == 0:
        return None
    return train(Net(seed=cluster.rank), create(name, Communicator.over(group)), cluster.rank)


@pytest.mark.parametrize("name", SYNCHRONISING)
def test_a_group_of_some_ranks(group_of: GroupOf, name: str) -> None:
    """Rank 1 is the first of two: numbers are those within the group."""
    nobody, *results = group_of(3).run(in_a_subgroup, name)
    assert nobody is None
    check_equal([each for each in results if each is not None], alone([1, 2]))


def learned(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.requires_grad]


@pytest.mark.parametrize(
    "options",
    [
        {"wire_precision": "bf16"},
        {"compression": "power_sgd", "compression_rank": 1},
        {"compression": "random_k", "compression_ratio": 0.25},
    ],
    ids=str,
)
def test_options_come_by_keyword(group_of: GroupOf, options: dict[str, object]) -> None:
    """Each sends less, by its own formula."""
    plain, other = (group_of(3).run(loop, "ring_all_reduce", each, True) for each in ({}, options))
    settings = AveragingSettings.model_validate({"sync_mode": "ring_all_reduce", **options})
    parameters = learned(Net(0))
    size, cost = size_of(parameters, settings.wire_precision), cost_of(settings, parameters)
    for rank, (whole, less) in enumerate(zip(plain, other, strict=True)):
        assert less[1] == pytest.approx([cost.bytes_sent(size, rank, 3)] * STEPS)
        assert sum(less[1]) < sum(whole[1])


def backwards(cluster: Cluster, name: str, zeroed: bool) -> list[torch.Tensor] | str:
    """The gradients after two backward passes and one `synchronise`; or why there are none."""
    mode = create(name, Communicator.over())
    model = Net(seed=1)
    replica = mode.attach(model)
    replica(batch(cluster.rank, 0)).square().mean().backward()
    if zeroed:
        model.zero_grad()
    try:
        replica(batch(cluster.rank, 1)).square().mean().backward()
    except RuntimeError as error:
        return str(error)
    mode.synchronise(model.parameters())
    return [each.grad.clone() for each in learned(model) if each.grad is not None]


@pytest.mark.parametrize("zeroed", [True, False], ids=["a step is skipped", "gradients are accumulated"])
@pytest.mark.parametrize("name", SYNCHRONISING)
def test_two_backward_passes_before_a_synchronisation(group_of: GroupOf, name: str, zeroed: bool) -> None:
    """The mean of what was not zeroed; a mode that divides in backward refuses to accumulate."""
    model = Net(seed=1)
    for step in [1] if zeroed else [0, 1]:
        model(torch.cat([batch(rank, step) for rank in range(3)])).square().mean().backward()
    expected = [each.grad for each in learned(model)]
    for found in group_of(3).run(backwards, name, zeroed):
        if isinstance(found, str):
            assert (name, zeroed) == ("flat_all_reduce", False), found
        else:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def unattached(cluster: Cluster, name: str) -> list[torch.Tensor]:
    """The gradients of a second step, whose places are those of the first."""
    mode, model = from_settings(AveragingSettings(sync_mode=name), Communicator(cluster)), Net(seed=1)
    for step in range(2):
        model.zero_grad(set_to_none=False)
        model(batch(cluster.rank, step)).square().mean().backward()
        mode.synchronise(list(model.parameters()))
    return [each.grad.clone() for each in learned(model) if each.grad is not None]


@pytest.mark.parametrize("name", [name for name in SYNCHRONISING if name not in ("ddp", "bucketed_all_reduce")])
def test_a_mode_that_is_not_attached_averages_all_the_same(group_of: GroupOf, name: str) -> None:
    model = Net(seed=1)
    model(torch.cat([batch(rank, 1) for rank in range(3)])).square().mean().backward()
    for found in group_of(3).run(unattached, name):
        torch.testing.assert_close(found, [each.grad for each in learned(model)], rtol=1e-4, atol=1e-6)


def drawn(cluster: Cluster) -> list[set[int]]:
    """Which elements random_k has sent in each step."""
    mode = create("flat_all_reduce", Communicator.over(), compression="random_k", compression_ratio=0.1)
    model = nn.Linear(50, 2, bias=False)
    with pytest.raises(RuntimeError, match="attach"):
        mode.synchronise(model.parameters())
    mode.attach(model)
    found = []
    for _ in range(STEPS):
        model.weight.grad = torch.ones_like(model.weight)
        mode.synchronise(model.parameters())
        found.append(set(model.weight.grad.flatten().nonzero().flatten().tolist()))
    return found


def test_steps_are_counted_without_being_told(group_of: GroupOf) -> None:
    """Or each step would draw the same elements."""
    one, other = group_of(2).run(drawn)
    assert one == other
    assert len({frozenset(each) for each in one}) == STEPS


def every_second_step(cluster: Cluster) -> list[bool]:
    """Whether the ranks hold the same parameters after each step."""
    communicator = Communicator.over()
    mode, model = create("flat_all_reduce", communicator, sync_every=2), Net(seed=cluster.rank)
    replica = mode.attach(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    same = []
    for step in range(4):
        optimiser.zero_grad()
        replica(batch(cluster.rank, step)).square().mean().backward()
        optimiser.step()
        mode.synchronise(model.parameters())
        everyones = communicator.all_gather(model.first.weight.detach().clone())
        same.append(all(torch.equal(each, everyones[0]) for each in everyones))
    return same


def test_parameters_are_averaged_now_and_then(group_of: GroupOf) -> None:
    assert group_of(2).run(every_second_step) == [[False, True, False, True]] * 2


def resumed(cluster: Cluster) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients of three steps in one go, and with a new object before the third."""

    def gradients(mode: Synchroniser, steps: range) -> Iterator[torch.Tensor]:
        model = nn.Linear(50, 2, bias=False)
        mode.attach(model)
        for step in steps:
            model.weight.grad = torch.randn(2, 50, generator=torch.Generator().manual_seed(10 * step + cluster.rank))
            mode.synchronise(model.parameters())
            yield model.weight.grad.clone()

    def make() -> Synchroniser:
        return create("gathered_all_reduce", Communicator.over(), compression="top_k", compression_ratio=0.1)

    whole = list(gradients(make(), range(3)))
    before, after = make(), make()
    halves = list(gradients(before, range(2)))
    saved = copy.deepcopy(before.state())
    model = nn.Linear(50, 2, bias=False)
    after.attach(model)
    after.load_state(saved)
    model.weight.grad = torch.randn(2, 50, generator=torch.Generator().manual_seed(20 + cluster.rank))
    after.synchronise(model.parameters())
    assert model.weight.grad is not None
    return whole, [*halves, model.weight.grad]


def test_a_saved_state_continues_with_the_same_bits(group_of: GroupOf) -> None:
    for whole, halves in group_of(2).run(resumed):
        assert all(torch.equal(one, other) for one, other in zip(whole, halves, strict=True))


class OwnMode(Exchange):
    """As a user writes it."""

    def average(self, values: torch.Tensor) -> None:
        self._communicator.all_reduce(values)
        values /= self._communicator.world_size


def refusals(cluster: Cluster) -> list[tuple[str, int]]:
    found = []
    foreign = patch.dict(os.environ, {"MODEL": "gpt", "WIRE_PRECISION": "nonsense"})
    for mode, options in (
        ("ring_allreduce", {}),
        ("ring_all_reduce", {"wire_precision": "fp8"}),
        ("ring_all_reduce", {"shards": 2}),
        ("hierarchical", {"group_size": 2}),
        ("ddp", {"compression": "top_k"}),
    ):
        with foreign, pytest.raises(SettingError) as caught:
            create(mode, Communicator.over(), **options)
        found.append((str(caught.value), caught.value.exit_code))
    with pytest.raises(TypeError, match="wire_precison"):
        create("ring_all_reduce", Communicator.over(), wire_precison="bf16")
    with foreign:
        create(OwnMode, Communicator.over())
    return found


def test_nothing_comes_from_the_environment_and_what_is_wrong_is_refused_in_words(group_of: GroupOf) -> None:
    (first, *_) = group_of(3).run(refusals)
    for (words, code), value in zip(first, ["ring_allreduce", "fp8", "2", "2", "top_k"], strict=True):
        assert code == 2
        assert value in words
    assert "Did you mean ring_all_reduce?" in first[0][0]


def test_the_example_trains_on_two_processes() -> None:
    """Started as torchrun starts them. Debian's PyTorch has no libuv, and this machine need not know its own name."""
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    here = {"PYTHONPATH": str(ROOT), "USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "examples/plain_loop.py"), "ring_all_reduce"],
            env={**group, **here, "RANK": str(rank), "MODEL": "gpt"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=PATIENCE_SECONDS)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    losses = [float(line.split()[3].rstrip(",")) for line in outputs[0].splitlines()]
    assert len(losses) == 20
    assert losses[-1] < losses[0]


def walked(cluster: Cluster, values: dict[str, object]) -> set[str]:
    """The files of the program that a step enters between the loop's calls and torch.distributed."""
    communicator = Communicator(cluster)
    sync = from_settings(AveragingSettings.model_validate(values), communicator)
    model = nn.Linear(300, 20, bias=False)
    replica = sync.attach(model)
    entered = set()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        entered.add(frame.f_code.co_filename)

    for step in range(2):  # in the second, everything has been laid out
        model.zero_grad()
        communicator.begin_step(step)
        loss = replica(torch.ones(1, 300)).sum()
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            loss.backward()
            sync.synchronise(list(model.parameters()))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return {name.partition("/app/")[2] for name in entered if "/app/" in name}


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ({"sync_mode": "all_reduce"}, 6),
        ({"sync_mode": "ddp"}, 7),
        ({"sync_mode": "ring_all_reduce"}, 8),
        ({"compression": "power_sgd"}, 9),
    ],
    ids=str,
)
def test_a_gradient_passes_few_files(group_of: GroupOf, values: dict[str, object], most: int) -> None:
    for files in group_of(2).run(walked, values):
        assert len({"training/loop.py", *files}) <= most, files
