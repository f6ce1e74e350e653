"""The part of an experiment that runs in the image, between two runs of the cluster; the host only loops."""

import sys
from collections.abc import Sequence

from app.errors import ExtensionError, SettingError
from app.machine import folders
from app.machine.command_line import by_name
from app.machine.say import Say
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan, Trial


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
            f"{read.name}{' (quick)' if quick else ''}: {read.title}. {_number(len(read.cells), 'cell')} x "
            f"{_number(read.repeats, 'round')}, {len(done)} of {_number(len(made.trials), 'run')} finished, "
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


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def next_trial(name: str, ended: Sequence[str] | None, say: Say, *, quick: bool) -> None:
    """Note how the last trial ended, and print the next one's settings, a line each; nothing when all are through."""
    made = ExperimentPlan.read(name, quick=quick)
    if ended:
        trial, exit_code, seconds = ended
        made.note(trial, int(exit_code), float(seconds))
    chosen = made.next()
    if chosen is None:
        return
    number = made.trials.index(chosen) + 1
    again = ", retry" if made.attempts_made()[chosen.name] else ""
    left = _duration(made.seconds_left())
    progress = f"[{number}/{len(made.trials)}] {chosen.cell}, round {chosen.round}{again}, {left} to go"
    print(progress, file=sys.stderr, flush=True)
    for setting, value in chosen.settings.items():
        say(f"{setting}={value}")


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
    bad = [trial for trial in made.failed() if not may_fail.get(trial.cell)]
    for trial in made.failed():
        excuse = may_fail.get(trial.cell)
        say(f"{trial.name} failed{f', as its grid allows: {excuse}' if excuse else ''}")
    if made.open():
        say(f"The report lacks {len(made.trials) - len(made.finished())} of {len(made.trials)} runs.")
    page.write_index()
    say(f"Report: {path}")
    return 1 if bad else 0


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
