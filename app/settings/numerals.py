"""Patterns of numbers within bounds, in the syntax of regular expressions that Python and POSIX shells share."""

LEADING = "0{0,9}"  # zeros that people write in front of a number


def decimals(places: int, most: int) -> str:
    """The pattern of the decimal numbers, without an exponent, from a 1 in this place behind the point to `most`."""
    below_one = f"{LEADING}[.]0{{0,{places - 1}}}[1-9][0-9]*"
    return f"{LEADING}{numerals(1, most - 1)}([.][0-9]*)?|{LEADING}{most}([.]0*)?|{below_one}"


def numerals(least: int, most: int | None = None) -> str:
    """The pattern of the whole numbers from `least` to `most`, without leading zeros."""
    length = len(str(least))
    longer = 10**length
    if most is None:
        return f"({numerals(least, longer - 1)}|[1-9][0-9]{{{length},}})"
    if most >= longer:
        return f"({numerals(least, longer - 1)}|{numerals(longer, most)})"
    return _between(str(least), str(most))


def _between(low: str, high: str) -> str:
    """The pattern of the numerals from `low` to `high`, which have the same number of digits."""
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        first = low[0] if low[0] == high[0] else f"[{low[0]}-{high[0]}]"
        return first + ("[0-9]" * rest if rest < 3 else f"[0-9]{{{rest}}}")
    if low[0] == high[0]:
        return low[0] + _between(low[1:], high[1:])
    # The numbers that share low's first digit, those that share high's, and whole decades in between.
    parts = [_between(low, low[0] + "9" * rest), _between(high[0] + "0" * rest, high)]
    if int(high[0]) - int(low[0]) > 1:
        parts.insert(1, _between(f"{int(low[0]) + 1}{'0' * rest}", f"{int(high[0]) - 1}{'9' * rest}"))
    return f"({'|'.join(parts)})"
