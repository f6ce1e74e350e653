"""Which run a command goes on with: the newest unfinished one that is the same in all that matters, if there is one."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from app.checkpoint.keeper import is_unfinished, newest_commit
from app.datasets import prepared
from app.errors import SettingError
from app.extensions import files
from app.machine import folders, process
from app.machine.cpus import look
from app.machine.folders import RESULTS
from app.machine.say import Say
from app.machine.source import source_sha256
from app.records.manifest import FILE, Manifest, Setting
from app.run.manifest import OF_ONE_START
from app.settings import environment
from app.settings.fields import DatasetName, Settings

AUTO, NEVER = "auto", "never"
# These change neither the training nor what its records mean.
FREE = OF_ONE_START | {"resume", "checkpoint_every", "join_timeout", "peer_timeout"}


def choose(settings: Settings, say: Say) -> str | None:
    """The run to go on with; None to begin a new one. Refuses a run that was named and cannot go on."""
    if settings.resume == NEVER:
        return None
    if settings.resume != AUTO:
        folder = (RESULTS / settings.resume).resolve()
        if reason := why_not(folder, settings):
            raise SettingError(f"RESUME={settings.resume}: {reason} RESUME=never begins a new run.")
        return folder.name
    asked = [settings.run_name] if settings.run_name else _newest_first()
    for name in asked:
        if not why_not(RESULTS / name, settings):
            here = platform_differences(Manifest.read(RESULTS / name), [look().cpu_model], settings.dataset_name)
            if not here:
                return name
            say(
                f"results/{name} is not resumed, because the results would not be identical: {'; '.join(here)}. "
                f"RESUME={name} resumes it nevertheless."
            )
    return None


def why_not(folder: Path, settings: Settings) -> str | None:
    """Why a command with these settings cannot go on with a run; None if it can."""
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError):
        return f"results/{folder.name} is no run, or had not begun."
    step = newest_commit(folder)
    if step is None:
        return f"results/{folder.name} has saved no state."
    if step >= manifest.plan.steps:
        return f"results/{folder.name} has finished."
    if manifest.image.source_sha256 != source_sha256(files.sources(settings.own)):
        own = f", or with other files in {files.FOLDER}/" if settings.own else ""
        return f"results/{folder.name} was made by another version of the program{own}."
    if other := list(_other_settings(manifest, settings)):
        return f"results/{folder.name} has other settings: {'; '.join(other)}."
    if folders.is_held(folder):
        return f"results/{folder.name} is in progress."
    return None


def platform_differences(manifest: Manifest, cpu_models: Sequence[str], dataset: DatasetName) -> list[str]:
    """What a run's bits depend on besides its settings and sources, and is not as it was; CPU models are by rank."""
    before = [each.cpu_model for each in manifest.ranks[: len(cpu_models)]]
    compared = {
        "PyTorch": (manifest.versions.torch, version("torch")),
        "BLAS": (manifest.versions.blas, process.blas()),
        "CPU": tuple(", ".join(dict.fromkeys(models)) for models in (before, cpu_models)),
        "data set": (manifest.dataset_sha256, prepared.sha256_of(dataset)),
    }
    return [f"{what} was {old}, is {new}" for what, (old, new) in compared.items() if old is not None and old != new]


def check_world_size(folder: Path, world_size: int) -> None:
    """Refuse to go on with a run of more or fewer ranks: before rank 0 counts, `--scale` is not visible."""
    with suppress(OSError, ValueError):
        if (before := Manifest.read(folder).world_size) != world_size:
            raise SettingError(
                f"results/{folder.name} was started with {before} ranks, and {world_size} are asked for now. "
                f"Start as many as before (WORKERS={before - 1}), or a new run: RESUME=never."
            )


def _newest_first() -> list[str]:
    """Of those that may go on: of hundreds of runs, hardly any."""
    begun = [path for path in RESULTS.glob(f"*/{FILE}") if not path.parent.is_symlink() and is_unfinished(path.parent)]
    return [path.parent.name for path in sorted(begun, key=lambda path: path.stat().st_mtime, reverse=True)]


def _other_settings(manifest: Manifest, settings: Settings) -> Iterator[str]:
    """Those in which the run differs, in words."""
    given = {name.upper(): str(value) for name, value in (manifest.given or {}).items() if value is not None}
    before, now = (_compared(each) for each in (environment.of(given), settings))
    for name in sorted(before):
        if before[name] != now[name]:
            yield f"{name.upper()}={before[name]} there, {now[name]} here"
    asked = settings.workers + 1 if "workers" in settings.model_fields_set else None
    world_size = settings.world_size or settings.ranks_started or asked
    if world_size not in (None, manifest.world_size):
        yield f"{manifest.world_size} ranks there, {world_size} here"


def _compared(settings: Settings) -> dict[str, Setting]:
    own = settings.model_dump(mode="json", exclude=set(FREE))
    return own | {"dataset": settings.dataset_name}
