"""How often ranks average, and what: gradients in each step, or parameters every H steps."""

from app import gradient_sync
from app.cadence.periodic import Periodic
from app.compression.compressed import Compressed
from app.errors import SettingError
from app.gradient_sync.contract import GradientSync
from app.gradient_sync.exchange import Exchange
from app.settings.fields import Settings
from app.wire.communicator import Communicator


def create(settings: Settings, communicator: Communicator) -> GradientSync:
    """Put together what the settings ask for: the mode, the compressor around it, the cadence around both."""
    mode = gradient_sync.create(settings, communicator)
    if settings.compression == "none" and settings.sync_every is None:
        return mode
    if not isinstance(mode, Exchange):
        raise SettingError(
            f"SYNC_MODE={settings.sync_mode} with COMPRESSION or SYNC_EVERY: not allowed, its class is no Exchange. "
            "Give it `average(values)`, which averages any vector, or unset both."
        )
    exchange = mode if settings.compression == "none" else Compressed(mode, communicator, settings)
    return exchange if settings.sync_every is None else Periodic(exchange, communicator, settings)
