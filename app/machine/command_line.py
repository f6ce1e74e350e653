"""The helpers with which each package adds its commands to the command line."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from app.errors import LockstepError, SettingError

type Commands = argparse._SubParsersAction[CommandParser]
type Run = Callable[[argparse.Namespace], int | None]  # returns the exit code; None is 0
type Refusal = Callable[[str, str], LockstepError]  # the error for a parser's name and message


class CommandParser(argparse.ArgumentParser):
    """A parser for one command. If a script passes on its arguments as typed, `refusal` makes the error."""

    def __init__(self, *, refusal: Refusal | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._refusal = refusal

    def error(self, message: str) -> NoReturn:
        if not self._refusal:
            super().error(message)
        raise self._refusal(self.prog, message)


def add_command(commands: Commands, name: str, summary: str, run: Run | None = None, **options: Any) -> CommandParser:
    """Add a command; one without `run` is run by its parent command."""
    command = commands.add_parser(name, help=summary, description=summary, **options)
    if run:
        command.set_defaults(run=run)
    return command


def by_name(given: Sequence[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each:
            raise SettingError(f"invalid argument '{each}'. Write NAME=value.", "invalid-argument")
    return dict(each.split("=", 1) for each in given)
