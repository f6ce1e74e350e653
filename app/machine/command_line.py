"""How a room adds its commands to the program's command line."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from app.errors import LockstepError, SettingError

type Commands = argparse._SubParsersAction[CommandParser]
type Run = Callable[[argparse.Namespace], int | None]  # returns the exit code; None is 0
type Refusal = Callable[[str, str], LockstepError]  # the error for a parser's name and message


class CommandParser(argparse.ArgumentParser):
    """The arguments of one command; with a `refusal` of its own, where a script passes them on as typed."""

    def __init__(self, *, refusal: Refusal | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._refusal = refusal

    def error(self, message: str) -> NoReturn:
        if not self._refusal:
            super().error(message)
        raise self._refusal(self.prog, message)


def add_command(commands: Commands, name: str, summary: str, run: Run | None = None, **options: Any) -> CommandParser:
    """Add a command, or a step of one, which its command runs."""
    command = commands.add_parser(name, help=summary, description=summary, **options)
    if run:
        command.set_defaults(run=run)
    return command


def by_name(given: Sequence[str]) -> dict[str, str]:
    """NAME=value arguments as settings."""
    for each in given:
        if "=" not in each:
            raise SettingError(f"'{each}' is not a setting. Write NAME=value.")
    return dict(each.split("=", 1) for each in given)
