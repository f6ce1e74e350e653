"""Chooses the run that a command resumes: the newest unfinished one with the same settings and sources."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from app.errors import SettingError
from app.extensions import files
from app.machine import folders, process
from app.machine.cpus import look
from app.machine.folders import RESULTS
from app.machine.say import Say
from app.machine.source import source_sha256
from app.records.manifest import FILE, Manifest, Setting
from app.records.places import is_unfinished, newest_commit
from app.settings import environment
from app.settings.concern import Mark
from app.settings.recovery import AUTO, NEVER
from app.settings.settings import Settings, marked
from app.training.datasets import prepared


def choose(settings: Settings, say: Say) -> str | None:
    """The run to resume, or None for a new one. Refuses a run that RESUME names but that cannot be resumed."""
    if settings.recovery.resume == NEVER:
        return None
    if settings.recovery.resume != AUTO:
        folder = (RESULTS / settings.recovery.resume).resolve()
        if reason := obstacle(folder, settings):
            message = f"RESUME={settings.recovery.resume}: {reason} RESUME=never starts a new run."
            raise SettingError(message, "cannot-resume")
        return folder.name
    candidates = [settings.recovery.run_name] if settings.recovery.run_name else _newest_first()
    for name in candidates:
        if not obstacle(RESULTS / name, settings):
            data = prepared.sha256_of(settings.training.dataset)
            differences = platform_differences(Manifest.read(RESULTS / name), [look().cpu_model], data)
            if not differences:
                return name
            say(
                f"results/{name} is not resumed, because results would not be identical: {'; '.join(differences)}. "
                f"RESUME={name} resumes it anyway."
            )
    return None


def obstacle(folder: Path, settings: Settings) -> str | None:
    """Why a command with these settings cannot resume a run; None if it can."""
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError):
        return f"results/{folder.name} is not a run, or never started."
    step = newest_commit(folder)
    if step is None:
        return f"results/{folder.name} has no checkpoint."
    if step >= manifest.plan.steps:
        return f"results/{folder.name} has finished."
    if manifest.image.source_sha256 != source_sha256(files.sources(settings.own)):
        own = f", or with other files in {files.FOLDER}/" if settings.own else ""
        return f"results/{folder.name} was made by another version of Lockstep{own}."
    if other := list(_other_settings(manifest, settings)):
        return f"results/{folder.name} has different settings: {', '.join(other)}."
    if folders.is_held(folder):
        return f"results/{folder.name} is in progress."
    return None


def warn_about_platform(run_folder: Path, cpu_models: Sequence[str], dataset_sha256: str | None) -> list[str]:
    """Warn if the platform has changed since the run started, and add the warning to the manifest, for the page."""
    manifest = Manifest.read(run_folder)
    differences = platform_differences(manifest, cpu_models, dataset_sha256)
    if not differences:
        return []
    warning = f"resumed on another platform, so results may not be identical: {'; '.join(differences)}"
    if warning not in manifest.warnings:
        replace(manifest, warnings=[*manifest.warnings, warning]).write(run_folder)
    return [warning]


def platform_differences(manifest: Manifest, cpu_models: Sequence[str], dataset_sha256: str | None) -> list[str]:
    """The changes that alter a run's bits, other than settings and sources; `cpu_models` is by rank."""
    before = [each.cpu_model for each in manifest.ranks[: len(cpu_models)]]
    compared = {
        "PyTorch": (manifest.versions.torch, version("torch")),
        "BLAS": (manifest.versions.blas, process.blas()),
        "CPU": tuple(", ".join(dict.fromkeys(models)) for models in (before, cpu_models)),
        "data set": (manifest.dataset_sha256, dataset_sha256),
    }
    return [f"{name} was {old}, now {new}" for name, (old, new) in compared.items() if old is not None and old != new]


def _newest_first() -> list[str]:
    """Unfinished runs only: reading the manifests of hundreds of finished ones would take long."""
    found = [path for path in RESULTS.glob(f"*/{FILE}") if not path.parent.is_symlink() and is_unfinished(path.parent)]
    return [path.parent.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def _other_settings(manifest: Manifest, settings: Settings) -> Iterator[str]:
    """The settings in which the run differs, each with its value then and now."""
    given = {name.upper(): str(value) for name, value in (manifest.given or {}).items() if value is not None}
    before, now = (_compared(each) for each in (environment.of(given), settings))
    for name in sorted(before):
        if before[name] != now[name]:
            old, new = ("unset" if each[name] is None else each[name] for each in (before, now))
            yield f"{name.upper()}={old} (now {new})"
    # With `--scale` alone, WORKERS is unset in `prepare`; rank 0 has always counted the ranks.
    requested = settings.place.workers + 1 if "workers" in settings.given else None
    world_size = settings.place.world_size or settings.place.ranks_started or requested
    if world_size not in (None, manifest.world_size):
        yield f"{manifest.world_size} ranks (now {world_size})"


def _compared(settings: Settings) -> dict[str, Setting]:
    return settings.values(but=marked(Mark.OF_ONE_START, Mark.FREE_ON_RESUME))
