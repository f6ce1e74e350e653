"""What cells are called beside others: by the settings that tell them apart."""

from collections.abc import Sequence

from app.tools.prediction.forecast import Forecast

RANKS, RATE = "WORKERS", "LINK_RATE"
FIRST = ("SYNC_MODE", "COMPRESSION", "MODEL", RATE)  # in a name
BY_THEMSELVES = {"SYNC_MODE", "MODEL", RATE}  # their values say what they are


def value_of(cell: Forecast, name: str) -> str:
    """A setting of a cell as a part of its name."""
    if name == RANKS:
        return f"{cell.setup.ranks:,} rank{'s' if cell.setup.ranks > 1 else ''}"
    value = cell.setup.settings.value(name.lower())
    if value is None:
        return "unshaped" if name == RATE else f"no {name}"
    return str(value) if name in BY_THEMSELVES else f"{name}={value}"


def in_words(cell: Forecast, names: Sequence[str]) -> str:
    """These settings of a cell."""
    return ", ".join(value_of(cell, name) for name in names)


def telling(found: Sequence[Forecast], *without: str) -> list[str]:
    """The settings that tell cells apart; one that follows from those before it tells nothing."""
    names = dict.fromkeys(name for each in found for name in each.given if name not in without)
    kept: list[str] = []
    for name in sorted(names, key=lambda each: FIRST.index(each) if each in FIRST else len(FIRST)):
        if len({in_words(each, [*kept, name]) for each in found}) > len({in_words(each, kept) for each in found}):
            kept.append(name)
    return kept
