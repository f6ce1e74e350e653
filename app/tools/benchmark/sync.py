"""`benchmark sync`: every mode compared with the plainest correct code of its pattern, round after round."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from app.analysis.units import TEXT, Unit
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.machine.say import Say
from app.modes import MODES
from app.settings.settings import Settings
from app.sync.modes import mode_class
from app.tools.benchmark import plain
from app.tools.benchmark.ratios import Middle
from app.tools.benchmark.table import in_columns
from app.training import models
from app.training.numerics import DTYPES

ROUNDS = 15
WARM_UP = 2

SECONDS = Unit(lambda value: f"{value:.4f}")

FLAT = "the backend's all-reduce of one flat buffer"
PACKED = "packed, the backend's all-reduce, unpacked"
FLAT_RING = "ring_all_reduce of one flat buffer"

# The baselines of each mode, on the same gradients.
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


class TimedMode(NamedTuple):
    """A way to average gradients; only `run` is timed."""

    prepare: Callable[[], object]
    run: Callable[[], object]


class Gradients(nn.Module):
    """A model's parameters, with a backward that costs little compared with their synchronisation."""

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros_like(each) for each in like)
        self.gradients = [torch.randn_like(each) for each in like]

    def forward(self) -> torch.Tensor:
        """Their sum, weighted by the gradients that backward will give."""
        products = zip(self.parts, self.gradients, strict=True)
        return torch.stack([torch.dot(part.view(-1), gradient.view(-1)) for part, gradient in products]).sum()


def after_backward(model: Gradients, synchronise: Callable[[list[nn.Parameter]], None]) -> TimedMode:
    """Average gradients that are complete."""
    parameters = list(model.parameters())

    def prepare() -> None:
        for parameter, gradient in zip(parameters, model.gradients, strict=True):
            parameter.grad = gradient.clone()

    return TimedMode(prepare, lambda: synchronise(parameters))


def during_backward(replica: nn.Module) -> TimedMode:
    losses: list[torch.Tensor] = []

    def prepare() -> None:
        replica.zero_grad()
        losses[:] = [replica()]

    return TimedMode(prepare, lambda: losses[0].backward())  # type: ignore[no-untyped-call]


def one_flat_buffer(like: Sequence[torch.Tensor]) -> TimedMode:
    """The backend's all-reduce alone: a bound, because real gradients are not a single buffer."""
    buffer = torch.randn(sum(each.numel() for each in like), dtype=like[0].dtype)
    return TimedMode(lambda: buffer.div_(dist.get_world_size()), lambda: dist.all_reduce(buffer))  # it stays finite


def compare_modes(settings: Settings, cluster: Cluster, say: Say) -> dict[str, Any]:
    """Time all contenders in turn, so that disturbances affect all alike."""
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
        say(f"round {number + 1} of {WARM_UP + ROUNDS}{', warm-up' if number < WARM_UP else ''}")
    size = sum(each.nbytes for each in like)
    say(f"\n{settings.training.model}: {size / 1e6:.1f} MB of gradients, {cluster.world_size} ranks")
    say(table(seconds))
    ratios = [{"of": of, "against": other, **vars(ratio)} for (of, other), ratio in ratios_of(seconds).items()]
    return {"bytes": size, "seconds": seconds, "ratios": ratios}


def _contenders(settings: Settings, cluster: Cluster, like: Sequence[torch.Tensor]) -> dict[str, TimedMode]:
    contenders: dict[str, TimedMode] = {
        "plain gather and scatter": after_backward(Gradients(like), plain.gather_scatter),
        "plain send and recv": after_backward(Gradients(like), plain.send_recv),
        "plain all-reduce per parameter": after_backward(Gradients(like), plain.all_reduce),
        FLAT: one_flat_buffer(like),
        PACKED: after_backward(Gradients(like), plain.packed_all_reduce),
        "plain ring of whole chunks, packed": after_backward(Gradients(like), plain.packed_ring),
        "DistributedDataParallel as it comes": during_backward(DistributedDataParallel(Gradients(like))),
    }
    for name in _modes():
        model = Gradients([torch.cat([each.view(-1) for each in like])] if name == FLAT_RING else like)
        sync = mode_class(name.partition(" ")[0])(Communicator(cluster), settings.averaging)
        replica = sync.attach(model)
        contenders[name] = after_backward(model, sync.synchronise) if sync.explicit else during_backward(replica)
    return contenders


def _modes() -> list[str]:
    """Every mode that synchronises; one without its own yardstick is compared with the flat buffer."""
    return list(dict.fromkeys([*YARDSTICKS, *(name for name in MODES if name != "none")]))


def ratios_of(seconds: dict[str, list[float]]) -> dict[tuple[str, str], Middle]:
    pairs = [(mode, other) for mode in _modes() for other in YARDSTICKS.get(mode, [FLAT])]
    return {(mode, other): Middle.of_ratios(seconds[mode], seconds[other]) for mode, other in pairs}


def table(seconds: dict[str, list[float]]) -> str:
    headings = [("mode", TEXT), ("seconds", SECONDS), ("baseline", TEXT), ("seconds", SECONDS)]
    rows = [
        (mode, median(seconds[mode]), other, median(seconds[other]), str(ratio))
        for (mode, other), ratio in ratios_of(seconds).items()
    ]
    return in_columns([*headings, (f"ratio (90 % interval, {ROUNDS} rounds)", TEXT)], rows)
