"""Ablations: one rank's step with and without each choice that was made for its speed. docs/benchmark.md has a result.

Each variant trains in a process of its own. They take turns, round after round, and all but one are stopped.
"""

import os
import sys
import time
from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from app.machine.quick_imports import quick_imports
from app.tools.benchmark.turns import in_turns

with quick_imports():
    import torch
    from torch.nn.functional import cross_entropy

    from app.machine import cpus
    from app.settings import environment
    from app.settings.settings import Settings
    from app.settings.training import MemoryFormat
    from app.tools.benchmark.child import Child
    from app.tools.benchmark.ratios import Middle
    from app.training import convolution, models
    from app.training.datasets import CLASSES, SIDE
    from app.training.datasets.prepared import channels_of
    from app.training.numerics import Numerics, memory_format_of

ROUNDS, WARM_UP, STEPS = 20, 2, 2
SHARED_BY = 4  # ranks of a global batch
NOTHING: Mapping[str, str] = {}
SGD = {"foreach SGD": {"foreach": True}, "loop SGD": {"foreach": False}}
NO_PRODUCTS, FLUSH_DENORMALS = "no products", "flush denormals"

Samples = tuple[list[float], list[float]]  # CPU seconds and wall time of a step, by round


class Variant(NamedTuple):
    name: str
    taken: bool = True  # Lockstep has made this choice, and the variant undoes it; else the variant makes it
    environment: Mapping[str, str] = NOTHING
    change: str = "none"


def variants(layout: MemoryFormat) -> list[Variant]:
    kept = os.environ.get("GLIBC_TUNABLES", "")
    others = [each for each in ("mixed", "contiguous", "channels_last") if each != layout]
    products = [Variant("weight gradients as products", change=NO_PRODUCTS)] if layout == "mixed" else []
    return [
        Variant("none"),
        Variant("memory kept", environment={"GLIBC_TUNABLES": ""}),
        Variant("fused SGD against foreach", change="foreach SGD"),
        Variant("fused SGD against a loop", change="loop SGD"),
        Variant("threads by quota against 4", environment={"THREADS_PER_RANK": "4"}),
        *(Variant(f"layout {layout} against {each}", environment={"MEMORY_FORMAT": each}) for each in others),
        *products,
        Variant("huge pages", taken=False, environment={"GLIBC_TUNABLES": f"{kept}:glibc.malloc.hugetlb=1".strip(":")}),
        Variant("denormals as zero", taken=False, change=FLUSH_DENORMALS),
    ]


def measure(settings: Settings, rounds: int) -> list[tuple[Variant, Samples]]:
    training, machine = settings.training, cpus.look()
    layout = memory_format_of(training)
    images = training.batch_size_per_rank or training.global_batch(SHARED_BY) // SHARED_BY
    own = {"MEMORY_FORMAT": layout, "THREADS_PER_RANK": str(cpus.threads(machine, [machine]))}
    measured: list[tuple[Variant, Samples]] = [(variant, ([], [])) for variant in variants(layout)]
    children: list[Child] = []
    with TemporaryDirectory() as folder:
        try:
            for variant, _ in measured:
                child = Child(
                    f"the variant '{variant.name}'",
                    "tests.bench.compute",
                    [variant.change, str(images)],
                    Path(folder) / f"{len(children)}.log",
                    settings.place.peer_timeout,
                    {**os.environ, **own, **variant.environment},
                )
                children.append(child)
            for child in children:
                child.wait()
                child.rest()
            turns = [(child, samples) for child, (_, samples) in zip(children, measured, strict=True)]
            for number in range(WARM_UP + rounds):
                print(f"round {number + 1} of {WARM_UP + rounds}", flush=True)
                for child, samples in turns if number % 2 == 0 else reversed(turns):
                    taken = take_turn(child)
                    if number >= WARM_UP:
                        samples[0].append(taken[0])
                        samples[1].append(taken[1])
        finally:
            for child in children:
                child.end()
    return measured


def take_turn(child: Child) -> tuple[float, float]:
    child.wake()
    used, began = child.cpu_seconds(), time.monotonic()
    child.run(STEPS)
    seconds = time.monotonic() - began
    child.rest()
    return (child.cpu_seconds() - used) / STEPS, seconds / STEPS


def train(change: str, images: int) -> None:
    """Forward, backward and the optimiser, on the same random images; nothing is sent."""
    settings = environment.load()
    training, numerics = settings.training, Numerics.of(settings.training)
    torch.set_num_threads(settings.place.threads_per_rank or 1)
    torch.set_flush_denormal(change == FLUSH_DENORMALS)
    model = models.build(training.model, settings.averaging.seed, numerics.dtype)
    convolution.arrange(model, numerics.layout._replace(products=numerics.layout.products and change != NO_PRODUCTS))
    sgd = torch.optim.SGD(
        model.parameters(),
        lr=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        **SGD.get(change, {"fused": True}),
    )
    batch = torch.rand(images, channels_of(training.model), SIDE, SIDE, dtype=numerics.dtype)
    labels = torch.arange(images) % CLASSES
    for _ in in_turns(repeat(None)):
        sgd.zero_grad()
        outputs = numerics.forward(model, batch.contiguous(memory_format=numerics.layout.large))
        cross_entropy(outputs, labels).backward()  # type: ignore[no-untyped-call]
        sgd.step()


def main() -> None:
    (_, own), *others = measure(environment.load(), ROUNDS)
    print(f"{median(own[0]):.3f} s of CPU time and {median(own[1]):.3f} s of wall time per step")
    print(f"{'choice':<42}{'taken':<7}{'CPU time with / without':<26}wall time")
    for variant, samples in others:
        pairs = [pair if variant.taken else pair[::-1] for pair in zip(own, samples, strict=True)]
        cpu, wall = (str(Middle.of_ratios(*pair)) for pair in pairs)
        print(f"{variant.name:<42}{'yes' if variant.taken else 'no':<7}{cpu:<26}{wall}")


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else main()
