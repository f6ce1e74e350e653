"""The ways to average gradients: one file per mode, named as its SYNC_MODE value."""

from importlib import import_module

from app.gradient_sync.contract import GradientSync
from app.modes import MODES
from app.settings.fields import Settings
from app.wire.communicator import Communicator


def mode_class(name: str) -> type[GradientSync]:
    """Load a mode, and only its file."""
    loaded: type[GradientSync] = getattr(import_module(f"{__name__}.{name}"), MODES[name])
    return loaded


def create(settings: Settings, communicator: Communicator) -> GradientSync:
    """Make the mode that SYNC_MODE names."""
    return mode_class(settings.sync_mode)(communicator, settings)
