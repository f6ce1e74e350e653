"""How a command talks to its user: a line at a time."""

from collections.abc import Callable

Say = Callable[[str], None]

LONGEST_SHOWN = 120  # characters of a user's text in a message


def say(line: str) -> None:
    """Print it at once, even into a pipe."""
    print(line, flush=True)


def shown(text: str) -> str:
    """A user's text as part of a line: shortened, and with escapes for what does not print."""
    first = escaped(text[: LONGEST_SHOWN + 1])
    return first if len(first) <= LONGEST_SHOWN else f"{first[:LONGEST_SHOWN]}…"


def escaped(text: str) -> str:
    """A text with escapes for what does not print."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
