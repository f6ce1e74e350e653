"""Synchronisation modes: one file per mode, named as its SYNC_MODE value."""

from importlib import import_module
from types import ModuleType

from app.errors import ExtensionError
from app.extensions.files import path_of
from app.extensions.loading import load
from app.modes import MODES
from app.sync.contract import GradientSync


def mode_class(name: str) -> type[GradientSync]:
    """Import a mode's file, and no other: a built-in one, or the user's in extensions/."""
    if name not in MODES:
        return own_mode(load(name), str(path_of(name)))
    loaded: type[GradientSync] = getattr(import_module(f"{__name__}.{name}"), MODES[name])
    return loaded


def own_mode(module: ModuleType, shown: str) -> type[GradientSync]:
    classes = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    modes = [each for each in classes if issubclass(each, GradientSync)]
    found = [each for each in modes if not any(each in other.__mro__[1:] for other in modes)]
    if len(found) != 1:
        message = f"{shown}: found {len(found)} subclasses of GradientSync. Define exactly one."
        raise ExtensionError(message, "invalid-extension")
    if missing := sorted(getattr(found[0], "__abstractmethods__", ())):
        message = f"{shown}: {found[0].__name__} lacks {', '.join(missing)}. Define all of these."
        raise ExtensionError(message, "invalid-extension")
    return found[0]
