"""What a command gives its user: lines on the terminal, and CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence

Say = Callable[[str], None]

FORMULA = ("=", "+", "-", "@")  # what a spreadsheet calculates begins with one of these
LONGEST_SHOWN = 120  # characters of a user's text in a message


def say(line: str) -> None:
    """Print it at once, even into a pipe."""
    print(for_terminal(line), flush=True)


def for_terminal(text: str) -> str:
    """Lines that cannot control the terminal, whoever chose the names in them."""
    return "\n".join(map(escaped, text.split("\n")))


def shown(text: str) -> str:
    """A user's text as part of a line: shortened, and with escapes for what does not print."""
    first = escaped(text[: LONGEST_SHOWN + 1])
    return first if len(first) <= LONGEST_SHOWN else f"{first[:LONGEST_SHOWN]}…"


def escaped(text: str) -> str:
    """A text with escapes for what does not print."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """Lines of CSV. No text in them is a formula or spans lines; None is an empty field."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([[_cell(value) for value in row] for row in rows])
    return target.getvalue()


def _cell(value: object) -> object:
    return f"{"'" if value.startswith(FORMULA) else ''}{escaped(value)}" if isinstance(value, str) else value
