"""Draws a schedule as text: a line per round, a column per rank, and a cell per message."""

from string import ascii_lowercase

from app.sync.schedules.schedule import Message, Schedule

LETTERS = len(ascii_lowercase)
MOST_DRAWN_RANKS = 16


def draw(schedule: Schedule, world_size: int) -> list[str]:
    """Elements are cut into slices a, b, c, ... that no message divides."""
    names = _names(schedule)
    lines = [["round", *(f"rank {rank}" for rank in range(world_size))]]
    for number, messages in enumerate((each for each in schedule.rounds if each), start=1):
        cells = [[_cell(each, names) for each in messages if each.sender == rank] for rank in range(world_size)]
        for line in range(max(map(len, cells))):
            own = (cell[line] if line < len(cell) else "" for cell in cells)
            lines.append([str(number) if line == 0 else "", *own])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _names(schedule: Schedule) -> dict[int, str]:
    """Names of the slices by their first element."""
    edges = sorted({edge for each in schedule.messages for edge in (each.piece.start, each.piece.stop)})
    return {start: _name(number) for number, start in enumerate(edges[:-1])}


def _name(number: int) -> str:
    letter = ascii_lowercase[number % LETTERS]
    return letter if number < LETTERS else f"{letter}{number // LETTERS}"


def _cell(message: Message, names: dict[int, str]) -> str:
    inside = [name for start, name in names.items() if start in message.piece]
    piece = "".join(inside) if len(inside) <= 4 else f"{inside[0]}..{inside[-1]}"
    return f"{piece}{'+' if message.adds else '='}>{message.receiver}"


def legend(schedule: Schedule) -> str:
    letters = list(_names(schedule).values())
    cut = f"cut into slices {letters[0]} to {letters[-1]}" if len(letters) > 1 else "slice a"
    return f"The gradient buffer is {cut}. a+>2: rank 2 adds a to its own. a=>2: rank 2 stores a."
