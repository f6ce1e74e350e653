"""Runs once, before the ranks start: checks the settings, builds the data set, creates the run's folder."""

import secrets
import time
from pathlib import Path

from app.errors import ExtensionError, LockstepError, SettingError
from app.extensions import moved, reading
from app.extensions.files import path_of
from app.machine import folders
from app.machine.cpus import look
from app.machine.folders import PREPARED, RESULTS, RunTicket
from app.machine.interrupt import CleanUps
from app.machine.say import Say, reporting
from app.modes import MODES
from app.records import series
from app.records.places import newest_commit
from app.records.series import EndedRun
from app.run import resume
from app.settings import environment
from app.settings.settings import Settings
from app.settings.training import TrainingSettings
from app.training.datasets import prepared, source_of

BASELINE_MODE, BASELINE_ENDING = "none", "-floor"  # as in scripts/host/cluster.sh


def prepare(settings: Settings, neighbours: str, say: Say, clean_ups: CleanUps, *, only_data: bool = False) -> None:
    """Check the settings, build the data set, and open or resume a run; the last only on rank 0's machine."""
    _check_and_make_data(settings, say, clean_ups)
    if only_data:
        folders.RUN_FILE.unlink(missing_ok=True)  # left by a run whose rank 0 was on this machine
        return
    resumed = resume.choose(settings, say)
    run = resumed or open_run(settings.recovery.run_name)
    folders.write_ticket(RunTicket(run, resumed is not None, neighbours, secrets.token_hex(8)))
    averaging, training = settings.averaging, settings.training
    also = f", COMPRESSION={averaging.compression}" if averaging.compression != "none" else ""
    also += f", SYNC_EVERY={averaging.sync_every}" if averaging.sync_every else ""
    also += f" (resumes at step {newest_commit(RESULTS / run)}; RESUME=never starts a new run)" if resumed else ""
    say(  # find_run in scripts/host/cluster.sh parses the run's name from this line
        f"results/{run}: {training.model} on {source_of(training.dataset).title}, SYNC_MODE={averaging.sync_mode}{also}"
    )


def prepare_series(neighbours: str, say: Say, clean_ups: CleanUps) -> None:
    """The same for runs that the same ranks make in turn. One that cannot start is noted as failed."""
    planned = series.planned(RESULTS)
    for each in planned:
        try:
            _check_and_make_data(environment.of(each.settings), say, clean_ups)
        except LockstepError as error:
            series.log_of(RESULTS, each.run).write_text(f"{error.line}\n")
            series.end(RESULTS, EndedRun(each.run, error.exit_code, 0.0))
    folders.write_ticket(RunTicket(planned[0].run, False, neighbours, secrets.token_hex(8)))


def _check_and_make_data(settings: Settings, say: Say, clean_ups: CleanUps) -> None:
    settings.place.check_machine(len(look().cores))
    reading.check(settings.own)
    for name in settings.own.values():
        for notice in moved.notices(path_of(name), path_of(name)):
            say(notice)
    try:
        _make_data(settings.training, say, clean_ups)
    except ExtensionError as error:
        error.exit_code = SettingError.exit_code  # as for any input that is refused before a rank starts
        raise


def _make_data(training: TrainingSettings, say: Say, clean_ups: CleanUps) -> None:
    began = time.monotonic()
    with reporting(f"preparing the data set {training.dataset}", say):
        prepared.check_fit(training.model, training.dataset)
        for folder in (RESULTS, PREPARED):
            folders.check_writable(folder)
        if not prepared.folder_of(training.dataset).is_dir():
            say(f"building the data set {training.dataset}")
        made = prepared.make(training.dataset, say, clean_ups)
    if made:
        say(f"built the data set {training.dataset} in {time.monotonic() - began:.1f} s")
    prepared.load_for(training)  # refuses a setting that requests more samples than exist


def check_baseline(settings: Settings) -> None:
    """Before the baseline without synchronisation is trained, refuse settings that would stop the run that follows."""
    if settings.averaging.sync_mode == BASELINE_MODE:
        others = ", ".join(mode for mode in MODES if mode != BASELINE_MODE)
        message = f"SYNC_MODE={BASELINE_MODE} is itself the baseline of --with-floor. Choose from: {others}."
        raise SettingError(message, "conflicting-settings")
    reading.check(settings.own)
    prepared.check_fit(settings.training.model, settings.training.dataset)
    if settings.recovery.run_name is None:
        return
    baseline = f"{settings.recovery.run_name}{BASELINE_ENDING}"
    for problem in environment.problems({"RUN_NAME": baseline}).values():
        raise SettingError(f"{problem} The baseline's name is RUN_NAME{BASELINE_ENDING}.")
    for name in (settings.recovery.run_name, baseline):
        if (RESULTS / name).exists():
            raise _run_exists(name)


def open_run(name: str | None) -> str:
    """Create the run's folder, named as given or after the current time."""
    stem = name or time.strftime("%Y%m%d-%H%M%S")
    run = stem
    attempt = 1
    while not _make_folder(RESULTS / run):
        if name:
            raise _run_exists(name)
        attempt += 1  # another cluster started in the same second
        run = f"{stem}-{attempt}"
    return run


def find_or_open_run(settings: Settings, say: Say) -> str:
    """The run that `prepare` opened or chose; without `prepare`, or if that one no longer fits, rank 0 chooses."""
    ticket = folders.run_ticket() if folders.RUN_FILE.is_file() else None
    name = settings.recovery.run_name or (ticket and ticket.run)
    if name and _is_empty(RESULTS / name):
        return name
    if ticket and ticket.goes_on and not resume.obstacle(RESULTS / ticket.run, settings):
        return ticket.run
    if chosen := resume.choose(settings, say):
        return chosen
    folders.check_writable(RESULTS)
    return open_run(settings.recovery.run_name)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _run_exists(name: str) -> SettingError:
    return SettingError(
        f"RUN_NAME={name}: results/{name} already exists, and a run never overwrites another. "
        "Choose another name, or move that folder away.",
        "run-exists",
    )


def _make_folder(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True
