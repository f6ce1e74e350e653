"""The command `mpi`, which runs another command as this container's rank of an MPI job."""

from argparse import REMAINDER, Namespace

from app.machine.command_line import Commands, add_command


def add_to(commands: Commands) -> None:
    mpi = add_command(commands, "mpi", "run a command as one rank of an MPI job, in Compose", _mpi)
    mpi.add_argument("command_line", nargs=REMAINDER, help="train, doctor or benchmark NAME")


def _mpi(arguments: Namespace) -> int:
    from app.settings import environment
    from app.tools.launch.start import start

    return start(environment.load().place, arguments.command_line)
