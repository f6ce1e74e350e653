"""How a command talks to its user: a line at a time."""

from collections.abc import Callable

Say = Callable[[str], None]


def say(line: str) -> None:
    """Print it at once, even into a pipe."""
    print(line, flush=True)
