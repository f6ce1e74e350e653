"""The commands `report` and `compare`. Their scripts pass arguments on as typed."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.say import say


def add_to(commands: Commands) -> None:
    for name, number, default, summary in (
        ("report", "*", " [the current run]", "rebuild a run's report, or build one page of several runs"),
        ("compare", "+", "", "compare runs on the terminal, fastest first"),
    ):
        command = add_command(commands, name, summary, _run, prog=f"scripts/{name}")
        meaning = f"name of a run in results/, or its folder{default}"
        command.add_argument("runs", nargs=number, metavar="RUN", help=meaning)
        meaning = "compare the runs with this one, part by part, with the noise of each difference"
        command.add_argument("--baseline", metavar="RUN", help=meaning)


def _run(arguments: Namespace) -> None:
    from app.pages import on_demand

    command = on_demand.report if arguments.command == "report" else on_demand.compare
    command(arguments.runs, say, arguments.baseline)
