"""The helpers with which each package adds its commands to the command line."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from app.errors import SettingError
from app.machine.say import shown

type Commands = argparse._SubParsersAction[CommandParser]
type Run = Callable[[argparse.Namespace], int | None]  # returns the exit code; None means 0


class CommandParser(argparse.ArgumentParser):
    """Parses a command's arguments. An invalid one gives a one-line error, because scripts pass them on as typed."""

    def error(self, message: str) -> NoReturn:
        raise SettingError(f"{self.prog}: {shown(message)}. --help lists the arguments.", "invalid-argument")


def add_command(commands: Commands, name: str, summary: str, run: Run | None = None, **options: Any) -> CommandParser:
    """Add a command; one without `run` is run by its parent command."""
    command = commands.add_parser(name, help=summary, description=summary, **options)
    if run:
        command.set_defaults(run=run)
    return command


def by_name(given: Sequence[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each:
            raise SettingError(
                f"unexpected argument '{shown(each)}'. Settings are written NAME=value.", "invalid-argument"
            )
    return dict(each.split("=", 1) for each in given)
