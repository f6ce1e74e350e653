"""The command `conformance`, which scripts/conformance runs in a confined container."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.quick_imports import quick_imports
from app.machine.say import say


def add_to(commands: Commands) -> None:
    conformance = add_command(commands, "conformance", "check a mode against the laws of averaging", _conformance)
    conformance.add_argument("mode", metavar="MODE", help="a built-in mode, or - for a file on standard input")
    conformance.add_argument("--called", default="", metavar="NAME", help="name of the mode in messages")
    conformance.add_argument("--own", default="", metavar="A,B,C", help="names of the files in extensions/")
    conformance.add_argument("--table", action="store_true", help="print one row of CSV")


def _conformance(arguments: Namespace) -> int:
    with quick_imports():
        from app.tools.conformance import verdicts

    own = arguments.own.split(",") if arguments.own else []
    return verdicts.check(arguments.mode, arguments.called, own, say, table=arguments.table)
