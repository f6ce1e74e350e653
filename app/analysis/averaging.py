"""How a run averages, in words, and after which of its steps."""

from collections.abc import Sequence

from app.records.lines import Step
from app.records.manifest import Manifest


def in_words(manifest: Manifest) -> str:
    """The mode, the compressor, the cadence."""
    settings = manifest.settings
    words = [str(settings["sync_mode"])]
    if (compression := settings.get("compression", "none")) != "none":
        of = "compression_rank" if compression == "power_sgd" else "compression_ratio"
        words.append(f"{compression} {settings.get(of)}" if compression != "sign" else "sign")
    if every := settings.get("sync_every"):
        words.append(f"parameters every {every} steps" if every != 1 else "parameters in each step")
    return ", ".join(words)


def moves_parameters(manifest: Manifest) -> bool:
    """Whether ranks average parameters, after the optimiser, and not gradients before it."""
    return bool(manifest.settings.get("sync_every"))


def is_plain(manifest: Manifest) -> bool:
    """Whether whole gradients are averaged in each step, so that modes compare by their formulas alone."""
    return manifest.settings.get("compression", "none") == "none" and not moves_parameters(manifest)


def share_of_steps(manifest: Manifest, steps: Sequence[Step]) -> float:
    """Of these steps, the share after which ranks average: all, or each SYNC_EVERY-th and the last one of the run."""
    every = manifest.settings.get("sync_every")
    if not isinstance(every, int) or not steps:
        return 1.0
    due = sum((step.step + 1) % every == 0 or step.step + 1 == manifest.plan.steps for step in steps)
    return due / len(steps)
