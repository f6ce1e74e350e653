"""Checks an extension's file without executing it: it must parse and define what its setting requires."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from app.errors import SettingError
from app.extensions.files import path_of

MODE_PACKAGES = ("app.sync", "app.gradient_sync")  # the second is deprecated
USUAL_CHANNELS = 3
MOST_BYTES = 1_000_000


def check(own: Mapping[str, str]) -> None:
    """Refuse invalid files by parsing them, by the variable that names each."""
    checks: dict[str, Callable[[str], None]] = {
        "SYNC_MODE": check_mode,
        "MODEL": check_model,
        "DATASET": check_dataset,
    }
    for variable, name in own.items():
        checks[variable](name)


def check_mode(name: str, path: Path | None = None) -> None:
    """Refuse a file that does not define exactly one mode."""
    tree = _parse(path or path_of(name), path_of(name))
    found = _modes(tree)
    if not found:
        _refuse(name, 1, "found no subclass of GradientSync, Exchange or Scheduled. Define exactly one")
    if len(found) > 1:
        modes = ", ".join(f"{each.name} (line {each.lineno})" for each in found)
        _refuse(name, found[1].lineno, f"found {len(found)} modes: {modes}. Define exactly one")


def check_model(name: str) -> None:
    """Refuse a file that does not define `build`."""
    tree = _parse(path_of(name), path_of(name))
    if "build" not in _defined(tree):
        _refuse(name, 1, "a MODEL must define build(batch_norm)")
    _channels(name, tree)


def check_dataset(name: str) -> None:
    """Refuse a file that does not define SOURCE."""
    if "SOURCE" not in _defined(_parse(path_of(name), path_of(name))):
        _refuse(name, 1, "a DATASET must define SOURCE = Source(...)")


def channels_of(name: str) -> int:
    """The image channels that a model declares as CHANNELS, by default 3."""
    return _channels(name, _parse(path_of(name), path_of(name)))


def takes_classes(name: str) -> bool:
    """Whether a model's build takes `classes`, unless only running the file would show it."""
    for statement in _parse(path_of(name), path_of(name)).body:
        match statement:
            case ast.FunctionDef(name="build", args=arguments):
                return "classes" in _arguments(arguments)
            case ast.ClassDef(name="build", body=body):
                starts = [each.args for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
                return all("classes" in _arguments(each) for each in starts)
            case _:
                pass
    return True


def _arguments(arguments: ast.arguments) -> set[str]:
    return {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def _channels(name: str, tree: ast.Module) -> int:
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and "CHANNELS" in _targets(statement.targets):
            if isinstance(statement.value, ast.Constant) and statement.value.value in (1, 3):
                return int(statement.value.value)
            _refuse(name, statement.lineno, "CHANNELS must be a plain number: 1 or 3")
    return USUAL_CHANNELS


def _parse(path: Path, shown: Path) -> ast.Module:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _invalid(f"cannot read {shown}: {error.strerror}. Make it readable for the owner of results/.") from None
    if len(text) > MOST_BYTES:
        raise _invalid(f"{shown} exceeds {MOST_BYTES:,} bytes. A mode has a few thousand.")
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise _invalid(f"cannot parse {shown}, line {error.lineno}: {error.msg}. Correct it.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _invalid(f"cannot parse {shown}: {error or type(error).__name__}. Correct it.") from None


def _refuse(name: str, line: int, problem: str) -> None:
    raise _invalid(f"{path_of(name)}, line {line}: {problem}. See docs/extensions.md.")


def _invalid(message: str) -> SettingError:
    return SettingError(message, "invalid-extension")


def _defined(tree: ast.Module) -> set[str]:
    """The names bound by the module's top-level statements."""
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
    """The subclasses of the program's modes that no other class in the file subclasses."""
    known = {local for local, origin in _imported(tree) if origin.startswith(MODE_PACKAGES)}
    found: list[ast.ClassDef] = []
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and known & set(map(_base, statement.bases)):
            known.add(statement.name)
            found.append(statement)
    subclassed = {_base(base) for each in found for base in each.bases}
    return [each for each in found if each.name not in subclassed]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                yield alias.asname or alias.name, f"{statement.module}.{alias.name}"
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name, alias.name


def _base(base: ast.expr) -> str:
    """The qualifier of a base class: `exchange` of `exchange.Exchange`, `app.x` of `app.x.Y`."""
    while isinstance(base, ast.Subscript):
        base = base.value
    names = []
    while isinstance(base, ast.Attribute):
        names.append(base.attr)
        base = base.value
    return ".".join([base.id, *names[:0:-1]]) if isinstance(base, ast.Name) else ""
