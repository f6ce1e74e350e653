"""Reads an extension's file without running it: whether it is Python, and holds what a setting makes of it."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.errors import SettingError
from app.extensions.files import path_of

MODES_ROOMS = ("app.sync", "app.gradient_sync")  # the second in files from before
USUAL_CHANNELS = 3
MOST_BYTES = 1_000_000


def check_mode(name: str, path: Path | None = None) -> None:
    """Refuse a file that has not exactly one class for SYNC_MODE."""
    tree = _parse(path or path_of(name), path_of(name))
    found = _modes(tree)
    if not found:
        _refuse(name, 1, "no class in it is a subclass of GradientSync, Exchange or Scheduled, so it is no SYNC_MODE")
    if len(found) > 1:
        words = ", ".join(f"{each.name} (line {each.lineno})" for each in found)
        _refuse(name, found[1].lineno, f"it has {len(found)} modes: {words}. A file holds one")


def check_model(name: str) -> None:
    """Refuse a file without `build`, for MODEL."""
    tree = _parse(path_of(name), path_of(name))
    if "build" not in _defined(tree):
        _refuse(name, 1, "it defines no build(batch_norm), so it is no MODEL")
    _channels(name, tree)


def check_dataset(name: str) -> None:
    """Refuse a file without SOURCE, for DATASET."""
    if "SOURCE" not in _defined(_parse(path_of(name), path_of(name))):
        _refuse(name, 1, "it defines no SOURCE = Source(...), so it is no DATASET")


def channels_of(name: str) -> int:
    """What a model says that its images have: CHANNELS = 1, or else 3."""
    return _channels(name, _parse(path_of(name), path_of(name)))


def _channels(name: str, tree: ast.Module) -> int:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and "CHANNELS" in _targets(statement.targets):
            if isinstance(statement.value, ast.Constant) and statement.value.value in (1, 3):
                return int(statement.value.value)
            _refuse(name, statement.lineno, "CHANNELS is not a plain number. Allowed: 1, 3")
    return USUAL_CHANNELS


def _parse(path: Path, shown: Path) -> ast.Module:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SettingError(f"{shown} cannot be read: {error.strerror}. Let the owner of results/ read it.") from None
    if len(text) > MOST_BYTES:
        raise SettingError(f"{shown} has more than {MOST_BYTES:,} bytes. A mode has a few thousand.")
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise SettingError(f"{shown}, line {error.lineno}: it is no Python: {error.msg}. Correct it.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SettingError(f"{shown}: it is no Python: {error or type(error).__name__}. Correct it.") from None


def _refuse(name: str, line: int, what: str) -> None:
    raise SettingError(f"{path_of(name)}, line {line}: {what}. See docs/extensions.md.")


def _defined(tree: ast.Module) -> set[str]:
    """The names that the file's own statements give a meaning."""
    found: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= _targets(targets)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                found.add(name)
            case ast.ImportFrom(names=aliases):
                found |= {alias.asname or alias.name for alias in aliases}
            case _:
                pass
    return found


def _targets(targets: Sequence[ast.expr]) -> set[str]:
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _modes(tree: ast.Module) -> list[ast.ClassDef]:
    """The classes that stand on one of the program's modes, and that no other class in the file stands on."""
    known = {local for local, room in _imported(tree) if room.startswith(MODES_ROOMS)}
    found: list[ast.ClassDef] = []
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and known & set(map(_base, statement.bases)):
            known.add(statement.name)
            found.append(statement)
    beneath = {_base(base) for each in found for base in each.bases}
    return [each for each in found if each.name not in beneath]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                yield alias.asname or alias.name, f"{statement.module}.{alias.name}"
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name, alias.name


def _base(base: ast.expr) -> str:
    """What a class's base begins with: `exchange` of `exchange.Exchange`, `app.x` of `app.x.Y`."""
    while isinstance(base, ast.Subscript):
        base = base.value
    names = []
    while isinstance(base, ast.Attribute):
        names.append(base.attr)
        base = base.value
    return ".".join([base.id, *names[:0:-1]]) if isinstance(base, ast.Name) else ""
