"""The names of the settings as their users know them, and names that are probably misspelt."""

import os
import re
from collections.abc import Iterable, Iterator

from app.settings.concern import Mark
from app.settings.explanations import nearest
from app.settings.settings import FIELDS, marked


def names() -> list[str]:
    """The settings that Compose takes, or passes on, as their variables."""
    return [name.upper() for name in FIELDS if name not in marked(Mark.GIVEN_BY_LAUNCHER)]


def about_name(name: str) -> str:
    """A sentence about a name that is not a setting of the cluster; empty where there is nothing to say."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return "A name has letters, digits and '_' only, and no spaces."
    if name.lower() in marked(Mark.GIVEN_BY_LAUNCHER):
        return "The cluster assigns ranks and finds rank 0 itself; WORKERS is the number of other ranks."
    near = nearest(name, names())
    return f"Nearest: {near}." if near else ""


def misspelt(variables: Iterable[str]) -> Iterator[str]:
    """A warning for each variable that is no setting, but would be one after a single correction."""
    known = names()
    for variable in variables:
        if variable not in known:
            meant = [name for name in known if _is_one_edit_away(variable.upper(), name)]
            yield from (f"{variable} is set, but is not a setting. Did you mean {name}?" for name in meant[:1])


def _is_one_edit_away(one: str, other: str) -> bool:
    """Whether two words differ by one letter added, left out or changed, by two that swapped places, or not at all."""
    same = len(os.path.commonprefix([one, other]))
    one, other = one[same:], other[same:]
    swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]
