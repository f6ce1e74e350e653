"""Tables in Markdown and LaTeX: whatever a name holds, a reader gets the name, and the table keeps its shape."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.units import DIGITS, SECONDS, TEXT
from app.pages.table import Column, Table
from app.pages.written import in_latex, in_markdown, latex, markdown

HOSTILE = r"""50% of_a & b # | c \ {d} $e$ ~f^g <b>h</b> [i](j) *k* `l` \input{m}"""
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
COMMANDS = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<", "textgreater": ">"}
COMMANDS |= {"textbar": "|"}


def table(*names: str, note: str = "A note.") -> Table:
    columns = [Column[str]("", "name", TEXT, str), Column[str]("step", "seconds", SECONDS, lambda _: 0.0571)]
    columns.append(Column("loss", "loss", DIGITS, lambda _: None))
    return Table.of("times", "Times", columns, names, note)


def read_markdown(words: str) -> str:
    """What a reader sees of it."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", words)


def read_latex(words: str) -> str:
    """What a reader sees of it; a character that LaTeX would take for something else has no meaning here."""
    token = re.compile(r"\\([a-z]+)\{\}|\\([{}%&#_$])|\{([\[*])\}|([^\\{}%&#_$~^*\[])")
    shown, place = "", 0
    while place < len(words):
        match = token.match(words, place)
        assert match, words[place:]
        shown += COMMANDS[match[1]] if match[1] else match[2] or match[3] or match[4]
        place = match.end()
    return shown


def in_a_line(words: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in words).split())


@given(NAMES)
def test_a_reader_gets_the_name(name: str) -> None:
    assert read_markdown(in_markdown(name)) == in_a_line(name)
    assert read_latex(in_latex(name)) == in_a_line(name)


@given(st.lists(NAMES, min_size=1, max_size=4), NAMES)
def test_no_name_breaks_the_shape_of_a_table(names: list[str], note: str) -> None:
    caption, empty, *lines = markdown(table(*names, note=note)).splitlines()
    assert (caption.startswith("**Times.**"), empty, len(lines)) == (True, "", 2 + len(names))
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 4
    rows = [line for line in latex(table(*names, note=note)).splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(names)
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [2] * len(rows)


@pytest.mark.parametrize("name", [HOSTILE, "[width=1cm]", "*", "a\nb\r\nc", "\\", "%", "\\\\", "\\|", ""])
def test_hostile_names_are_only_names(name: str) -> None:
    test_a_reader_gets_the_name.hypothesis.inner_test(name)  # type: ignore[attr-defined]
    test_no_name_breaks_the_shape_of_a_table.hypothesis.inner_test([name], name)  # type: ignore[attr-defined]


def test_they_read_as_the_page_does() -> None:
    assert markdown(table("rank_0")) == (
        "**Times.** A note.\n\n|  | step ms | loss |\n| :-- | --: | --: |\n| rank\\_0 | 57.1 | - |\n"
    )
    assert latex(table("rank_0")) == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{Times. A note.}",
            r"\label{tab:times}",
            r"\begin{tabular}{lrr}",
            r"\hline",
            r" & step ms & loss \\",
            r"\hline",
            r"rank\_0 & 57.1 & - \\",
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
