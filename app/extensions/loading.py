"""Runs an extension's file, once in a process, and blames it by file and line for what it raises."""

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from app.errors import ExtensionError, LockstepError
from app.extensions.files import FOLDER, path_of


def load(name: str, path: Path | None = None) -> ModuleType:
    """The module of extensions/NAME.py, or of another file in its place."""
    own = f"{FOLDER.name}.{name}"
    if own not in sys.modules:
        specification = importlib.util.spec_from_file_location(own, (path or path_of(name)).resolve())
        if specification is None or specification.loader is None:
            raise ExtensionError(f"{path_of(name)} cannot be loaded. A name ends in .py.")
        module = importlib.util.module_from_spec(specification)
        sys.modules[own] = module
        try:
            with blamed(name):
                specification.loader.exec_module(module)
        except BaseException:
            del sys.modules[own]
            raise
    return sys.modules[own]


@contextmanager
def blamed(*names: str, who: str = "") -> Iterator[None]:
    """Turn what passes through the code of these extensions into an error that names the file and the line."""
    try:
        yield
    except LockstepError:
        raise  # the program's own words, such as those about a lost rank
    except Exception as error:
        if where := _where(error, names):
            raise ExtensionError(f"{who}{where}: {words_of(error)}") from error
        raise


def words_of(error: BaseException) -> str:
    """An error in one line."""
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, NotImplementedError) and said:
        return said  # a TODO speaks for itself
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _where(error: Exception, names: tuple[str, ...]) -> str | None:
    """The last place in these files that an error has passed through."""
    files = {str(Path(module.__file__ or "")): name for name in names if (module := _loaded(name))}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            place = "" if frame.name == "<module>" else f", in {frame.name}"
            return f"{path_of(files[frame.filename])}, line {frame.lineno}{place}"
    return None


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(f"{FOLDER.name}.{name}")
