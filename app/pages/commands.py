"""The commands `report`, whose script passes arguments on as typed, and `schema`."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.say import say


def add_to(commands: Commands) -> None:
    summary = "rebuild a run's report, or compare several runs"
    command = add_command(commands, "report", summary, _run, prog="scripts/report")
    meaning = "name of a run in results/, or its folder [the current run]"
    command.add_argument("runs", nargs="*", metavar="RUN", help=meaning)
    meaning = "compare the runs with this one, part by part, with the noise of each difference"
    command.add_argument("--baseline", metavar="RUN", help=meaning)
    add_command(commands, "schema", "print the JSON schema of a run's files", _print_schema)


def _run(arguments: Namespace) -> None:
    from app.pages import on_demand

    on_demand.report(arguments.runs, say, arguments.baseline)


def _print_schema(_: Namespace) -> None:
    from app.analysis import schema

    print(schema.text(), end="")
