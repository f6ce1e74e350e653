"""The output of commands: lines on the terminal, and CSV."""

import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

Say = Callable[[str], None]

QUIET_SECONDS = 2.0  # at most between two lines about the same work
FORMULA = ("=", "+", "-", "@")  # first characters of a formula in a spreadsheet
LONGEST_SHOWN = 120  # characters of a user's text in a message


def say(line: str) -> None:
    """Print without buffering, even into a pipe. Lines of several threads stay apart."""
    print(f"{for_terminal(line)}\n", end="", flush=True)


@contextmanager
def reporting(work: str, say: Say) -> Iterator[None]:
    """While the body runs, print what it does and for how long, so that nobody takes it for hung."""
    began, ended = time.monotonic(), Event()

    def report() -> None:
        while not ended.wait(QUIET_SECONDS):
            say(f"{work}: {time.monotonic() - began:.0f} s so far")

    reporter = Thread(target=report, name="reporter", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()


def for_terminal(text: str) -> str:
    """Escape control characters, which names chosen by others may contain."""
    return "\n".join(map(escaped, text.split("\n")))


def counted(number: int, noun: str) -> str:
    """A number of things: 1 rank, 4 ranks."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def numbered(noun: str, numbers: Sequence[object]) -> str:
    """Things by their numbers: rank 1, ranks 1, 2."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def shown(text: str) -> str:
    """A user's text for a message: shortened, with unprintable characters escaped."""
    first = escaped(text[: LONGEST_SHOWN + 1])
    return first if len(first) <= LONGEST_SHOWN else f"{first[:LONGEST_SHOWN]}…"


def escaped(text: str) -> str:
    """A text with unprintable characters escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """Lines of CSV. No text is a formula or spans lines, and None is an empty field."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([[_cell(value) for value in row] for row in rows])
    return target.getvalue()


def _cell(value: object) -> object:
    return f"{"'" if value.startswith(FORMULA) else ''}{escaped(value)}" if isinstance(value, str) else value
