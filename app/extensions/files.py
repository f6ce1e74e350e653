"""The files in extensions/, by name: nothing here opens one."""

from collections.abc import Collection
from pathlib import Path

FOLDER = Path("extensions")  # a user's own files; the containers mount it read-only


def names() -> tuple[str, ...]:
    """What a setting can name: each file that ends in .py and can be a module of Python."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.py") if path.stem.isidentifier()))


def path_of(name: str) -> Path:
    """The file of an extension, as messages show it."""
    return FOLDER / f"{name}.py"


def sources(used: Collection[str]) -> list[Path]:
    """All files, where any is used: one may import another."""
    return sorted(FOLDER.rglob("*.py")) if used else []
