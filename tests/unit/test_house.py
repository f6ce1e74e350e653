"""The house: every room says in one sentence what lives there, and the map in CONTRIBUTING.md has all of it."""

import ast
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"
INDENT = " " * 34
ROOMS = sorted(path.parent for path in APP.rglob("__init__.py"))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def floors() -> list[list[str]]:
    """The rooms from the top down, as the contract on imports has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [layer.split(" | ") for contract in contracts if contract.get("containers") == ["app"]
            for layer in contract["layers"]]  # fmt: skip


def lines_of(place: Path) -> Iterator[str]:
    """What the map says of a room, or of a module that stands by itself.

    A room with one file per mode, view or data set does not list them: a new one must not need a line here.
    """
    if place.suffix:
        yield f"{place.relative_to(ROOT)!s:<32}{docstring(place).splitlines()[0]}"
        return
    sentence = docstring(place / "__init__.py").splitlines()[0]
    yield f"{f'{place.relative_to(ROOT)}/':<32}{sentence}"
    modules = sorted(path.stem for path in place.glob("*.py") if path.stem != "__init__")
    if "one file per" not in sentence:
        yield from textwrap.wrap(", ".join(modules), 112, initial_indent=INDENT, subsequent_indent=INDENT)
    for room in ROOMS:
        if room.parent == place:
            yield from lines_of(room)


def map_of_the_house() -> str:
    places = [APP / name for floor in floors() for name in floor]
    lines = [line for place in places for line in lines_of(place if place.is_dir() else place.with_suffix(".py"))]
    return "\n".join(f"    {line}" for line in lines)


def test_the_map_is_complete() -> None:
    """It is what this prints: copy it from there."""
    drawn = map_of_the_house()
    print(drawn)
    assert drawn in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_map_goes_on_with_the_rest_of_the_project() -> None:
    _, _, rest = (ROOT / "CONTRIBUTING.md").read_text().partition(map_of_the_house())
    drawn = {line.split()[0].rstrip("/") for line in rest.split("\n\n")[0].splitlines() if line.startswith("    ")}
    assert {"docs", "extensions", "scripts", "profile.py", "tests"} <= drawn


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_says_in_one_sentence_what_lives_there(room: Path) -> None:
    sentence = docstring(room / "__init__.py")
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0


def test_a_class_name_stands_for_one_thing() -> None:
    """Private ones count: a reader who searches for a name finds one place."""
    places: dict[str, set[Path]] = {}
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(path.relative_to(ROOT))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_package_that_the_tests_name_is_pinned_with_its_hashes() -> None:
    named = (ROOT / "tests/requirements.in").read_text().lower().split()
    pinned = (ROOT / "tests/requirements.txt").read_text()
    assert [each for each in named if f"\n{each} \\\n    --hash=sha256:" not in pinned] == []
