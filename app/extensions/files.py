"""Lists a user's files in extensions/ and folders of pictures in data/ by name, without opening them."""

import re
from collections.abc import Collection
from pathlib import Path

from app.machine.folders import DATA, PREPARED, data_locked

FOLDER = Path("extensions")  # mounted read-only into the containers
PARTS = ("train", "test")  # of every data set
PICTURES = "pictures.json"  # beside the arrays that `prepare` has made of pictures
FOLDER_NAME = re.compile("[a-z0-9_]+")


def names() -> tuple[str, ...]:
    """The values that a setting accepts: every .py file whose stem is a valid Python identifier."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.py") if path.stem.isidentifier()))


def folders() -> tuple[str, ...]:
    """The other names that DATASET accepts: every folder in data/, or, as ranks do not see data/, its arrays."""
    try:
        found = {path.name for path in DATA.iterdir() if FOLDER_NAME.fullmatch(path.name) and not path.is_file()}
    except PermissionError as error:
        raise data_locked(error) from None
    except OSError:
        found = set()
    found |= {path.parent.name.partition("-")[0] for path in PREPARED.glob(f"*/{PICTURES}")}
    return tuple(sorted(found.difference(names())))


def holds_pictures(name: str) -> bool:
    """Whether data/ has a folder of this name that is laid out like pictures, and not one of archives."""
    return any((DATA / name / part).is_dir() for part in PARTS)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.py"


def sources(used: Collection[str]) -> list[Path]:
    """All files if any is used, because one may import another."""
    return sorted(FOLDER.rglob("*.py")) if used else []
