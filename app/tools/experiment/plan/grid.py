"""What a grid file stands for: the cells of an experiment, how often each is repeated, and what its page shows."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingError
from app.machine.say import shown
from app.settings.explanations import hint
from app.tools.experiment.plan import grid_file
from app.tools.experiment.plan.cells import Cell, known, problems, world_size
from app.tools.experiment.plan.grid_file import Block, GridFile, Place, ViewTable, refusal

GRIDS = Path("experiments")  # in the image's working directory: the host's scripts/experiments
SHOWN_AS = Path("scripts/experiments")  # how users know it

COMMON: list[Place] = [("quick", "settings"), ("settings",)]  # tables of settings for all blocks
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
    cells = {version: _Version(file, shown_as, given or {}, quick=version).cells() for version in (False, True)}
    repeats = (file.quick.repeats if quick else None) or file.repeats
    return Grid(name, file.title, file.question, file.notes, file.view, quick, repeats, cells[quick], shown_as)


class _Version:
    """The full or the quick version of a grid file."""

    def __init__(self, file: GridFile, shown_as: Path, given: Mapping[str, str], *, quick: bool) -> None:
        self._file, self._shown_as, self._given = file, shown_as, given
        self._replaced = file.quick.settings if quick else {}
        shown = [(number, block) for number, block in enumerate(file.grid) if block.quick or not quick]
        self._blocks = [(("grid", number), block, self._values(block)) for number, block in shown]
        self._varied = _varied([values for *_, values in self._blocks])

    def cells(self) -> list[Cell]:
        """All of them, in the order of the file; refused if one is wrong, or two have the same name."""
        for name, value in self._given.items():
            if name not in known():
                raise SettingError(f"{name} cannot be set in an experiment. {hint(name, known())}", "unknown-setting")
            if name in self._varied:
                message = f"{name}={value}: experiment '{self._shown_as.stem}' varies {name}. Omit it."
                raise SettingError(message, "conflicting-settings")
        number = sum(math.prod(map(len, values.values())) for *_, values in self._blocks)
        if not 0 < number <= MOST_CELLS:
            message = f"the grid, or its quick version, has {number} cells. Give it 1 to {MOST_CELLS}."
            raise refusal(self._shown_as, ("grid",), message)
        slugs: dict[str, Cell] = {}
        for place, cell in self._made():
            if other := slugs.get(cell.slug.lower()):
                names = f"the names of cells '{shown(other.name)}' and '{shown(cell.name)}' clash"
                raise refusal(self._shown_as, place, f"{names}. Give the blocks different labels.")
            slugs[cell.slug.lower()] = cell
            for name, message in problems(cell.settings).items():
                if name in self._given:
                    raise SettingError(message)
                raise refusal(self._shown_as, self._place_of(name, cell, place), message, "invalid-setting")
        return list(slugs.values())

    def _values(self, block: Block) -> dict[str, list[str]]:
        """What each setting can be in a block."""
        in_blocks = {name for each in self._file.grid for name in each.settings}
        listed = {name for each in self._file.grid for name, values in each.settings.items() if values.listed}
        common = dict(self._file.settings)
        # What no block has is for all cells.
        common |= {name: each for name, each in self._replaced.items() if name in common or name not in in_blocks}
        # A quick version replaces lists of values. It keeps a single value that defines a block, such as one rank
        # where other blocks list several.
        own = {
            name: self._replaced.get(name, each) if len(each.values) > 1 or name not in listed else each
            for name, each in block.settings.items()
        }
        all_of = {name: each for name, each in common.items() if name not in own} | own
        return {name: each.values for name, each in all_of.items()}

    def _made(self) -> Iterator[tuple[Place, Cell]]:
        """Each cell with the place of its block."""
        for place, block, values in self._blocks:
            several = [name for name, each in values.items() if len(each) > 1 and name not in self._given]
            for point in itertools.product(*values.values()):
                chosen = {**dict(zip(values, point, strict=True)), **self._given}
                named = several or [name for name in self._varied if name in chosen]
                name = self._label(place, block.label, chosen, named)
                if len(name) > LONGEST_NAME:
                    message = f"cell name '{shown(name)}' has {len(name):,} characters (limit: {LONGEST_NAME})."
                    raise refusal(self._shown_as, place, message)
                yield place, Cell(name, chosen, block.may_fail)

    def _place_of(self, name: str, cell: Cell, block: Place) -> Place:
        """Where a setting of a cell has its value: in its block, or in a table for all blocks."""
        for place, table in self._file.settings_tables():
            if place in (block, *COMMON) and name in table and cell.settings[name] in table[name].values:
                return (*place, name)
        return block

    def _label(self, place: Place, template: str | None, chosen: Mapping[str, str], named: Sequence[str]) -> str:
        if template is None:
            words = [chosen[name] if name == "SYNC_MODE" else f"{name.lower()} {chosen[name]}" for name in named]
            return ", ".join(words) or "all"
        known = {**chosen, "ranks": str(world_size(chosen))}
        label = re.sub(r"{(\w+)}", lambda field: known.get(field[1], field[0]), template)
        if {*"{}"} & {*label}:
            message = f'invalid label "{shown(template)}". In braces, use: {", ".join(known)}.'
            raise refusal(self._shown_as, (*place, "label"), message)
        return label


def _varied(blocks: Sequence[Mapping[str, Sequence[str]]]) -> list[str]:
    """The settings that some cells have otherwise than others, or not at all."""
    names = dict.fromkeys(itertools.chain.from_iterable(blocks))
    return [name for name in names if len({each for block in blocks for each in block.get(name, ("",))}) > 1]
