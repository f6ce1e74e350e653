"""A grid file as it is written: which fields it has, and what each can be."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from app.analysis.statistics import mean
from app.errors import SettingError
from app.machine.say import escaped, shown
from app.settings.explanations import hint
from app.tools.experiment.plan.cells import NOT_IN_A_GRID, known

Place = tuple[str | int, ...]  # of a key: the tables that it is in, each with its number where there are several

MOST_REPEATS = 100
MOST_BYTES = 2**18  # of a grid file


class UnknownName(ValueError):  # noqa: N818  # its message is part of a refusal
    """An option names what there is not."""


@dataclass(frozen=True)
class Choices:
    """The values of a setting, as they would be written on a command line."""

    values: list[str]
    listed: bool  # false for a single value without a list


def _choices(given: object) -> Choices:
    values = given if isinstance(given, list) else [given]
    if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in values):
        raise ValueError("Give a text or a number, or a list")
    if not values or len(set(map(str, values))) < len(values):
        raise ValueError("Give one or more values, each once")
    return Choices([str(each) for each in values], isinstance(given, list))


Chosen = Annotated[Choices, BeforeValidator(_choices)]


class Block(BaseModel):
    """A [[grid]]: its settings, of which every combination is a cell, stand beside these fields."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Chosen] = Field(init=False)

    label: str | None = Field(
        None,
        description='name of the block\'s cells, with settings in braces: "{SYNC_MODE}, {LINK_RATE}" '
        "[the values of its lists]",
    )
    may_fail: str | None = Field(
        None, description="reason why a failed run of this block does not fail the experiment [it does]"
    )
    quick: bool = Field(True, strict=True, description="false omits this block with --quick [true]")

    @property
    def settings(self) -> dict[str, Choices]:
        """Its own ones."""
        return self.__pydantic_extra__


class Quick(BaseModel):
    """The [quick] table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repeats: int | None = Field(None, strict=True, ge=1, le=MOST_REPEATS, description="rounds")
    settings: dict[str, Chosen] = Field(
        {},
        description="a table of settings: each replaces the setting of that name in [settings] and in the blocks (a "
        "block's single value only if no block lists values for it); a setting that no block has applies to all cells",
    )


class ViewTable(BaseModel):
    """A [[view]], a part of the page: what it is, and beside it its options, which only the view can check."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str = Field(description="`line`, `bar`, `curve` or `table`")


class Published(BaseModel):
    """A [[view.published]]: figures that a document published, by cell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measure: str | None = Field(None, description="the measure that they are of, one of the view's [its first one]")
    ratio: bool = Field(False, description="true if the figures are ratios to the cell that is compared with")
    source: str = Field(description="which document, in a few words")
    scale: float = Field(
        1.0,
        gt=0,
        description="factor that converts the figures to seconds, bytes or shares, such as 1e6 for MB [1]",
    )
    values: dict[str, float | list[float | None]] = Field(
        description="by cell; a list where a cell has several, such as one for each rank"
    )

    def of(self, cell: str | None, rank: int | None = None) -> float | None:
        """The figure of a cell or of one of its ranks; where each rank has one, that of the cell is their mean."""
        told = self.values.get(cell or "")
        if isinstance(told, list):
            told = mean(told if rank is None else told[rank : rank + 1])
            rank = None
        return None if told is None or rank is not None else self.scale * told

    def several(self, cell: str) -> list[float | None] | None:
        """The figures of a cell that has several."""
        values = self.values.get(cell)
        return [v if v is None else self.scale * v for v in values] if isinstance(values, list) else None

    def by(self, cell: str | None, base: str | None, *, gain: bool = False) -> float | None:
        """A cell's figure by another's, or the other by it, or that ratio as it was published."""
        if self.ratio:
            return self.of(cell)
        value, other = self.of(cell), self.of(base)
        value, other = (other, value) if gain else (value, other)
        return value / other if value is not None and other else None

    @property
    def by_cell(self) -> dict[str, float]:
        return {cell: value for cell in self.values if (value := self.of(cell)) is not None}


class GridFile(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(min_length=1, description="title of the page")
    question: str = Field(min_length=1, description="the question that the experiment answers, in one or two sentences")
    notes: list[str] = Field(
        [],
        description="remarks for the page, such as what the documents claim and why our figures may differ [none]",
    )
    repeats: int = Field(
        1,
        strict=True,
        ge=1,
        le=MOST_REPEATS,
        description="rounds; each runs every cell once, with SEED one higher than in the round before [1]",
    )
    settings: dict[str, Chosen] = Field({}, description="a table of settings for all cells")
    grid: list[Block] = Field(min_length=1, description="one or more [[grid]] tables, each a block of cells")
    quick: Quick = Field(Quick(), description="a table of what --quick changes")
    view: list[ViewTable] = Field([], description="[[view]], once for each part of the page: its kind, and its options")

    def settings_tables(self) -> Iterator[tuple[Place, Mapping[str, Choices]]]:
        """Each table of settings, and where it stands."""
        yield from ((("grid", number), block.settings) for number, block in enumerate(self.grid))
        yield ("quick", "settings"), self.quick.settings
        yield ("settings",), self.settings


TABLES: dict[str, type[BaseModel]] = {"grid": Block, "quick": Quick, "published": Published}


def refusal(file: Path, place: Place, message: str, name: str = "invalid-grid") -> SettingError:
    """An error that names the file and the place in it."""
    words: list[str] = []
    for part in place:
        if not isinstance(part, int):
            words.append(shown(part) or '""')
        elif words[-1:] and words[-1] in ("grid", "view"):
            words[-1] = f"[[{words[-1]}]] {part + 1}"
    return SettingError(f"{', '.join([str(file), *words])}: {escaped(message)}", name)


def refusal_of(error: ValidationError, file: Path, model: type[BaseModel], place: Place = ()) -> SettingError:
    """The same for what a table lacks or has wrong; its place is that of the table."""
    # A field that is spelled wrongly also explains the one that is missing.
    detail = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    where, problem = detail["loc"], detail["msg"].removeprefix("Value error, ")
    problem += "" if problem.endswith((".", "?")) else "."
    unknown = isinstance(detail.get("ctx", {}).get("error"), UnknownName)
    *outside, name = [part for part in where if isinstance(part, str)] or [""]
    if detail["type"] == "extra_forbidden":
        table = TABLES.get(outside[0], model) if outside else model
        problem = f"unknown field '{name}'. Choose from: {', '.join(table.model_fields)}."
    elif detail["type"] == "missing":
        problem = f"'{name}' is missing."
    elif where:
        problem = f"invalid {name} = {_written(detail)}. {problem}"
    return refusal(file, (*place, *where), problem, "unknown-name" if unknown else "invalid-grid")


def read(path: Path, shown_as: Path) -> GridFile:
    """A grid file with nothing wrong in its fields."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise SettingError(f"{shown_as} has {size:,} bytes (limit: {MOST_BYTES:,}).", "invalid-grid")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SettingError(f"cannot parse {shown_as}: {shown(str(error))}", "invalid-grid") from None
    try:
        file = GridFile.model_validate(tables)
    except ValidationError as error:
        raise refusal_of(error, shown_as, GridFile) from None
    for place, table in file.settings_tables():
        for name in table:
            if name in NOT_IN_A_GRID:
                message = f"{name} is set by the experiment or the machine. Remove it from the grid."
                raise refusal(shown_as, (*place, name), message)
            if name not in known():
                message = f"unknown setting {name}. {hint(name, known())}"
                raise refusal(shown_as, (*place, name), message, "unknown-setting")
    return file


def _written(detail: ErrorDetails) -> str:
    """A refused value, in a few words."""
    try:
        return shown(str(detail["input"]))
    except (ValueError, RecursionError):  # thousands of digits or of brackets
        return "…"
