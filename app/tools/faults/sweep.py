"""The part of a fault sweep that runs in the image. The host only executes the trials and observes them."""

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom

from pydantic import TypeAdapter

from app.machine import folders
from app.machine.say import Say, counted
from app.records.manifest import Manifest
from app.tools.faults import plan, seen, table
from app.tools.faults.judge import NO_EFFECT, WRONG, judge
from app.tools.faults.plan import FaultTrial

SWEEPS = folders.RESULTS / "faults"
PLAN, TABLE, VERDICT, TRIES = "plan.json", "table.txt", "verdict.json", "tries"
ORDERS = "orders"  # a trial that the host must make; absent after the last one
MOST_SEED = 2**31 - 1
MOST_TRIES = 4  # attempts at a kill that comes after its ranks have exited


def make_plan(
    sweep: str,
    say: Say,
    *,
    trials: int,
    kills: int | None,
    seed: int | None,
    kinds: Sequence[str] | None,
    modes: Sequence[str] | None,
    given: Mapping[str, str],
    dry_run: bool,
) -> None:
    """Plan the trials, and write the plan, or only print it in a dry run."""
    chosen = SystemRandom().randint(1, MOST_SEED) if seed is None else seed
    if kills is None:
        made = plan.make(chosen, trials, modes, given, kinds=kinds)
        say(f"Seed {chosen}: {counted(trials, 'trial')}, each a run with its own settings.")
    else:
        made = plan.make(chosen, kills, modes, given, kills=True)
        say(f"Seed {chosen}: {counted(kills, 'kill')}, each in its own run, and a reference run per mode")
    if dry_run:
        for trial in made:
            say(f"  {trial.name}: {trial.in_full}, PEER_TIMEOUT={trial.settings['PEER_TIMEOUT']}")
        return
    (SWEEPS / sweep).mkdir(parents=True)
    _write(SWEEPS / sweep / PLAN, [asdict(each) for each in made])


def go_on(sweep: str, say: Say) -> int:
    """Judge the trial that the host has made, and order the next one, or print the table after the last.

    The exit code is 1 if any trial is wrong. A kill that came too late is ordered again.
    """
    folder = SWEEPS / sweep
    planned = TypeAdapter(list[FaultTrial]).validate_json((folder / PLAN).read_text())
    for number, trial in enumerate(planned, 1):
        notes = folder / f"{trial.name}-seen"  # not the run's own folder, which `prepare` creates
        notes.mkdir(exist_ok=True)
        if (notes / seen.CONTAINERS).is_file() and not (notes / VERDICT).is_file():
            say(f"[{number}/{len(planned)}] {_judged(folder, notes, trial)}")
        if not (notes / VERDICT).is_file():
            folders.replace_file(folder / ORDERS, "\n".join(_orders(folder, notes, number, trial)) + "\n")
            return 0
    (folder / ORDERS).unlink()
    verdicts = [json.loads((folder / f"{trial.name}-seen" / VERDICT).read_text()) for trial in planned]
    text = table.text([each["columns"] for each in verdicts])
    folders.replace_file(folder / TABLE, text + "\n")
    say(text)
    say(f"Table and logs: {folder}")
    return 1 if any(each["verdict"] == WRONG for each in verdicts) else 0


def _orders(folder: Path, notes: Path, number: int, trial: FaultTrial) -> Iterator[str]:
    """A trial as assignments in the host's shell."""
    moment = trial.moment
    # The undisturbed run's manifest has the length of an epoch.
    steps = moment.epochs * _steps_of_an_epoch(folder / trial.undisturbed) if moment.epochs else moment.steps
    tries = _tries(notes)
    # A kill that came too late comes sooner: after half of the delay each time, and in the last attempt at once.
    seconds = 0.0 if tries + 1 >= MOST_TRIES else round(moment.seconds / 2**tries, 3)
    when = f"{steps} {seconds} {moment.file}"
    faults = [
        f"{fault.kind} {fault.rank} {fault.seconds} {fault.rubbish} {number} {trial.place.master_port}"
        for fault in trial.faults
    ]
    if trial.recovers:
        faults = [f"strike {fault.rank} {when}" for fault in trial.faults]
    yield f"TRIAL={shlex.quote(trial.name)}"
    yield f"MOMENT={shlex.quote('' if trial.recovers else when)}"
    yield f"FAULTS=({shlex.join(faults)})"
    yield f"PAUSED=({' '.join(str(each.rank) for each in trial.faults if each.kind == 'pause')})"
    yield f"START_PATIENCE={trial.start_patience:.0f}"
    yield f"PATIENCE={trial.patience:.0f}"
    yield f"ENDLESS={'yes' if trial.endless else ''}"
    for name, value in trial.settings.items():
        yield f"export {shlex.quote(f'{name}={value}')}"


def _judged(folder: Path, notes: Path, trial: FaultTrial) -> str:
    """Judge a trial from the host's notes and the run's folder, and return the verdict in words."""
    run_folder = folder / trial.name
    observed = seen.read(notes, run_folder)
    verdict = judge(trial, observed, seen.left_in(folder / trial.undisturbed))
    columns = table.row(trial, observed, verdict)
    recovery = columns.get(table.RECOVERY)
    line = f"{trial.in_full}{f', recovered in {recovery} s' if recovery else ''}: {verdict.word}"
    if trial.recovers and verdict.word == NO_EFFECT and _tries(notes) + 1 < MOST_TRIES:
        (notes / TRIES).write_text(str(_tries(notes) + 1))
        (notes / seen.CONTAINERS).unlink()
        shutil.rmtree(run_folder, ignore_errors=True)
        return f"{line}: the kill came too late and is retried"
    _write(notes / VERDICT, {"verdict": verdict.word, "reasons": verdict.reasons, "columns": columns})
    logs = [f"logs: {notes}"] if verdict.word == WRONG else []
    return "\n    ".join([line, *verdict.reasons, *logs])


def _steps_of_an_epoch(run_folder: Path) -> int:
    try:
        return Manifest.read(run_folder).plan.steps_per_epoch
    except (OSError, ValueError):
        return 1  # the cause is in the trial's verdict


def _tries(notes: Path) -> int:
    """The number of kills of this trial that have come too late so far."""
    return int((notes / TRIES).read_text()) if (notes / TRIES).is_file() else 0


def _write(path: Path, content: object) -> None:
    folders.replace_file(path, json.dumps(content, indent=2) + "\n")
