"""The command `shape-link`, which the entrypoint runs as root before it drops every privilege."""

from argparse import Namespace

from app.machine.command_line import Commands, add_command


def add_to(commands: Commands) -> None:
    link = add_command(commands, "shape-link", "as root: shape this rank's link as set by LINK_*", _shape_link)
    link.add_argument("--rehearse", action="store_true", help="shape the loopback device only, then undo it")


def _shape_link(arguments: Namespace) -> None:
    from app.cluster.link import shaping
    from app.settings import environment

    settings = environment.load()
    if arguments.rehearse:
        shaping.rehearse(settings.links)
    else:
        shaping.shape_link(settings.links, settings.place)
