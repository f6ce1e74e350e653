"""Executes an extension's file once per process and attributes its exceptions to file and line."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import FrameSummary, StackSummary, extract_tb
from types import ModuleType

from app.errors import ExtensionError, LockstepError
from app.extensions.files import FOLDER, path_of
from app.extensions.moved import accept_old_names


def load(name: str, path: Path | None = None) -> ModuleType:
    """Load extensions/NAME.py, or the file at `path` under that name."""
    own = f"{FOLDER.name}.{name}"
    if own not in sys.modules:
        accept_old_names()
        specification = importlib.util.spec_from_file_location(own, (path or path_of(name)).resolve())
        if specification is None or specification.loader is None:
            raise ExtensionError(f"cannot load {path_of(name)}. Its name must end in .py.", "invalid-extension")
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
    """Convert exceptions raised in these extensions to ExtensionErrors that name the file and the line."""
    try:
        yield
    except LockstepError:
        raise  # it already has a message for the user, such as that of a lost rank
    except (Exception, SystemExit) as error:
        if frames := _frames(error, names):
            place = "" if frames[-1].name == "<module>" else f", in {frames[-1].name}"
            where = f"{frames[-1].filename}, line {frames[-1].lineno}{place}"
            failure = ExtensionError(f"{who}{where}: {one_line(error)}")
            failure.add_note("".join(StackSummary.from_list(frames).format()).rstrip())
            raise failure from error
        raise


def one_line(error: BaseException) -> str:
    message = str(error).strip().partition("\n")[0]
    if isinstance(error, NotImplementedError) and message:
        return message  # a TODO needs no exception name
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _frames(error: BaseException, names: tuple[str, ...]) -> list[FrameSummary]:
    """The frames of the traceback that lie in these files, innermost last."""
    files = {module.__file__: str(path_of(name)) for name in names if (module := _loaded(name))}
    return [
        FrameSummary(files[frame.filename], frame.lineno, frame.name, line=frame.line)
        for frame in extract_tb(error.__traceback__)
        if frame.filename in files
    ]


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(f"{FOLDER.name}.{name}")
