"""Runs once, before the ranks start: checks the settings, makes the data set, opens the run's folder."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path

from app.errors import ExtensionError, SettingError
from app.extensions import moved, reading
from app.extensions.files import path_of
from app.machine import folders
from app.machine.cpus import look
from app.machine.folders import PREPARED, RESULTS, RunTicket
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.modes import MODES
from app.run import resume
from app.settings import environment
from app.settings.settings import Settings
from app.settings.training import TrainingSettings
from app.training.checkpoint.keeper import newest_commit
from app.training.datasets import prepared, source_of

FLOOR_MODE, FLOOR_ENDING = "none", "-floor"  # as scripts/host/cluster.sh sets them


def prepare(settings: Settings, neighbours: str, say: Say, clean_ups: CleanUps, *, only_data: bool = False) -> None:
    """Do everything that has to be done once, for any number of ranks: on machines without rank 0, the data alone."""
    settings.place.check_machine(len(look().cores))
    check_own(settings)
    for name in settings.own.values():
        for notice in moved.notices(path_of(name), path_of(name)):
            say(notice)
    try:
        _make_data(settings.training, say, clean_ups)
    except ExtensionError as error:
        error.exit_code = SettingError.exit_code  # no rank has started
        raise
    if only_data:
        folders.RUN_FILE.unlink(missing_ok=True)  # of a run whose rank 0 was here
        return
    going_on = resume.choose(settings, say)
    run = going_on or open_run(settings.recovery.run_name)
    folders.write_ticket(RunTicket(run, going_on is not None, neighbours, secrets.token_hex(8)))
    averaging, training = settings.averaging, settings.training
    also = f", COMPRESSION={averaging.compression}" if averaging.compression != "none" else ""
    also += f", SYNC_EVERY={averaging.sync_every}" if averaging.sync_every else ""
    goes_on = f" (it goes on at step {newest_commit(RESULTS / run)}; RESUME=never begins a new run)" if going_on else ""
    say(  # find_run in scripts/host/cluster.sh takes the run's name from this line
        f"results/{run}: {training.model} on {source_of(training.dataset_name).title}, SYNC_MODE={averaging.sync_mode}"
        f"{also}{goes_on}"
    )


def _make_data(training: TrainingSettings, say: Say, clean_ups: CleanUps) -> None:
    prepared.check_fit(training.model, training.dataset_name)
    for folder in (RESULTS, PREPARED):
        folders.check_writable(folder)
    began = time.monotonic()
    if prepared.make(training.dataset_name, say, clean_ups):
        say(f"made the data set {training.dataset_name} in {time.monotonic() - began:.1f} s")
    prepared.load_for(training)  # refuses more samples than there are


def check_own(settings: Settings) -> None:
    """Refuse a user's own file that is not what its setting needs, from its text alone: only a data set is run here."""
    checks: dict[str, Callable[[str], None]] = {
        "SYNC_MODE": reading.check_mode,
        "MODEL": reading.check_model,
        "DATASET": reading.check_dataset,
    }
    for setting, name in settings.own.items():
        checks[setting](name)


def check_floor(settings: Settings) -> None:
    """Refuse whatever would stop a run after its floor, the same run without synchronisation, has been made."""
    if settings.averaging.sync_mode == FLOOR_MODE:
        others = ", ".join(mode for mode in MODES if mode != FLOOR_MODE)
        raise SettingError(f"SYNC_MODE={FLOOR_MODE}: this is the floor itself. Allowed with --with-floor: {others}.")
    check_own(settings)
    prepared.check_fit(settings.training.model, settings.training.dataset_name)
    if settings.recovery.run_name is None:
        return
    floor = f"{settings.recovery.run_name}{FLOOR_ENDING}"
    for problem in environment.problems({"RUN_NAME": floor}).values():
        raise SettingError(f"{problem} The floor gets the run's name with {FLOOR_ENDING} behind it.")
    for name in (settings.recovery.run_name, floor):
        if (RESULTS / name).exists():
            raise _taken(name)


def open_run(name: str | None) -> str:
    """Make the run's folder, under the given name or the time of the start."""
    stem = name or time.strftime("%Y%m%d-%H%M%S")
    run = stem
    attempt = 1
    while not _make_folder(RESULTS / run):
        if name:
            raise _taken(name)
        attempt += 1  # another cluster started in the same second
        run = f"{stem}-{attempt}"
    return run


def find_or_open_run(settings: Settings, say: Say) -> str:
    """The run that rank 0 takes part in: the one that `prepare` has opened or chosen, or else one that it does."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    name = settings.recovery.run_name or (ticket and ticket.run)
    if name and _is_empty(RESULTS / name):
        return name
    if ticket and ticket.goes_on and not resume.why_not(RESULTS / ticket.run, settings):
        return ticket.run
    if chosen := resume.choose(settings, say):
        return chosen
    folders.check_writable(RESULTS)
    return open_run(settings.recovery.run_name)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _taken(name: str) -> SettingError:
    return SettingError(
        f"RUN_NAME={name}: results/{name} exists already, and a run never overwrites another. "
        "Choose another name, or move that folder away."
    )


def _make_folder(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True
