"""The commands of a run: train as one rank, prepare or check for all ranks, draw the schedule, show the progress."""

import sys
from argparse import REMAINDER, Namespace

from app.machine.command_line import Commands, add_command
from app.machine.interrupt import end_on_signal
from app.machine.quick_imports import quick_imports
from app.machine.say import say
from app.settings.commands import add_rank_options, rank_options


def add_to(commands: Commands) -> None:
    train = add_command(commands, "train", "train as one rank of a run", _train)
    add_rank_options(train)
    prepare = add_command(commands, "prepare", "before `train`: build the data set, create the run's folder", _prepare)
    check = add_command(commands, "check", "check the settings, and a command line if given", _check)
    for command in (prepare, check):
        meaning = "names of the caller's environment variables, A,B,C: warn about likely misspelt settings"
        command.add_argument("--variables", default="", metavar="NAMES", help=meaning)
        meaning = "other clusters running on this machine, PROJECT:USER:CONTAINERS,...: warn about shared cores"
        command.add_argument("--neighbours", default="", metavar="LIST", help=meaning)
    prepare.add_argument("--only-data", action="store_true", help="only build the data set (machines without rank 0)")
    check.add_argument("--with-floor", action="store_true", help="also check the baseline without synchronisation")
    check.add_argument("command_line", nargs=REMAINDER, help="another command line to check, such as train")
    add_command(commands, "check-settings", "only check the settings, which takes less than a second", _check_settings)
    add_command(commands, "schedule", "print the messages between ranks and their cost", _schedule)
    progress = add_command(commands, "progress", "show a progress bar below rank 0's lines from stdin", _progress)
    for command in (prepare, train, progress):
        command.add_argument("--series", action="store_true", help="all runs of results/series.json, in turn")


def _train(arguments: Namespace) -> int:
    clean_ups = end_on_signal()
    if arguments.series:
        from app.run.series import run_series
        from app.settings import environment

        return run_series(environment.load(rank_options(arguments)), say, clean_ups)
    with quick_imports():
        from app.run.rank import run
        from app.settings import environment

    run(environment.load(rank_options(arguments)), say, clean_ups)
    return 0


def _prepare(arguments: Namespace) -> None:
    clean_ups = end_on_signal()
    from app.cluster import key
    from app.run.prepare import prepare, prepare_series
    from app.settings import environment

    _warn_of_misspelt(arguments.variables)
    settings = environment.load()
    key.make_for(settings.place)
    neighbours = _neighbours(arguments.neighbours)
    if arguments.series:
        prepare_series(neighbours, say, clean_ups)
    else:
        prepare(settings, neighbours, say, clean_ups, only_data=arguments.only_data)


def _check_settings(_: Namespace) -> None:
    from app.settings import environment

    environment.load()


def _check(arguments: Namespace) -> None:
    from app.cluster import key
    from app.settings import environment

    _warn_of_misspelt(arguments.variables)
    _neighbours(arguments.neighbours)
    settings = environment.load()
    key.make_for(settings.place)
    if arguments.with_floor:
        from app.run.prepare import check_baseline

        check_baseline(settings)


def _schedule(_: Namespace) -> None:
    from app.run.schedule import show
    from app.settings import environment

    show(environment.load(), say)


def _progress(arguments: Namespace) -> None:
    from app.run.progress import follow

    follow(sys.stdin, of_series=arguments.series)


def _warn_of_misspelt(variables: str) -> None:
    from app.settings import names

    for warning in names.misspelt(variables.split(",")):
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def _neighbours(given: str) -> str:
    """Warn about other clusters on this machine; the run's page repeats the text returned."""
    if not given:
        return ""
    each = [cluster.split(":") for cluster in given.split(",")]
    named = ", ".join(
        f"project {project} of {user or 'an unnamed user'} ({count} container{'s' if count != '1' else ''})"
        for project, user, count in each
    )
    warning = f"at the start, the CPU cores were shared with {named}. For reliable times, stop them first"
    print(f"warning: {warning}", file=sys.stderr, flush=True)
    return warning
