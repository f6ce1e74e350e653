"""Runs once, before the ranks start: checks the settings, makes the data set, opens the run's folder."""

import tempfile
import time
from pathlib import Path

from app.datasets import SOURCES, prepared
from app.errors import SettingError
from app.machine import folders
from app.machine.folders import PREPARED, RESULTS
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.settings.fields import Settings


def prepare(settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    """Do everything that has to be done once, for any number of ranks."""
    prepared.check_fit(settings.model, settings.dataset_name)
    for folder in (RESULTS, PREPARED):
        folders.check_writable(folder)
    began = time.monotonic()
    if prepared.make(settings.dataset_name, say, clean_ups):
        say(f"made the data set {settings.dataset_name} in {time.monotonic() - began:.1f} s")
    prepared.load_for(settings)  # refuses more samples than there are
    run = open_run(settings.run_name)
    folders.hand_over(run)
    say(f"results/{run}: {settings.model} on {SOURCES[settings.dataset_name].title}, SYNC_MODE={settings.sync_mode}")


def open_run(name: str | None) -> str:
    """Make the run's folder, under the given name or the time of the start, and let `latest` point at it."""
    stem = name or time.strftime("%Y%m%d-%H%M%S")
    run = stem
    attempt = 1
    while not _make_folder(RESULTS / run):
        if name:
            raise SettingError(
                f"RUN_NAME={name}: results/{name} exists already, and a run never overwrites another. "
                "Choose another name, or move that folder away."
            )
        attempt += 1  # another cluster started in the same second
        run = f"{stem}-{attempt}"
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix=".") as scratch:
        link = Path(scratch, "latest")
        link.symlink_to(run)
        link.replace(RESULTS / "latest")
    return run


def _make_folder(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True
