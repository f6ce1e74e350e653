"""The manual of grid files, made from the definitions of their fields and of the views."""

import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from app.analysis.on_request import ON_REQUEST, WITH_A_NUMBER
from app.tools.experiment.plan.grid_file import Block, GridFile, Published, Quick
from app.tools.experiment.views import VIEWS
from app.tools.experiment.views.curve import KNOWN
from app.tools.experiment.views.view import View

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

[[view]]
kind = "line"
title = "Time per step"
measure = "seconds"
by = "rate"
series = "mode"
```

A wrong field, setting or value is refused before the first run, with its place in the file. `RUN_NAME`, `WORLD_SIZE`,
`RANK`, `MASTER_ADDR`, `NETWORK_PREFIX` and `DATA_FOLDER` are the experiment's or the machine's own.
"""


def text() -> str:
    """The whole of it."""
    return "\n".join([INTRODUCTION, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    for title, model in (
        ("Fields of the file", GridFile),
        ("Fields of a `[[grid]]`, beside its settings", Block),
        ("Fields of `[quick]`", Quick),
    ):
        yield f"## {title}\n"
        yield from _table(
            {name: field.description or "" for name, field in model.model_fields.items() if not field.exclude}
        )
    yield "## Views\n"
    yield "What a `[[view]]` can be. In brackets: what holds where an option is not given. All of them take:\n"
    common = _options(View)
    yield from _table(common)
    for name, view in VIEWS.items():
        yield f"### `{name}`\n"
        yield f"{(view.__doc__ or '').splitlines()[0]}\n"
        yield from _table({option: what for option, what in _options(view).items() if option not in common})
    yield "## Published figures\n"
    yield "A `[[view.published]]` has figures of a document, which stand beside ours:\n"
    yield from _table(_options(Published))
    yield "## Measures\n"
    yield (
        "Of a `line`, a `bar` and a `table`, beside every figure by its name in `summary.json`; of figures of "
        "single ranks, the mean:\n"
    )
    yield from _table({each.name: each.meaning for each in ON_REQUEST} | NUMBERED | {"phases": "each phase of a step"})
    for by, names in KNOWN.items():
        yield f"Of a `curve` by {by}: {', '.join(f'`{each}`' for each in names)}.\n"


NUMBERED = {f"{name}(NUMBER)": meaning.format("NUMBER") for name, (meaning, _) in WITH_A_NUMBER.items()}


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
    return {str: "text", int: "whole number", float: "number", bool: "true, false"}.get(annotation, "table")
