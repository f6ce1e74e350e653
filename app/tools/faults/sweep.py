"""The part of a fault sweep that runs in the image. The host only executes the trials and observes them."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom

from pydantic import TypeAdapter

from app.errors import LockstepError
from app.machine import folders
from app.machine.command_line import by_name
from app.machine.say import Say, counted
from app.records.manifest import Manifest
from app.tools.faults import kills, plan, recovery, seen, table
from app.tools.faults.judge import NO_EFFECT, WRONG, judge
from app.tools.faults.kills import Kill
from app.tools.faults.plan import FaultTrial

SWEEPS = folders.RESULTS / "faults"
PLAN, KILLS, TABLE, VERDICT, TRIES = "plan.json", "kills.json", "table.txt", "verdict.json", "tries"
MOST_SEED = 2**31 - 1


def make_plan(
    sweep: str,
    say: Say,
    *,
    trials: int,
    seed: int | None,
    kinds: str | None,
    modes: str | None,
    given: Sequence[str],
    dry_run: bool,
) -> None:
    """Plan the trials, and write the plan, or only print it in a dry run."""
    chosen = SystemRandom().randint(1, MOST_SEED) if seed is None else seed
    made = plan.make(chosen, trials, _listed(kinds), _listed(modes), by_name(given))
    say(f"Seed {chosen}: {counted(trials, 'trial')}, each a run with its own settings.")
    if dry_run:
        for trial in made:
            mode, timeout = trial.settings["SYNC_MODE"], trial.settings["PEER_TIMEOUT"]
            say(f"  {trial.name}: {mode}, {trial.words}, {trial.moment.words}, PEER_TIMEOUT={timeout}")
        return
    _write(sweep, PLAN, made)


def make_plan_of_kills(
    sweep: str, say: Say, *, number: int, seed: int | None, modes: str | None, given: Sequence[str], dry_run: bool
) -> None:
    """Plan kills from which runs must recover, and write the plan, or only print it in a dry run."""
    chosen = SystemRandom().randint(1, MOST_SEED) if seed is None else seed
    made = kills.make(chosen, number, _listed(modes), by_name(given))
    say(f"Seed {chosen}: {counted(number, 'kill')}, each in its own run, and a reference run per mode")
    if dry_run:
        for kill in made:
            say(f"  {kill.name}: {kill.settings['SYNC_MODE']}, killed: {kill.words}")
        return
    _write(sweep, KILLS, made)


def _write(sweep: str, name: str, trials: Sequence[FaultTrial | Kill]) -> None:
    (SWEEPS / sweep).mkdir(parents=True)
    folders.replace_file(SWEEPS / sweep / name, json.dumps([asdict(each) for each in trials], indent=2) + "\n")


def next_trial(sweep: str, say: Say) -> None:
    """Print the host's instructions for the next trial, one per line, and nothing after the last trial."""
    folder = SWEEPS / sweep
    trial = next((each for each in _planned(folder) if not (_notes(folder, each) / VERDICT).is_file()), None)
    if trial is None:
        return
    notes = _notes(folder, trial)
    notes.mkdir(exist_ok=True)
    say(f"trial {trial.name}")
    if isinstance(trial, Kill):
        moment = trial.moment
        seconds = moment.sooner(_tries(notes))
        # The undisturbed run's manifest has the length of an epoch.
        steps = moment.epochs * _steps_of_an_epoch(folder / trial.undisturbed) if moment.epochs else 0
        say(f"recover {kills.PATIENCE_SECONDS}")
        for rank in trial.victims:
            say(f"kill {rank} {seconds} {steps} {moment.file}")
    else:
        say(f"moment {trial.moment.step} {trial.moment.seconds}")
        say(f"port {trial.port}")
        for fault in trial.faults:
            say(f"fault {fault.kind} {fault.rank} {fault.rubbish or fault.seconds}")
        say(f"patience {trial.join_timeout + 2 * plan.OVER_SECONDS:.0f} {trial.patience:.0f}")
        if not trial.victims:
            say(f"unharmed {'end' if trial.settings['MAX_STEPS'] else 'stop'}")
    for name, value in trial.settings.items():
        say(f"{name}={value}")


def judge_trial(sweep: str, name: str, say: Say) -> None:
    """Judge a trial from the host's notes and the run's folder. A kill that came too late is prepared for a retry."""
    folder = SWEEPS / sweep
    planned = _planned(folder)
    number, trial = next((number, each) for number, each in enumerate(planned, 1) if each.name == name)
    observed = seen.read(_notes(folder, trial), folder / name)
    row: table.FaultRow | recovery.RecoveryRow
    if isinstance(trial, Kill):
        row = recovery.judge(trial, observed, folder / name)
        line = recovery.progress(row, number, len(planned))
        if row.verdict == NO_EFFECT and (tries := _tries(_notes(folder, trial))) + 1 < kills.MOST_TRIES:
            (_notes(folder, trial) / TRIES).write_text(str(tries + 1))
            shutil.rmtree(folder / name, ignore_errors=True)
            say(f"{line}: the kill came too late and is retried")
            return
    else:
        row = table.row(trial, observed, judge(trial, observed))
        line = table.progress(row, number, len(planned))
    folders.replace_file(_notes(folder, trial) / VERDICT, json.dumps(asdict(row), indent=2) + "\n")
    say(line)
    if row.verdict == WRONG:
        say(f"    logs: {_notes(folder, trial)}")


def make_table(sweep: str, say: Say) -> int:
    """Print the table of all trials; the exit code is 1 if any trial is wrong."""
    folder = SWEEPS / sweep
    found = [_notes(folder, trial) / VERDICT for trial in _planned(folder)]
    verdicts = [path.read_text() for path in found if path.is_file()]
    rows: Sequence[table.FaultRow | recovery.RecoveryRow]
    if (folder / KILLS).is_file():
        rows = recoveries = [TypeAdapter(recovery.RecoveryRow).validate_json(each) for each in verdicts]
        text = f"{table.text(rows, recovery.HEADINGS)}\n{recovery.tally(recoveries)}"
    else:
        rows = ends = [TypeAdapter(table.FaultRow).validate_json(each) for each in verdicts]
        text = f"{table.text(rows)}\n{table.tally(ends)}"
    folders.replace_file(folder / TABLE, text + "\n")
    say(text)
    say(f"Table and logs: {folder}")
    return 1 if any(row.verdict == WRONG for row in rows) else 0


def _steps_of_an_epoch(run_folder: Path) -> int:
    try:
        return Manifest.read(run_folder).plan.steps_per_epoch
    except (OSError, ValueError):
        return 1  # the cause is in the trial's verdict


def _tries(notes: Path) -> int:
    """The number of kills of this trial that have come too late so far."""
    return int((notes / TRIES).read_text()) if (notes / TRIES).is_file() else 0


def _planned(folder: Path) -> Sequence[FaultTrial | Kill]:
    path = folder / KILLS if (folder / KILLS).is_file() else folder / PLAN
    try:
        written = path.read_text()
    except OSError as error:
        raise LockstepError(
            f"cannot read {path}: {error.strerror}. Run scripts/faults again.", "missing-file"
        ) from None
    if path.name == KILLS:
        return TypeAdapter(list[Kill]).validate_json(written)
    return TypeAdapter(list[FaultTrial]).validate_json(written)


def _notes(folder: Path, trial: FaultTrial | Kill) -> Path:
    """The folder of the host's notes. It is not the run's own folder, which `prepare` creates."""
    return folder / f"{trial.name}-seen"


def _listed(words: str | None) -> list[str] | None:
    return None if words is None else [word for word in words.split(",") if word]
