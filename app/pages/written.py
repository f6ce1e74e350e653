"""Tables as text: for a terminal; for a report of one's own as Markdown and LaTeX, with the note as caption."""

import io
import re

from rich.console import Console
from rich.table import Table as Grid

from app.pages.table import Table

UNWRAPPED_COLUMNS = 10_000  # a table takes the width that it needs; wrapped numbers cannot be read
MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&^])")  # each may be escaped by a backslash
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # which after the end of a row would begin an option
    "*": "{*}",
} | {each: f"\\{each}" for each in "{}%&#_$"}


def on_terminal(whole: Table) -> str:
    table = whole.shown()
    grid = Grid(box=None, pad_edge=False, header_style="")
    for column, label in zip(table.columns, table.labels(), strict=True):
        grid.add_column(
            f"{column.heading} {label}".strip(), justify="right" if column.unit.right else "left", no_wrap=True
        )
    for cells in table.cells():
        grid.add_row(*(words for _, words in cells))
    target = io.StringIO()
    Console(file=target, width=UNWRAPPED_COLUMNS, highlight=False, markup=False).print(grid)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines())


def markdown(table: Table) -> str:
    sides = ["--:" if column.unit.right else ":--" for column in table.columns]
    rows = [[in_markdown(words) for words in row] for row in _rows(table)]
    lines = [f"| {' | '.join(row)} |" for row in (rows[0], sides, *rows[1:])]
    return f"**{in_markdown(table.title)}.** {in_markdown(table.note)}".strip() + "\n\n" + "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    sides = "".join("r" if column.unit.right else "l" for column in table.columns)
    heading, *body = [f"{' & '.join(in_latex(words) for words in row)} \\\\" for row in _rows(table)]
    caption = f"{in_latex(table.title)}. {in_latex(table.note)}".strip()
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{caption}}}",
        f"\\label{{tab:{table.name}}}",
        f"\\begin{{tabular}}{{{sides}}}",
        *(r"\hline", heading, r"\hline", *body, r"\hline"),
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def in_markdown(words: str) -> str:
    """These words, and no markup."""
    return MARKDOWN.sub(r"\\\1", _in_a_line(words))


def in_latex(words: str) -> str:
    """These words, and no commands."""
    return "".join(LATEX.get(each, each) for each in _in_a_line(words))


def _rows(table: Table) -> list[list[str]]:
    """The headings with their units, and below them the words."""
    headings = [f"{column.heading} {unit}".strip() for column, unit in zip(table.columns, table.labels(), strict=True)]
    return [headings, *([words for _, words in row] for row in table.cells())]


def _in_a_line(words: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in words).split())
