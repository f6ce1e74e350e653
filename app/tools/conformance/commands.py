"""The command `conformance`, which scripts/conformance runs in a confined container."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.quick_imports import quick_imports
from app.machine.say import as_csv, say


def add_to(commands: Commands) -> None:
    conformance = add_command(commands, "conformance", "check a mode against the laws of averaging", _conformance)
    conformance.add_argument("mode", metavar="MODE", help="a built-in mode, or - for a file on standard input")
    conformance.add_argument("--called", default="", metavar="NAME", help="name of the mode in messages")
    conformance.add_argument("--table", action="store_true", help="print one row of CSV")
    conformance.add_argument("--failed", metavar="WHY", help="print the row of a check that ended without a verdict")


def _conformance(arguments: Namespace) -> int:
    if arguments.failed:
        say(as_csv([(arguments.called, "no verdict", "ends", arguments.failed, None)]).rstrip("\n"))
        return 0
    with quick_imports():
        from app.tools.conformance import verdicts

    return verdicts.check(arguments.mode, arguments.called or arguments.mode, say, table=arguments.table)
