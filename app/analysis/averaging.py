"""How a run averages, in words, and after which of its steps."""

from app.analysis.statistics import Mask, Numbers
from app.records.manifest import Manifest


def in_words(manifest: Manifest) -> str:
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


def every(manifest: Manifest) -> int:
    """After how many steps ranks average."""
    return int(manifest.settings.get("sync_every") or 1)


def averages(manifest: Manifest, steps: Numbers) -> Mask:
    """After which of these steps ranks average: each SYNC_EVERY-th, and the last one of the run."""
    found: Mask = ((steps + 1) % every(manifest) == 0) | (steps + 1 == manifest.plan.steps)
    return found
