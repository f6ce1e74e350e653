"""`benchmark sync`: every mode against the plainest correct code of the same pattern, round after round."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.machine.say import Say
from app.modes import MODES
from app.settings.settings import Settings
from app.sync.modes import mode_class
from app.tools.benchmark import plain, results
from app.tools.benchmark.ratios import Middle
from app.training import models
from app.training.numerics import DTYPES

ROUNDS = 15
WARM_UP = 2

FLAT = "the backend's all-reduce of one flat buffer"
PACKED = "packed, the backend's all-reduce, unpacked"
FLAT_RING = "ring_all_reduce of one flat buffer"

# What each mode is compared with, on the same gradients.
YARDSTICKS = {
    "gather_scatter": ["plain gather and scatter"],
    "send_recv": ["plain send and recv"],
    "all_reduce": ["plain all-reduce per parameter"],
    "flat_all_reduce": [FLAT, PACKED],
    FLAT_RING: [FLAT],
    "ring_all_reduce": [FLAT, PACKED, "plain ring of whole chunks, packed"],
    "ddp": ["DistributedDataParallel as it comes"],
    "bucketed_all_reduce": ["DistributedDataParallel as it comes"],
}


class TimedMode(Protocol):
    """Something to be timed."""

    def prepare(self) -> None:
        """Prepare a run; this is not timed."""

    def run(self) -> None:
        """Do what is timed."""


class Gradients(nn.Module):
    """A model's parameters, with a backward that costs little compared with their synchronisation."""

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros_like(each) for each in like)
        self.gradients = [torch.randn_like(each) for each in like]

    def forward(self) -> torch.Tensor:
        """A sum whose gradients are the ones given."""
        products = zip(self.parts, self.gradients, strict=True)
        return torch.stack([torch.dot(part.view(-1), gradient.view(-1)) for part, gradient in products]).sum()


class Synchronisation:
    """Averages gradients that are ready, as after backward."""

    def __init__(self, model: Gradients, synchronise: Callable[[list[nn.Parameter]], None]) -> None:
        self._model, self._synchronise = model, synchronise
        self._parameters = list(model.parameters())

    def prepare(self) -> None:
        """Lay out fresh gradients."""
        for parameter, gradient in zip(self._parameters, self._model.gradients, strict=True):
            parameter.grad = gradient.clone()

    def run(self) -> None:
        """Average them."""
        self._synchronise(self._parameters)


class Backward:
    """Averages gradients while backward makes them."""

    def __init__(self, replica: nn.Module) -> None:
        self._replica = replica
        self._loss = torch.empty(0)

    def prepare(self) -> None:
        """Forward."""
        self._replica.zero_grad()
        self._loss = self._replica()

    def run(self) -> None:
        """Backward."""
        self._loss.backward()  # type: ignore[no-untyped-call]


class FlatBuffer:
    """The backend's all-reduce with nothing around it: a bound, because real gradients are not a single buffer."""

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        self._buffer = torch.randn(sum(each.numel() for each in like), dtype=like[0].dtype)

    def prepare(self) -> None:
        """Keep the sum from growing without end."""
        self._buffer /= dist.get_world_size()

    def run(self) -> None:
        """Sum it up."""
        dist.all_reduce(self._buffer)


def compare_modes(settings: Settings, cluster: Cluster, say: Say) -> None:
    """Time all contenders in turn, so that changes of the machine's speed hit all alike; rank 0 prints the table."""
    like = [
        parameter.detach()
        for parameter in models.build(
            settings.training.model, settings.averaging.seed, DTYPES[settings.training.precision]
        ).parameters()
    ]
    contenders = _contenders(settings, cluster, like)
    communicator = Communicator(cluster)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(WARM_UP + ROUNDS):
        for name, contender in contenders.items():
            contender.prepare()
            communicator.wait_for_peers()
            began = time.monotonic()
            contender.run()
            communicator.wait_for_peers()  # every rank takes the slowest one's time
            if number >= WARM_UP:
                seconds[name].append(time.monotonic() - began)
        if cluster.rank == 0:
            say(f"round {number + 1} of {WARM_UP + ROUNDS}{', warm-up' if number < WARM_UP else ''}")
    if cluster.rank == 0:
        size = sum(each.nbytes for each in like)
        say(f"\n{settings.training.model}: {size / 1e6:.1f} MB of gradients, {cluster.world_size} ranks")
        say(table(seconds))
        ratios = [
            {"of": mode, "against": other, **vars(Middle.of_ratios(seconds[mode], seconds[other]))}
            for mode in _modes()
            for other in YARDSTICKS.get(mode, [FLAT])
        ]
        results.write("sync", {"bytes": size, "seconds": seconds, "ratios": ratios}, say, settings.values(), cluster)


def _contenders(settings: Settings, cluster: Cluster, like: Sequence[torch.Tensor]) -> dict[str, TimedMode]:
    contenders: dict[str, TimedMode] = {
        "plain gather and scatter": Synchronisation(Gradients(like), plain.gather_scatter),
        "plain send and recv": Synchronisation(Gradients(like), plain.send_recv),
        "plain all-reduce per parameter": Synchronisation(Gradients(like), plain.all_reduce),
        FLAT: FlatBuffer(like),
        PACKED: Synchronisation(Gradients(like), plain.packed_all_reduce),
        "plain ring of whole chunks, packed": Synchronisation(Gradients(like), plain.packed_ring),
        "DistributedDataParallel as it comes": Backward(DistributedDataParallel(Gradients(like))),
    }
    for name in _modes():
        model = Gradients([torch.cat([each.view(-1) for each in like])] if name == FLAT_RING else like)
        sync = mode_class(name.partition(" ")[0])(Communicator(cluster), settings.averaging)
        replica = sync.attach(model)
        contenders[name] = Synchronisation(model, sync.synchronise) if sync.explicit else Backward(replica)
    return contenders


def _modes() -> list[str]:
    """Every mode that synchronises; one without its own yardstick is compared with the flat buffer."""
    return list(dict.fromkeys([*YARDSTICKS, *(name for name in MODES if name != "none")]))


def table(seconds: dict[str, list[float]]) -> str:
    """Median times, and each mode's ratio to its yardsticks: the median over the rounds, and its interval."""
    lines = [f"{'mode':<34} {'seconds':>8}   {'baseline':<42} {'seconds':>8}   ratio (90 % interval, {ROUNDS} rounds)"]
    for mode in _modes():
        for yardstick in YARDSTICKS.get(mode, [FLAT]):
            lines.append(
                f"{mode:<34} {median(seconds[mode]):>8.4f}   {yardstick:<42} {median(seconds[yardstick]):>8.4f}   "
                f"{Middle.of_ratios(seconds[mode], seconds[yardstick])}"
            )
    return "\n".join(lines)
