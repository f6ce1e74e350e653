"""The command `experiment` and its steps, which scripts/experiment calls around the runs."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.say import say


def add_to(commands: Commands) -> None:
    experiment = add_command(commands, "experiment", "plan an experiment, build its page", _experiment)
    steps = experiment.add_subparsers(dest="step", required=True, metavar="STEP")
    plan = add_command(steps, "plan", "check grid files and write the lists of their runs")
    following = add_command(
        steps, "next", "record how the last runs ended, and plan the next ones in the same containers"
    )
    page = add_command(steps, "page", "build the page from the finished runs")
    add_command(steps, "manual", "print the text of scripts/experiments/README.md")
    for step in (plan, following, page):
        step.add_argument("name", nargs="+" if step is plan else None, metavar="NAME", help="name of a grid file")
        step.add_argument("--quick", action="store_true", help="use the grid's quick version")
    meaning = "exit code and duration of the last runs together"
    following.add_argument("--ended", nargs=2, default=(), metavar=("CODE", "SECONDS"), help=meaning)
    following.add_argument("--folder", default="results", metavar="FOLDER", help="where the host has the runs")
    for step in (plan, page):
        step.add_argument("--set", nargs="+", default=[], metavar="NAME=value", help="override the grid file's value")
    plan.add_argument("--fresh", action="store_true", help="discard finished runs")
    plan.add_argument("--dry-run", action="store_true", help="print the plan only")


def _experiment(arguments: Namespace) -> int | None:
    from app.tools.experiment import between_runs, manual

    match arguments.step:
        case "plan":
            quick, fresh, dry_run = arguments.quick, arguments.fresh, arguments.dry_run
            between_runs.plan(arguments.name, arguments.set, say, quick=quick, fresh=fresh, dry_run=dry_run)
        case "next":
            between_runs.next_series(arguments.name, arguments.ended, arguments.folder, say, quick=arguments.quick)
        case "page":
            return between_runs.make_page(arguments.name, arguments.set, say, quick=arguments.quick)
        case "manual":
            print(manual.text(), end="")
    return None
