"""The command `doctor`, run by each rank of the cluster."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command
from app.machine.interrupt import end_on_signal
from app.machine.quick_imports import quick_imports
from app.machine.say import say
from app.settings.commands import add_rank_options, rank_options


def add_to(commands: Commands) -> None:
    add_rank_options(add_command(commands, "doctor", "check machines, links and collectives, as one rank", _doctor))


def _doctor(arguments: Namespace) -> int:
    clean_ups = end_on_signal()
    with quick_imports():
        from app.settings import environment
        from app.tools.doctor.checkup import check_up

    return check_up(environment.load(rank_options(arguments)), say, clean_ups)
