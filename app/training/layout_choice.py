"""Which memory layout a run uses: the one requested, or the fastest on this machine, measured once and kept.

This module does not import torch: most starts only read what was kept.
"""

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from app.machine.cpus import look
from app.machine.folders import PREPARED, check_writable, replace_file
from app.machine.say import Say
from app.settings.fields import MemoryFormat, Settings
from app.training.datasets.prepared import channels_of

Seconds = dict[MemoryFormat, list[float]]  # of CPU for a step, by round


def candidates(settings: Settings) -> tuple[MemoryFormat, ...]:
    """The layouts from which the fastest is chosen by measuring; the first is the usual one.

    With one channel all are the same order, but PyTorch warns of the strides. oneDNN has no fp64. A user's own model is
    not run here: `prepare` can reach the internet.
    """
    if settings.memory_format is not None:
        return (settings.memory_format,)
    if settings.precision == "fp64" or "MODEL" in settings.own or channels_of(settings.model) == 1:
        return ("contiguous",)
    return ("mixed", "contiguous", "channels_last")


@dataclass(frozen=True)
class Choice:
    """A layout, and the measurements that it follows from."""

    memory_format: MemoryFormat
    cpu_model: str
    torch: str
    seconds: Seconds

    def __str__(self) -> str:
        each = ", ".join(f"{name} {median(seconds) * 1e3:.0f} ms" for name, seconds in self.seconds.items())
        return f"memory layout: {self.memory_format}, measured on this machine (CPU time of a small step: {each})"


def memory_format(settings: Settings) -> MemoryFormat:
    """The layout of a run, as far as this process knows: the one requested, the one measured, or the usual one."""
    usual, *others = candidates(settings)
    kept = _kept(settings) if others else None
    return kept.memory_format if kept else usual


def measured(settings: Settings) -> dict[str, float] | None:
    """The CPU seconds that a layout was chosen by; None where nothing was measured."""
    kept = _kept(settings) if len(candidates(settings)) > 1 else None
    return {name: median(seconds) for name, seconds in kept.seconds.items()} if kept else None


def make(settings: Settings, say: Say) -> None:
    """Measure and keep the choice, unless that has been done or there is nothing to choose."""
    if len(candidates(settings)) == 1:
        return
    choice = _kept(settings)
    if choice is None:
        check_writable(PREPARED)
        say(f"measuring in which memory layout {settings.model} computes fastest here, once")
        from app.training.layout_measurement import fastest, measure

        seconds = measure(settings)
        choice = Choice(fastest(seconds), look().cpu_model, version("torch"), seconds)
        replace_file(_path(settings), json.dumps(asdict(choice)) + "\n")
    say(str(choice))


def _kept(settings: Settings) -> Choice | None:
    """The choice made before; None if there is none, or it was made on another machine."""
    try:
        choice = Choice(**json.loads(_path(settings).read_bytes()))
        applies = (choice.cpu_model, choice.torch) == (look().cpu_model, version("torch"))
        whole = set(choice.seconds) == set(candidates(settings)) and choice.memory_format in choice.seconds
        str(choice)  # figures that are none raise an error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return choice if applies and whole else None


def _path(settings: Settings) -> Path:
    return PREPARED / f"layout-{settings.model}-{settings.precision}.json"
