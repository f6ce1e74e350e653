"""The names of the settings as their users know them, and names that are probably misspelt."""

import os
from collections.abc import Iterable, Iterator

from app.settings.concern import Mark
from app.settings.settings import FIELDS, marked


def names() -> list[str]:
    """The variables of the settings that Compose reads or passes to the ranks."""
    return [name.upper() for name in FIELDS if name not in marked(Mark.GIVEN_BY_LAUNCHER)]


def misspelt(variables: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each variable that is one edit away from the name of a setting."""
    known = names()
    for variable in variables:
        if variable not in known:
            meant = [name for name in known if _is_one_edit_away(variable.upper(), name)]
            yield from (f"{variable} is set, but is not a setting. Did you mean {name}?" for name in meant[:1])


def _is_one_edit_away(one: str, other: str) -> bool:
    """Whether two words are equal, or differ by one letter added, omitted or changed, or by two letters swapped."""
    same = len(os.path.commonprefix([one, other]))
    one, other = one[same:], other[same:]
    swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]
