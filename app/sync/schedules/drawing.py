"""A schedule as text: a line for each round, a column for each rank, and what each sends to whom."""

from string import ascii_lowercase

from app.sync.schedules.schedule import Message, Schedule

LETTERS = len(ascii_lowercase)


def draw(schedule: Schedule, world_size: int) -> list[str]:
    """The elements are cut into stretches a, b, c, ... that no message divides."""
    names = _names(schedule)
    lines = [["round", *(f"rank {rank}" for rank in range(world_size))]]
    for number, messages in enumerate((each for each in schedule.rounds if each), start=1):
        cells = [[_word(each, names) for each in messages if each.sender == rank] for rank in range(world_size)]
        for line in range(max(map(len, cells))):
            own = (words[line] if line < len(words) else "" for words in cells)
            lines.append([str(number) if line == 0 else "", *own])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _names(schedule: Schedule) -> dict[int, str]:
    """The stretches by where they begin."""
    edges = sorted({edge for each in schedule.messages for edge in (each.piece.start, each.piece.stop)})
    return {start: _name(number) for number, start in enumerate(edges[:-1])}


def _name(number: int) -> str:
    letter = ascii_lowercase[number % LETTERS]
    return letter if number < LETTERS else f"{letter}{number // LETTERS}"


def _word(message: Message, names: dict[int, str]) -> str:
    inside = [name for start, name in names.items() if start in message.piece]
    piece = "".join(inside) if len(inside) <= 4 else f"{inside[0]}..{inside[-1]}"
    return f"{piece}{'+' if message.adds else '='}>{message.receiver}"


def legend(schedule: Schedule) -> str:
    letters = list(_names(schedule).values())
    cut = f"cut into {letters[0]} to {letters[-1]}" if len(letters) > 1 else "called a"
    return f"The gradients, end to end, are {cut}. a+>2: a goes to rank 2, which adds it; a=>2: which takes it."
