"""`benchmark compute`: what each choice of the compute path gains: a rank's own step with and without it, in turn."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from types import MappingProxyType
from typing import Any

from app.machine import cpus
from app.machine.folders import scratch_in
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.settings.settings import Settings
from app.settings.training import MemoryFormat, TrainingSettings
from app.tools.benchmark import results
from app.tools.benchmark.child import Child
from app.tools.benchmark.choice import Change, ComputeChoice
from app.tools.benchmark.ratios import Middle
from app.training.numerics import memory_format_of

WARM_UP = 2  # turns
PARTS_OF_A_BATCH = 4  # as many ranks share the batch, unless BATCH_SIZE_PER_RANK is given
OURS = "as it is"
NOTHING: Mapping[str, str] = MappingProxyType({})
HUGE_PAGES = "glibc.malloc.hugetlb=1"


@dataclass(frozen=True)
class StepVariant:
    """The step with one thing done otherwise."""

    name: str
    taken: bool = False  # whether ours has it, and this variant lacks it; else ours lacks it
    environment: Mapping[str, str] = NOTHING
    change: Change = Change.NONE


def variants(layout: MemoryFormat) -> list[StepVariant]:
    """All, ours first."""
    kept = os.environ.get("GLIBC_TUNABLES", "")
    products = StepVariant("weight gradients as products", taken=True, change=Change.NO_PRODUCTS)
    others = [
        StepVariant("memory kept", taken=True, environment={"GLIBC_TUNABLES": ""}),
        StepVariant("fused SGD against foreach", taken=True, change=Change.FOREACH_SGD),
        StepVariant("fused SGD against a loop", taken=True, change=Change.LOOP_SGD),
        StepVariant("threads by quota against 4", taken=True, environment={"THREADS_PER_RANK": "4"}),
        *(
            StepVariant(f"layout {layout} against {each}", taken=True, environment={"MEMORY_FORMAT": each})
            for each in ("mixed", "contiguous", "channels_last")
            if each != layout
        ),
        *([products] if layout == "mixed" else []),
        StepVariant("huge pages", environment={"GLIBC_TUNABLES": f"{kept}:{HUGE_PAGES}".strip(":")}),
        StepVariant("denormals as zero", change=Change.FLUSH_DENORMALS),
    ]
    return [StepVariant(OURS), *others]


@dataclass
class VariantSamples:
    """Seconds of a step, a value for each round."""

    cpu_seconds: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def time_choices(settings: Settings, choice: ComputeChoice, say: Say, clean_ups: CleanUps) -> None:
    """Let each variant take its turn in a process of its own, round after round."""
    layout = memory_format_of(settings.training)
    tried = variants(layout)
    samples = {variant.name: VariantSamples() for variant in tried}
    with (
        scratch_in(Path(gettempdir()), clean_ups) as folder,
        _children(settings, layout, tried, folder, clean_ups) as children,
    ):
        for number in range(WARM_UP + choice.rounds):
            for name in samples if number % 2 == 0 else reversed(samples):
                cpu_seconds, seconds = _take_turn(children[name], choice.steps)
                if number >= WARM_UP:
                    samples[name].cpu_seconds.append(cpu_seconds)
                    samples[name].seconds.append(seconds)
            if number >= WARM_UP:
                say(f"round {number + 1 - WARM_UP} of {choice.rounds}")
    outcome = {variant.name: vars(samples[variant.name]) | _gain(variant, samples) for variant in tried}
    _tell(settings.training, outcome, say)
    results.write(
        "compute", {"layout": layout, "images": _images(settings.training), "choices": outcome}, say, settings.values()
    )


def _images(training: TrainingSettings) -> int:
    return training.batch_size_per_rank or training.global_batch(PARTS_OF_A_BATCH) // PARTS_OF_A_BATCH


@contextmanager
def _children(
    settings: Settings, layout: MemoryFormat, tried: Sequence[StepVariant], folder: Path, clean_ups: CleanUps
) -> Iterator[dict[str, Child]]:
    children: dict[str, Child] = {}
    machine = cpus.look()
    own = {"MEMORY_FORMAT": layout, "THREADS_PER_RANK": str(cpus.threads(machine, [machine]))}
    given = {name.upper(): str(value) for name, value in settings.values(only=settings.given).items()}
    try:
        for number, variant in enumerate(tried):
            child = children[variant.name] = Child(
                f"the step variant '{variant.name}'",
                "app.tools.benchmark.compute_step",
                [variant.change, str(_images(settings.training))],
                folder / f"{number}.log",
                settings.place.peer_timeout,
                {**os.environ, **own, **given, **variant.environment},
            )
            clean_ups.append(child.end)
        for child in children.values():
            child.wait()
            child.rest()
        yield children
    finally:
        for child in children.values():
            child.end()


def _take_turn(child: Child, steps: int) -> tuple[float, float]:
    child.wake()
    used, began = child.cpu_seconds(), time.monotonic()
    child.run(steps)
    seconds = time.monotonic() - began
    child.rest()
    return (child.cpu_seconds() - used) / steps, seconds / steps


def _gain(variant: StepVariant, samples: dict[str, VariantSamples]) -> dict[str, Any]:
    """With the choice / without it, of both kinds of seconds."""
    if variant.name == OURS:
        return {"taken": None}
    ours, other = samples[OURS], samples[variant.name]
    chosen, not_chosen = (ours, other) if variant.taken else (other, ours)
    return {
        "taken": variant.taken,
        "cpu_seconds_with_over_without": vars(Middle.of_ratios(chosen.cpu_seconds, not_chosen.cpu_seconds)),
        "seconds_with_over_without": vars(Middle.of_ratios(chosen.seconds, not_chosen.seconds)),
    }


def _tell(training: TrainingSettings, outcome: dict[str, dict[str, Any]], say: Say) -> None:
    own = outcome[OURS]
    say(
        f"\n{training.model} in {training.precision}, {_images(training)} images on one rank: "
        f"{median(own['cpu_seconds']):.3f} s of CPU time and {median(own['seconds']):.3f} s of wall time per step"
    )
    say(f"{'choice':<42}{'taken':<7}{'CPU time with / without':<26}{'wall time'}")
    for name, each in outcome.items():
        if name != OURS:
            cpu, clock = (str(Middle(**each[f"{kind}_with_over_without"])) for kind in ("cpu_seconds", "seconds"))
            say(f"{name:<42}{'yes' if each['taken'] else 'no':<7}{cpu:<26}{clock}")
    say("Below 1: the choice is faster. Brackets: 90 % interval, given enough rounds.")
