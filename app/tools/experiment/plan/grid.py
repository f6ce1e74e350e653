"""What a grid file stands for: the cells of an experiment, how often each is repeated, and what its page shows."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from app.errors import SettingError
from app.machine.say import shown
from app.settings.explanations import hint
from app.tools.experiment.plan import grid_file
from app.tools.experiment.plan.cells import Cell, known, problems, world_size
from app.tools.experiment.plan.grid_file import Block, Choices, GridFile, Place, ViewTable, refusal

GRIDS = Path("experiments")  # in the image's working directory: the host's scripts/experiments
SHOWN_AS = Path("scripts/experiments")  # how users know it

Values = dict[str, tuple[Place, list[str]]]  # of each setting, where it stands and what it can be

LONGEST_NAME = 150  # of a cell
MOST_CELLS = 1000


@dataclass(frozen=True)
class Grid:
    """A grid file that has been read and found right, in its full or its quick version."""

    name: str
    title: str
    question: str
    notes: list[str]
    views: list[ViewTable]
    quick: bool
    repeats: int
    cells: list[Cell]
    file: Path  # as users know it
    keeps_order: bool = False  # of the cells in a round, even if others could share their containers


def names() -> list[str]:
    """Of all grid files."""
    return sorted(path.stem for path in GRIDS.glob("*.toml"))


def read(name: str, *, quick: bool = False, given: Mapping[str, str] | None = None) -> Grid:
    """Read a grid file, with the settings given in place of its own; refuse it with the file and the place in it."""
    path = GRIDS / f"{name}.toml"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or not path.is_file():
        raise SettingError(
            f"unknown experiment '{name}': cannot find {SHOWN_AS / name}.toml. Choose from: {', '.join(names())}.",
            "unknown-name",
        )
    shown_as = SHOWN_AS / path.name
    file = grid_file.read(path, shown_as)
    # Both versions are checked, whichever is asked for.
    cells = {version: _Cells(name, file, shown_as, version, given or {}).checked() for version in (False, True)}
    repeats = (file.quick.repeats if quick else None) or file.repeats
    return Grid(name, file.title, file.question, file.notes, file.view, quick, repeats, cells[quick], shown_as)


class _Cells:
    """The cells of one version of a grid file."""

    def __init__(self, name: str, file: GridFile, shown_as: Path, quick: bool, given: Mapping[str, str]) -> None:
        self._name, self._file, self._shown_as, self._quick, self._given = name, file, shown_as, quick, given
        self._blocks = [(place, block, dict(values)) for place, block, values in self._chosen()]
        self._varied = _varied([values for *_, values in self._blocks])

    def checked(self) -> list[Cell]:
        """All of them, in the order of the file; refused if one is wrong, or two have the same name."""
        self._check_given()
        number = sum(math.prod(len(each) for _, each in values.values()) for *_, values in self._blocks)
        if not number:
            raise refusal(
                self._shown_as, ("grid",), "the quick version has no cells. Omit quick = false in a [[grid]]."
            )
        if number > MOST_CELLS:
            raise refusal(self._shown_as, ("grid",), f"the grid has {number} cells (limit: {MOST_CELLS}).")
        made = list(self._made())
        slugs: dict[str, Cell] = {}
        for place, cell, places in made:
            if other := slugs.get(cell.slug.lower()):
                raise refusal(
                    self._shown_as,
                    place,
                    f"the names of cells '{shown(other.name)}' and '{shown(cell.name)}' clash. "
                    "Give the blocks different labels.",
                )
            slugs[cell.slug.lower()] = cell
            for name, message in problems(cell.settings).items():
                if name in self._given:
                    raise SettingError(message)
                raise refusal(self._shown_as, places.get(name, place), message, "invalid-setting")
        return [cell for _, cell, _ in made]

    def _check_given(self) -> None:
        for name, value in self._given.items():
            if name not in known():
                raise SettingError(f"{name} cannot be set in an experiment. {hint(name, known())}", "unknown-setting")
            if name in self._varied:
                message = f"{name}={value}: experiment '{self._name}' varies {name}. Omit it."
                raise SettingError(message, "conflicting-settings")

    def _chosen(self) -> Iterator[tuple[Place, Block, Values]]:
        """Each block with the values of all its settings."""
        common = _values(("settings",), self._file.settings)
        quick = _values(("quick", "settings"), self._file.quick.settings if self._quick else {})
        in_blocks = {name for block in self._file.grid for name in block.settings}
        listed = {name for block in self._file.grid for name, each in block.settings.items() if each.listed}
        # What no block has is for all cells.
        for_all = common | {name: value for name, value in quick.items() if name in common or name not in in_blocks}
        for number, block in enumerate(self._file.grid):
            place: Place = ("grid", number)
            # A quick version replaces lists of values. It keeps a single value that defines a block, such as one rank
            # where other blocks list several.
            own = {
                name: quick[name] if name in quick and (len(values) > 1 or name not in listed) else (where, values)
                for name, (where, values) in _values(place, block.settings).items()
            }
            if block.quick or not self._quick:
                yield place, block, {name: each for name, each in for_all.items() if name not in own} | own

    def _made(self) -> Iterator[tuple[Place, Cell, dict[str, Place]]]:
        """Each cell with the place of its block and of each of its settings."""
        for place, block, values in self._blocks:
            several = [name for name, (_, each) in values.items() if len(each) > 1 and name not in self._given]
            for point in itertools.product(*(each for _, each in values.values())):
                chosen = {**dict(zip(values, point, strict=True)), **self._given}
                varied = {name: chosen[name] for name in self._varied if name in chosen}
                name = self._label(place, block.label, chosen, several or list(varied))
                if len(name) > LONGEST_NAME:
                    raise refusal(
                        self._shown_as,
                        place,
                        f"cell name '{shown(name)}' has {len(name):,} characters. The limit is {LONGEST_NAME}, as for "
                        "its folder's name. Give the block a shorter label.",
                    )
                yield place, Cell(name, chosen, varied, block.may_fail), {n: where for n, (where, _) in values.items()}

    def _label(self, place: Place, template: str | None, chosen: Mapping[str, str], named: Sequence[str]) -> str:
        if template is None:
            words = [chosen[name] if name == "SYNC_MODE" else f"{name.lower()} {chosen[name]}" for name in named]
            return ", ".join(words) or "all"
        try:
            # Names alone: a width could fill the memory.
            fields = [field for _, *field in Formatter().parse(template) if field[0] is not None]
            if any(width or how or name not in (*chosen, "ranks") for name, width, how in fields):
                raise ValueError
            return template.format(**chosen, ranks=world_size(chosen))
        except ValueError:
            raise refusal(
                self._shown_as,
                (*place, "label"),
                f'invalid label "{shown(template)}". In braces, use ranks or one of this block\'s settings: '
                f"{', '.join(chosen)}.",
            ) from None


def _values(place: Place, table: Mapping[str, Choices]) -> Values:
    return {name: ((*place, name), choices.values) for name, choices in table.items()}


def _varied(blocks: Sequence[Values]) -> list[str]:
    """The settings that some cells have otherwise than others, or not at all."""
    values: dict[str, set[str]] = {}
    for block in blocks:
        for name, (_, choices) in block.items():
            values.setdefault(name, set()).update(choices)
    return [name for name, all_of in values.items() if len(all_of) > 1 or not all(name in block for block in blocks)]
