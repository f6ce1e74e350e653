"""Lists the files in extensions/ by name, without opening them."""

from collections.abc import Collection
from pathlib import Path

FOLDER = Path("extensions")  # mounted read-only into the containers


def names() -> tuple[str, ...]:
    """The values that a setting accepts: every .py file whose stem is a valid Python identifier."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.py") if path.stem.isidentifier()))


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.py"


def sources(used: Collection[str]) -> list[Path]:
    """All files if any is used, because one may import another."""
    return sorted(FOLDER.rglob("*.py")) if used else []
