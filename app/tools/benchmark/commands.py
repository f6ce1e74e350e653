"""The command `benchmark`: each benchmark with its options, run as one of the ranks."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.interrupt import end_on_signal
from app.machine.quick_imports import quick_imports
from app.machine.say import say
from app.settings.commands import add_rank_options, rank_options
from app.tools.benchmark.choice import CollectivesChoice, StepChoice


def add_to(commands: Commands) -> None:
    command = add_command(commands, "benchmark", "time a part of the program as one of the ranks", _benchmark)
    add_rank_options(command)
    names = command.add_subparsers(dest="name", required=True, metavar="NAME")
    whole = "whole training steps of each configuration, compared with an ordinary course script"
    StepChoice.add_options(add_command(names, "step", whole))
    add_command(names, "sync", "each mode, compared with the simplest correct code of its pattern")
    single = "collectives over a range of sizes, with and without the communicator"
    CollectivesChoice.add_options(add_command(names, "collectives", single))


def _benchmark(arguments: Namespace) -> None:
    clean_ups = end_on_signal()
    with quick_imports():
        from app.settings import environment
        from app.tools.benchmark.take_part import benchmark

    benchmark(arguments.name, arguments, environment.load(rank_options(arguments)), say, clean_ups)
