"""docs/troubleshooting.md: what it quotes is said somewhere, and what the program and the scripts refuse is on it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubleshooting.md"
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
REFUSING = re.compile(r"\b(?:refuse|fail|error) (?:[a-z-]+ )?(?=[\"'])")
FEWEST_WORDS = 3  # a template with fewer passes on the words of others

# Messages that the page leaves out, and why.
ELSEWHERE = {
    "the tests need": "scripts/test, for contributors",
    "the node tests need": "scripts/test, for contributors",
    "cannot unpack the SSH server": "scripts/test, for contributors",
    "is no experiment": "the message lists the experiments",
    "is no calibration. Known": "the message lists them",
    "grids were given. Allowed": "the message says all",
    "Settings are written NAME=value": "the scripts have refused it before",
    "invalid name of a calibration": "the message says all",
    "has the settings of all runs": "the message says all",
    "two grids, … and …. Give one": "the message says all",
    "nothing to predict": "the message names the option that shows examples",
    "is not a setting that experiments take": "the message names the nearest one",
    "varies … itself": "the message names the file and the setting",
    "is no TOML": "the message names the line",
    "… has … bytes. Allowed: at most": "the message says all: a grid file that is too long",
    "was run with …, and is now to be run with": "the message says both ways out",
    "has never been run in this version": "the message names the command",
    "was still in flight": "a defect of the program",
    "the ranks save different steps or runs": "a defect of the program",
    "Remove it first": "the fault before it is on the page",
}


def template(node: ast.AST) -> str:
    """A text as its author wrote it, with … for what is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(template, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case _:
            return "…"


def quoted_in_shell(text: str) -> str:
    """The template of the quoted word at the beginning of a text; commands in it may hold quotes themselves."""
    if text[0] == "'":
        return text[1 : text.index("'", 1)]
    depth, found, position = 0, "", 1
    while depth or text[position] != '"':
        if text.startswith("$(", position):
            found += "" if depth else "…"
            depth += 1
            position += 1
        elif depth:
            depth -= {"(": -1, ")": 1}.get(text[position], 0)
        else:
            found += text[position]
        position += 1
    return re.sub(r"\$\{[^}]*\}|\$\w+", "…", found)


@cache
def programs() -> list[ast.AST]:
    return [node for path in sorted(ROOT.glob("app/**/*.py")) for node in ast.walk(ast.parse(path.read_text()))]


@cache
def scripts() -> list[str]:
    folders = (ROOT / "scripts", ROOT / "scripts/host", ROOT / "docker")
    return [
        path.read_text()
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix in ("", ".sh") and path.is_file()
    ]


@cache
def everything_said() -> list[str]:
    texts = [template(node) for node in programs() if isinstance(node, ast.Constant | ast.JoinedStr)]
    return [*texts, *(line for script in scripts() for line in script.splitlines())]


def refusals() -> Iterator[str]:
    """The template of every error that is raised, and of every message with which a script ends."""
    for node in programs():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
            yield template(node.args[0])
    for script in scripts():
        yield from (quoted_in_shell(script[found.end() :]) for found in REFUSING.finditer(script))


def names_of_errors() -> set[str]:
    """The names that errors have in the sources: of each kind of failure, and of a single one."""
    found = {getattr(errors, kind).name for kind in ERRORS}
    for node in programs():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            found |= {str(each.value) for each in node.args[1:] if isinstance(each, ast.Constant)}
    for script in scripts():
        found |= set(re.findall(r"\b(?:refuse|fail|error) ([a-z-]+) [\"']", script))
    return found - {errors.StoppedError.name}


def rows() -> list[str]:
    return [line.split(" | ")[0] for line in PAGE.read_text().splitlines() if line.startswith("| ")]


def test_every_error_has_a_name_that_the_page_explains() -> None:
    explained = {name for row in rows() for name in re.findall(r"^\| `([a-z]+(?:-[a-z]+)*)`$", row)}
    assert explained == names_of_errors()


def quotes() -> list[str]:
    """The messages on the page: what is in backticks in the first column of its tables."""
    cells = [row for row in rows() if not re.fullmatch(r"\| `[a-z-]+`", row)]
    return [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]


def says(text: str, quote: str) -> bool:
    return re.search(".*?".join(map(re.escape, quote.split("…"))), text, re.DOTALL) is not None


@pytest.mark.parametrize("quote", [*quotes(), *ELSEWHERE])
def test_what_the_page_quotes_is_what_the_sources_say(quote: str) -> None:
    assert any(says(text, quote) for text in everything_said()), "no message reads like this: correct the page"


def test_every_refusal_is_on_the_page() -> None:
    known = [*quotes(), *ELSEWHERE]
    missing = [
        text
        for text in dict.fromkeys(refusals())
        if len(re.findall(r"\w{2,}", text)) >= FEWEST_WORDS and not any(says(text, quote) for quote in known)
    ]
    assert missing == [], "add them to docs/troubleshooting.md, or to ELSEWHERE with the reason"


def test_messages_of_scripts_are_read_with_the_commands_in_them() -> None:
    assert quoted_in_shell('"$name=$(shown "$(one two)"): not ${three:+ allowed}." # rest') == "…=…: not …."
    assert quoted_in_shell("'as it is' \"rest\"") == "as it is"
    assert len(list(refusals())) > 60
