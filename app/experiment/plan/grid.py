"""A grid file: which runs an experiment is made of, how often each is repeated, and what its page shows."""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.errors import SettingError
from app.experiment.plan.cells import NOT_IN_A_GRID, Cell, known, problems, world_size
from app.experiment.plan.grid_lines import Lines, Place
from app.settings import fields as settings

GRIDS = Path("experiments")  # in the image's working directory: the host's scripts/experiments
SHOWN_AS = Path("scripts/experiments")  # how users know it

FIELDS = {
    "title": "what the page is called",
    "question": "what the experiment answers, in one sentence or two",
    "notes": "a list of remarks for the page: what the documents claim, and why our figures may be others [none]",
    "repeats": "rounds; each runs every cell once, with SEED one higher than in the round before [1]",
    "settings": "a table of settings for all cells",
    "grid": "[[grid]], once or several times: a block of cells",
    "quick": "a table of what is otherwise with --quick",
    "show": "[[show]], once for each part of the page: a view, and its options",
}
BLOCK_FIELDS = {
    "label": 'what its cells are called, with settings in braces: "{SYNC_MODE}, {LINK_RATE}" [the values of its lists]',
    "may_fail": "why a run of this block that fails is no failure of the experiment [it is one]",
    "quick": "false: not with --quick [true]",
}
QUICK_FIELDS = {
    "repeats": "rounds",
    "settings": "a table of settings: each takes the place of those of its name, in [settings] and in the blocks (of a "
    "block's single value only where it is a single value itself); one that stands in no block is for all cells",
}

Values = dict[str, tuple[Place, list[str]]]  # of each setting, where it stands and what it can be

MOST_REPEATS = 100
MOST_CELLS = 1000


@dataclass(frozen=True)
class Show:
    """A part of the page: the name of a view, and its options."""

    view: str
    options: dict[str, Any]
    place: Place


@dataclass(frozen=True)
class Grid:
    """A grid file that has been read and found right."""

    name: str
    title: str
    question: str
    notes: list[str]
    repeats: int
    cells: list[Cell]
    show: list[Show]
    quick: bool
    lines: Lines = field(repr=False)

    def refusal(self, place: Place, message: str) -> SettingError:
        """An error that names file and line."""
        return _refusal(self.name, self.lines, place, message)


def names() -> list[str]:
    """Of all grid files."""
    return sorted(path.stem for path in GRIDS.glob("*.toml"))


def read(name: str, *, quick: bool = False, given: Mapping[str, str] | None = None) -> Grid:
    """Read a grid file, with the settings given in place of its own; refuse it with file and line."""
    path = GRIDS / f"{name}.toml"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or not path.is_file():
        raise SettingError(
            f"'{name}' is no experiment: there is no {SHOWN_AS / name}.toml. Known: {', '.join(names())}."
        )
    text = path.read_text(encoding="utf-8")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{SHOWN_AS / path.name} is no TOML: {error}") from None
    # Both versions are checked, whichever is asked for.
    full, small = (_Reader(name, content, Lines(text), quick=each).grid(dict(given or {})) for each in (False, True))
    return small if quick else full


def _refusal(name: str, lines: Lines, place: Place, message: str) -> SettingError:
    return SettingError(f"{SHOWN_AS}/{name}.toml, line {lines.of(place)}: {message}")


def _varied(blocks: Sequence[Values]) -> list[str]:
    """The settings that some cells have otherwise than others, or not at all."""
    values: dict[str, set[str]] = {}
    for block in blocks:
        for name, (_, choices) in block.items():
            values.setdefault(name, set()).update(choices)
    return [name for name, all_of in values.items() if len(all_of) > 1 or not all(name in block for block in blocks)]


class _Reader:
    def __init__(self, name: str, content: dict[str, Any], lines: Lines, *, quick: bool) -> None:
        self._name, self._content, self._lines = name, content, lines
        self._quick: dict[str, Any] = self._content.get("quick", {}) if quick else {}
        self._is_quick = quick

    def grid(self, given: dict[str, str]) -> Grid:
        self._check_fields((), self._content, FIELDS)
        for name in ("title", "question"):
            self._check_kind((name,), self._content.get(name), str)
        for name in ("grid", "notes", "show"):
            self._check_kind((name,), self._content.get(name, []), list)
        for name in ("settings", "quick"):
            self._check_kind((name,), self._content.get(name, {}), dict)
        self._check_fields(("quick",), self._content.get("quick", {}), QUICK_FIELDS)
        cells = list(self._cells(given))
        self._check_cells(cells)
        return Grid(
            name=self._name,
            title=self._content["title"],
            question=self._content["question"],
            notes=[str(note) for note in self._content.get("notes", [])],
            repeats=self._repeats(),
            cells=[cell for cell, _ in cells],
            show=[self._show(number, show) for number, show in enumerate(self._content.get("show", []))],
            quick=self._is_quick,
            lines=self._lines,
        )

    def _refuse(self, place: Place, message: str) -> SettingError:
        return _refusal(self._name, self._lines, place, message)

    def _check_fields(self, place: Place, given: Mapping[str, Any], allowed: Mapping[str, str]) -> None:
        for name in given:
            if name not in allowed:
                raise self._refuse((*place, name), f"'{name}' is no field. Allowed here: {', '.join(allowed)}.")

    def _check_kind(
        self, place: Place, given: object, kind: type[str] | type[list[Any]] | type[dict[str, Any]]
    ) -> None:
        words = "a text" if kind is str else "a list" if kind is list else "a table"
        if not isinstance(given, kind) or (not given and place in (("title",), ("question",), ("grid",))):
            raise self._refuse(place, f"'{place[-1]}' is missing or is not {words}.")

    def _repeats(self) -> int:
        place: Place = ("quick", "repeats") if "repeats" in self._quick else ("repeats",)
        repeats = self._quick.get("repeats", self._content.get("repeats", 1))
        if not isinstance(repeats, int) or isinstance(repeats, bool) or not 1 <= repeats <= MOST_REPEATS:
            raise self._refuse(
                place, f"repeats = {repeats}: not allowed. Allowed: a whole number, 1 to {MOST_REPEATS}."
            )
        return repeats

    def _show(self, number: int, show: Any) -> Show:
        place: Place = ("show", number)
        if not isinstance(show, dict) or not isinstance(show.get("view"), str):
            raise self._refuse(place, '[[show]] needs a view = "...".')
        return Show(show["view"], {name: value for name, value in show.items() if name != "view"}, place)

    def _cells(self, given: Mapping[str, str]) -> Iterator[tuple[Cell, dict[str, Place]]]:
        """Each cell, and where each of its settings stands."""
        blocks = list(self._blocks())
        varied = _varied([values for *_, values in blocks])
        self._check_given(given, varied)
        for place, fields, values in blocks:
            lists = {name: choices for name, (_, choices) in values.items()}
            own_lists = [name for name, choices in lists.items() if len(choices) > 1 and name not in given]
            for point in itertools.product(*lists.values()):
                chosen = {**dict(zip(lists, point, strict=True)), **given}
                told_apart = own_lists or [name for name in varied if name in chosen]
                label = self._label(place, fields.get("label"), chosen, told_apart)
                own_varied = {name: chosen[name] for name in varied if name in chosen}
                cell = Cell(label, chosen, own_varied, fields.get("may_fail"))
                yield cell, {name: where for name, (where, _) in values.items() if name not in given}

    def _check_given(self, given: Mapping[str, str], varied: Sequence[str]) -> None:
        for name in given:
            if name not in known():
                raise SettingError(f"{name} is not a setting that experiments take. {settings.nearest(name, known())}")
            if name in varied:
                raise SettingError(f"{name}={given[name]}: the experiment '{self._name}' varies {name} itself.")

    def _blocks(self) -> Iterator[tuple[Place, dict[str, str], Values]]:
        """Of each [[grid]]: its place, its fields, and the values of all its settings."""
        common = self._settings(("settings",), self._content.get("settings", {}))
        quick = self._settings(("quick", "settings"), self._quick.get("settings", {}))
        tables = [block for block in self._content["grid"] if isinstance(block, dict)]
        in_blocks = {name for block in tables for name in block}
        listed = {name for block in tables for name, value in block.items() if isinstance(value, list)}
        for number, block in enumerate(self._content["grid"]):
            place: Place = ("grid", number)
            if not isinstance(block, dict):
                raise self._refuse(place, "[[grid]] is a table of settings.")
            fields = {name: block[name] for name in ("label", "may_fail") if name in block}
            for name, value in fields.items():
                self._check_kind((*place, name), value, str)
            if not isinstance(block.get("quick", True), bool):
                raise self._refuse((*place, "quick"), f"quick = {block['quick']}: not allowed. Allowed: true, false.")
            own = self._settings(place, {name: value for name, value in block.items() if name not in BLOCK_FIELDS})
            # A quick version chooses anew where there is a choice, and leaves alone what makes a block, such as a
            # single rank beside a list of others. What no block has is for all cells.
            anew = {name for name in own if name in quick and (len(own[name][1]) > 1 or name not in listed)}
            own |= {name: quick[name] for name in anew}
            for_all = {name: value for name, value in quick.items() if name in common or name not in in_blocks}
            if not self._is_quick or block.get("quick", True):
                yield place, fields, {name: each for name, each in (common | for_all).items() if name not in own} | own

    def _settings(self, place: Place, table: Any) -> Values:
        """Each setting's place and values, as one would write them on a command line."""
        self._check_kind(place, table, dict)
        found = {}
        for name, value in table.items():
            where = (*place, name)
            if name in NOT_IN_A_GRID:
                raise self._refuse(where, f"{name} is not for a grid: the experiment or the machine gives it.")
            if name not in known():
                raise self._refuse(where, f"{name} is not a setting. {settings.nearest(name, known())}")
            values = value if isinstance(value, list) else [value]
            for each in values:
                if isinstance(each, bool) or not isinstance(each, str | int | float):
                    raise self._refuse(where, f"{name} = {each}: not allowed. Allowed: a text or a number, or a list.")
            if not values or len(set(map(str, values))) < len(values):
                raise self._refuse(where, f"{name} = {value}: not allowed. Allowed: one value or more, each once.")
            found[name] = (where, [str(each) for each in values])
        return found

    def _label(self, place: Place, template: str | None, chosen: Mapping[str, str], varied: Sequence[str]) -> str:
        if template is None:
            words = [chosen[name] if name == "SYNC_MODE" else f"{name.lower()} {chosen[name]}" for name in varied]
            return ", ".join(words) or "all"
        try:
            return template.format(**chosen, ranks=world_size(chosen))
        except (LookupError, ValueError, AttributeError):
            raise self._refuse(
                (*place, "label"),
                f'label = "{template}": not allowed. Allowed in braces: {", ".join(chosen)}, '
                "the block's settings, and ranks.",
            ) from None

    def _check_cells(self, cells: Sequence[tuple[Cell, dict[str, Place]]]) -> None:
        if not cells:
            raise self._refuse(("grid",), "no cell is left in the quick version.")
        if len(cells) > MOST_CELLS:
            raise self._refuse(("grid",), f"the grid has {len(cells)} cells. Allowed: at most {MOST_CELLS}.")
        slugs: dict[str, Cell] = {}
        for cell, places in cells:
            block = next((place[:2] for place in places.values() if place[0] == "grid"), ("grid",))
            if other := slugs.get(cell.slug.lower()):
                raise self._refuse(
                    block, f"two cells are called '{other.name}' and '{cell.name}'. Give the blocks labels that differ."
                )
            slugs[cell.slug.lower()] = cell
            for name, message in problems(cell.settings).items():
                if name in places:
                    raise self._refuse(places[name], message)
                if name in cell.settings:
                    raise SettingError(message)  # given beside the file
                raise self._refuse(block, message)
