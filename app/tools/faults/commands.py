"""The command `faults` and its steps, which scripts/faults calls around the trials."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command, by_name
from app.machine.say import say


def add_to(commands: Commands) -> None:
    faults = add_command(commands, "faults", "plan faults in real runs and judge the outcomes", _faults)
    steps = faults.add_subparsers(dest="step", required=True, metavar="STEP")
    plan = add_command(steps, "plan", "check the arguments and write the list of trials", prog="scripts/faults")
    following = add_command(steps, "next", "judge the last trial, and order the next one or print the table")
    for step in (plan, following):
        step.add_argument("sweep", metavar="SWEEP", help="name of a folder in results/faults/")
    plan.add_argument("--trials", type=int, default=12, metavar="N", help="number of runs [%(default)s]")
    plan.add_argument("--kills", type=int, metavar="N", help="number of kills that runs must recover from")
    plan.add_argument("--seed", type=int, metavar="S", help="seed of the plan [random]")
    plan.add_argument("--faults", type=_listed, metavar="KIND,...", help="inject only these kinds of faults")
    plan.add_argument("--modes", type=_listed, metavar="MODE,...", help="use only these modes")
    plan.add_argument("--set", nargs="+", default=[], metavar="NAME=value", help="settings of all runs")
    plan.add_argument("--dry-run", action="store_true", help="print the plan only")
    stranger = add_command(steps, "stranger", "send garbage to a port, as an untrusted peer would")
    stranger.add_argument("host", metavar="HOST")
    stranger.add_argument("port", type=int, metavar="PORT")
    stranger.add_argument("rubbish", metavar="KIND", help="kind of garbage")
    stranger.add_argument("seed", type=int, metavar="SEED")


def _listed(words: str) -> list[str]:
    return [word for word in words.split(",") if word]


def _faults(arguments: Namespace) -> int | None:
    from app.tools.faults import stranger, sweep

    match arguments.step:
        case "plan":
            names = ("trials", "kills", "seed", "modes", "dry_run")
            options = {name: getattr(arguments, name) for name in names}
            sweep.make_plan(arguments.sweep, say, kinds=arguments.faults, given=by_name(arguments.set), **options)
        case "next":
            return sweep.go_on(arguments.sweep, say)
        case "stranger":
            stranger.visit(arguments.host, arguments.port, arguments.rubbish, arguments.seed)
    return None
