"""A cell of a grid: the settings of a run, and the problems with them, found before any run."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from app.errors import SettingError
from app.extensions import reading
from app.machine.cpus import look
from app.settings import environment
from app.settings.concern import Mark
from app.settings.names import names
from app.settings.settings import marked
from app.training.datasets import source_of
from app.training.datasets.prepared import check_fit

SPEAKING = ("SYNC_MODE", "MODEL", "DATASET", "LINK_RATE")  # settings whose values need no name
LINKS = ("LINK_RATE", "LINK_RATE_BY_RANK", "LINK_DELAY", "LINK_LOSS")
OF_SEVERAL = ("WORKERS", "SYNC_MODE", *LINKS)  # settings that make no difference to one rank
NOT_IN_A_GRID = frozenset(name.upper() for name in marked(Mark.NOT_IN_A_GRID, Mark.GIVEN_BY_LAUNCHER))


@dataclass(frozen=True)
class Cell:
    """One point of the grid: the settings of a run."""

    name: str
    settings: dict[str, str]
    may_fail: str | None = None  # why a failure is no failure of the experiment

    @property
    def slug(self) -> str:
        """The name as part of a folder's name."""
        return re.sub(r"[^A-Za-z0-9.]+", "_", self.name).strip("_.") or "cell"

    def matches(self, settings: Mapping[str, str]) -> bool:
        """Whether its own settings have these values: `*` is any, an empty one means not set."""
        return all(
            name in self.settings if value == "*" else self.settings.get(name, "") == value
            for name, value in settings.items()
        )

    def besides(self, *names: str) -> dict[str, str]:
        """Its settings except these. Cells compare by these only if they agree in all others."""
        return {name: value for name, value in self.settings.items() if name not in names}

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return _ranks(self.settings.get("WORKERS"))


def conditions(cells: Iterable[Cell], *names: str) -> dict[str, str]:
    """By cell, the values of the settings besides these in which the cells differ: only equal ones compare."""
    besides = {cell.name: cell.besides(*names) for cell in cells}
    known = sorted({name for own in besides.values() for name in own})
    differing = [name for name in known if len({own.get(name) for own in besides.values()}) > 1]
    return {
        cell: ", ".join(_in_words(name, own[name]) for name in differing if name in own)
        for cell, own in besides.items()
    }


def _in_words(name: str, value: str) -> str:
    if name == "WORKERS" and value.isdecimal():
        return "1 rank" if value == "0" else f"{int(value) + 1} ranks"
    return value if name in SPEAKING else f"{name}={value}"


def alone_like[Own: Cell](cell: Cell, cells: Iterable[Own]) -> Own | None:
    """One rank under the same conditions, but for mode and links, which it does not use."""
    own = cell.besides(*OF_SEVERAL)
    return next((each for each in cells if each.world_size == 1 and each.besides(*OF_SEVERAL) == own), None)


@cache
def _ranks(workers: str | None) -> int:
    return environment.of({"WORKERS": workers} if workers is not None else {}).place.workers + 1


def world_size(given: Mapping[str, str]) -> int | None:
    """Number of ranks; None where WORKERS is wrong."""
    try:
        return _ranks(given.get("WORKERS"))
    except SettingError:
        return None


def known() -> list[str]:
    """The settings that a grid can have."""
    return [name for name in names() if name not in NOT_IN_A_GRID]


def problems(given: Mapping[str, str]) -> dict[str, str]:
    """Problems with a cell's settings, by setting; a conflict of several is listed under one that is given."""
    ranks = world_size(given)
    if found := environment.problems(given if ranks is None else {**given, "WORLD_SIZE": str(ranks)}):
        return found
    settings = environment.of(given)
    reading.check(settings.own)
    try:
        settings.place.check_machine(len(look().cores))
    except SettingError as error:
        found[environment.first_named(str(error), given)] = str(error)
    try:
        check_fit(settings.training.model, settings.training.dataset)
    except SettingError as error:
        found["DATASET" if "DATASET" in given else "MODEL"] = str(error)
    source = source_of(settings.training.dataset)
    for name, asked, there in (
        ("TRAIN_SAMPLES", settings.training.train_samples, source.train_samples),
        ("TEST_SAMPLES", settings.training.test_samples, source.test_samples),
    ):
        if asked is not None and asked > there:
            found[name] = f"invalid {name} '{asked}'. Give 1 to {there} for this data set."
    return found
