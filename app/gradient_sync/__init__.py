"""The ways to average gradients: one file per mode, named as its SYNC_MODE value, and the table of them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.gradient_sync.contract import GradientSync
    from app.settings.fields import Settings
    from app.wire.communicator import Communicator

# Adding a mode: its file in this folder, and its line here. The contract suite takes it from this table.
MODES = {
    "none": "NoSync",
    "gather_scatter": "GatherScatter",
    "send_recv": "SendRecv",
    "all_reduce": "AllReduce",
    "ring_all_reduce": "RingAllReduce",
    "ddp": "Ddp",
}


def mode_class(name: str) -> "type[GradientSync]":
    """Load a mode. Its file is imported only now, so that to know the names costs no import of torch."""
    loaded: type[GradientSync] = getattr(import_module(f"{__name__}.{name}"), MODES[name])
    return loaded


def create(settings: "Settings", communicator: "Communicator") -> "GradientSync":
    """Make the mode that SYNC_MODE names."""
    return mode_class(settings.sync_mode)(communicator, settings)
