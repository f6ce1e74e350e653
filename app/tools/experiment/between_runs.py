"""The part of an experiment that runs in the image, between two runs of the cluster; the host only loops."""

import sys
from collections.abc import Sequence
from pathlib import Path

from app.errors import ExtensionError, SettingError
from app.machine import folders
from app.machine.command_line import by_name
from app.machine.say import Say, counted, escaped
from app.records import series
from app.records.series import PlannedRun
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import IN_ONE_GO, ExperimentPlan, Trial

MOST_ERRORS = 3  # of a failed run that are printed


def plan(names: Sequence[str], given: Sequence[str], say: Say, *, quick: bool, fresh: bool, dry_run: bool) -> None:
    """Check grid files and everything in them, and write the plans down; a dry run only tells of them."""
    from app.tools.experiment import page
    from app.tools.experiment.plan.estimate import expected_seconds

    try:
        grids = [grid.read(name, quick=quick, given=by_name(given)) for name in names]
        for read in grids:
            page.views_of(read)
        folders.check_writable(folders.RESULTS)
        plans = [ExperimentPlan.make(read, expected_seconds, fresh=fresh) for read in grids]
    except ExtensionError as error:
        error.exit_code = SettingError.exit_code  # no run has begun
        raise
    all_left = 0.0
    for read, made in zip(grids, plans, strict=True):
        done = [] if fresh else [trial.name for trial in made.finished()]
        left = sum(trial.expected_seconds for trial in made.trials) if fresh else made.seconds_left()
        all_left += left
        say(
            f"{read.name}{' (quick)' if quick else ''}: {read.title}. {counted(len(read.cells), 'cell')} x "
            f"{counted(read.repeats, 'round')}, {len(done)} of {counted(len(made.trials), 'run')} finished, "
            f"{f'{_duration(left)} to go' if left else 'nothing to do'}."
        )
        if dry_run:
            for trial in made.trials:
                state = "finished" if trial.name in done else _duration(trial.expected_seconds)
                say(f"  {trial.name}: {state}; {_settings(trial)}")
        else:
            made.write(fresh=fresh)
    if len(plans) > 1:
        say(f"Total: {_duration(all_left)} to go.")


def next_series(name: str, ended: Sequence[str], shown_as: str, say: Say, *, quick: bool) -> None:
    """Note how the last series ended, plan the next, and print the settings of its containers; nothing at the end."""
    made = ExperimentPlan.read(name, quick=quick)
    if ended:
        for each in made.note_series(int(ended[0]), float(ended[1])):
            if each.exit_code:
                log = series.log_of(made.folder, each.run)
                print(
                    f"    {each.run} failed with exit code {each.exit_code}. Its output: {shown_as}/{log.name}",
                    *_errors(log),
                    sep="\n    ",
                    file=sys.stderr,
                    flush=True,
                )
    open_ones, found = made.open(), made.next()
    if not found:
        return
    tried = made.attempts_made()
    planned = []
    for place, trial in enumerate(found):
        number, again = made.trials.index(trial) + 1, ", retry" if tried[trial.name] else ""
        left = _duration(made.seconds_left(open_ones[place:]))
        title = f"[{number}/{len(made.trials)}] {trial.cell}, round {trial.round}{again}, {left} to go"
        planned.append(PlannedRun(trial.name, title, trial.settings | IN_ONE_GO))
    series.plan(made.folder, planned)
    settings = found[0].of_containers
    if settings.get("BACKEND") == "mpi":
        print(planned[0].title, file=sys.stderr, flush=True)
        settings = planned[0].settings
    for setting, value in settings.items():
        say(f"{setting}={value}")


def _errors(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return [escaped(line) for line in lines if "error: " in line][:MOST_ERRORS]


def make_page(name: str, given: Sequence[str], say: Say, *, quick: bool) -> int:
    """Make the page of what is finished; the exit code says whether that is everything."""
    from app.tools.experiment import page

    read = grid.read(name, quick=quick, given=by_name(given))
    made = ExperimentPlan.read(name, quick=quick)
    if not made.trials:
        version, rest = ("quick", " --quick first") if quick else ("full", " first, or add --quick for its quick runs")
        raise SettingError(f"{name} has no {version} runs. Run scripts/experiment {name}{rest}.", "missing-file")
    path = page.write(read, made)
    may_fail = {cell.name: cell.may_fail for cell in read.cells}
    failed = made.failed()
    for trial in failed:
        excuse = may_fail.get(trial.cell)
        say(f"{trial.name} failed{f', as its grid allows: {excuse}' if excuse else ''}")
    if made.open():
        say(f"The report lacks {len(made.trials) - len(made.finished())} of {len(made.trials)} runs.")
    page.write_index()
    say(f"Report: {path}")
    return int(any(not may_fail.get(trial.cell) for trial in failed))


def _settings(trial: Trial) -> str:
    hidden = ("RUN_NAME", "WORLD_SIZE")
    return " ".join(f"{name}={value}" for name, value in trial.settings.items() if name not in hidden)


def _duration(seconds: float) -> str:
    """A length of time, as exact as an estimate is."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"
