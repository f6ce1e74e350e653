"""docs/troubleshooting.md: the names of all errors are on it, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from app import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubleshooting.md"
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
IN_SHELL = re.compile(r"\b(?:refuse|fail|error) ([a-z-]+) [\"']")


def raised() -> Iterator[ast.Call]:
    for path in sorted(ROOT.glob("app/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                yield node


def scripts() -> Iterator[str]:
    for folder in (ROOT / "scripts", ROOT / "scripts/host", ROOT / "docker"):
        for path in sorted(folder.iterdir()):
            if path.suffix in ("", ".sh") and path.is_file():
                yield path.read_text()


def names_of_errors() -> set[str]:
    """The names in the sources: each kind of error has one, and a single error may have its own."""
    found = {getattr(errors, kind).name for kind in ERRORS}
    found |= {str(each.value) for call in raised() for each in call.args[1:] if isinstance(each, ast.Constant)}
    found |= {name for script in scripts() for name in IN_SHELL.findall(script)}
    return found - {errors.StoppedError.name}


def test_every_error_has_a_name_that_the_page_explains_once() -> None:
    explained = re.findall(r"^\| `([a-z]+(?:-[a-z]+)*)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(names_of_errors())
    assert len(explained) > 30
