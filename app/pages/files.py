"""How pages, tables and drawings get into files: whole or not at all."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from app import __version__
from app.machine.folders import REPORT, replace_file
from app.pages import written
from app.pages.chart import STYLE, as_file, in_page
from app.pages.drawing import Drawing
from app.pages.table import Table


def write_page(
    folder: Path, template: str, tables: Sequence[Table], drawings: Sequence[Drawing], content: Mapping[str, Any]
) -> Path:
    """Put a page there, with its tables and figures; those of an earlier page that this one has not are taken away."""
    own: dict[str, str] = {f"tables/{table.name}.csv": table.csv() for table in tables}
    own |= {f"tables/{table.name}.md": written.markdown(table.shown()) for table in tables}
    own |= {f"tables/{table.name}.tex": written.latex(table.shown()) for table in tables}
    own |= {f"figures/{drawing.name}.svg": as_file(drawing.chart) for drawing in drawings if drawing.chart}
    for part, kinds in (("tables", ("csv", "md", "tex")), ("figures", ("svg", "png"))):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for kind in kinds:
            for path in (folder / part).glob(f"*.{kind}"):
                if f"{part}/{path.name}" not in own:
                    path.unlink()
    for name, text in own.items():
        replace_file(folder / name, text)
    replace_file(folder / REPORT, render(template, content))
    return folder / REPORT


def render(template: str, content: Mapping[str, Any]) -> str:
    """A page out of its template; everything is escaped but our own drawings."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["in_page"] = in_page
    environment.filters["code"] = _with_code
    return environment.get_template(template).render(**content, version=__version__, chart_style=STYLE)


def _with_code(words: str) -> Markup:
    """Text whose words in backticks are code."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words)))
    return Markup(marked)  # noqa: S704  # escaped above
