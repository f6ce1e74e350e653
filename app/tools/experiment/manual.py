"""The manual of grid files, made from the definitions of their fields and of the views."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from app.analysis.on_request import ON_REQUEST, WITH_A_NUMBER
from app.tools.experiment.plan.grid_file import Block, GridFile, Published, Quick
from app.tools.experiment.views import VIEWS
from app.tools.experiment.views.curve import KNOWN
from app.tools.experiment.views.view import View

INTRODUCTION = """\
# Grid files

`scripts/experiment NAME` makes the runs that `NAME.toml` in this folder asks for, and their page. See
[docs/experiments.md](../../docs/experiments.md#a-grid-file-of-your-own) for an example. In brackets: what holds where a
field is not given.
"""


def text() -> str:
    """The whole of it."""
    return "\n".join([INTRODUCTION, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    yield from _table("Fields of the file", _fields(GridFile))
    yield from _table("Fields of a `[[grid]]`, beside its settings", _fields(Block))
    yield from _table("Fields of `[quick]`", _fields(Quick))
    common = _fields(View)
    yield from _table("Fields of every `[[view]]`", common)
    for name, view in VIEWS.items():
        own = {option: what for option, what in _fields(view).items() if option not in common}
        yield from _table(f"A `{name}`: {(view.__doc__ or '').splitlines()[0]}", own)
    yield from _table("Fields of a `[[view.published]]`: figures of a document", _fields(Published))
    numbered = {f"{name}(NUMBER)": meaning.format("NUMBER") for name, (meaning, _) in WITH_A_NUMBER.items()}
    every = {each.name: each.meaning for each in ON_REQUEST} | numbered | {"phases": "each phase of a step"}
    yield from _table("Measures", every)
    yield (
        "A `line`, a `bar` and a `table` also take every figure by its name in `summary.json`; of figures of single "
        "ranks, the mean.\n"
    )
    for by, names in KNOWN.items():
        yield f"Of a `curve` by {by}: {', '.join(f'`{each}`' for each in names)}.\n"


def _fields(model: type[BaseModel]) -> dict[str, str]:
    return {
        name: f"{field.description}{' (must be given)' if field.is_required() else ''}"
        for name, field in model.model_fields.items()
    }


def _table(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title.rstrip('.')}\n"
    yield "| | |"
    yield "|---|---|"
    yield from (f"| `{name}` | {what} |" for name, what in rows.items())
    yield ""
