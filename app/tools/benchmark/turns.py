"""How a script of a benchmark, in a process of its own, works in turns."""

import sys
from collections.abc import Iterator


def in_turns[Work](works: Iterator[Work]) -> Iterator[Work]:
    """Pass work on as the benchmark orders: a line on standard input has a number of steps, and gets an answer."""
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            yield next(works)
        print("done", flush=True)
