"""The manual of grid files, made from the definitions of their fields and of the views."""

import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from app.experiment.plan.grid import BLOCK_FIELDS, FIELDS, QUICK_FIELDS
from app.experiment.views import VIEWS
from app.experiment.views.view import Published

INTRODUCTION = """\
# Grid files

`scripts/experiment NAME` makes the runs that `NAME.toml` in this folder asks for, and their page. A new experiment is a
new file here; `scripts/experiment NAME --dry-run` checks it, and says which runs it stands for and how long they take.

Every name in capitals is a setting of the cluster (`.env.example` lists them), with one value or a list of values. A
block's cells are all combinations of its lists; the experiment's cells are those of all its blocks:

```toml
title = "Two modes on two links"
question = "Which mode is the faster one, and where?"
repeats = 3

[settings]
MODEL = "lenet5"
MAX_STEPS = 20

[[grid]]
label = "{SYNC_MODE} at {LINK_RATE}"
SYNC_MODE = ["all_reduce", "ddp"]
LINK_RATE = ["100mbit", "1gbit"]

[[show]]
view = "times"
title = "Time per step"
```

A wrong field, setting or value is refused before the first run, with its line. `RUN_NAME`, `WORLD_SIZE`, `RANK`,
`MASTER_ADDR` and `NETWORK_PREFIX` are the experiment's or the machine's own.
"""


def text() -> str:
    """The whole of it."""
    return "\n".join([INTRODUCTION, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    for title, fields in (
        ("Fields of the file", FIELDS),
        ("Fields of a `[[grid]]`, beside its settings", BLOCK_FIELDS),
        ("Fields of `[quick]`", QUICK_FIELDS),
    ):
        yield f"## {title}\n"
        yield from _table(fields)
    yield "## Views\n"
    yield "What a `[[show]]` can ask for. In brackets: what holds where an option is not given.\n"
    for name, view in VIEWS.items():
        yield f"### `{name}`\n"
        yield f"{(view.__doc__ or '').splitlines()[0]}\n"
        yield from _table(_options(view))
    yield "## Published figures\n"
    yield "An option `published` or `published_...` is a table of its own, `[show.published]`:\n"
    yield from _table(_options(Published))


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield from (f"| `{name}` | {what} |" for name, what in rows.items())
    yield ""


def _options(model: type[BaseModel]) -> dict[str, str]:
    return {
        name: f"{field.description} ({_kind(field.annotation)}{', must be given' if field.is_required() else ''})"
        for name, field in model.model_fields.items()
    }


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(each) for each in inside if each is not types.NoneType)
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in inside)
    if origin is list:
        return f"list of {_kind(inside[0])}s"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(annotation, "text")
