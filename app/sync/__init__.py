"""Every way to average: a mode, a compressor around it, a cadence around both."""

from collections.abc import Sequence

from torch import nn

from app.cluster.wire.communicator import Communicator
from app.errors import SettingError
from app.settings.fields import Settings
from app.sync import modes
from app.sync.compressors import compressed
from app.sync.compressors.compressed import Compressed
from app.sync.contract import GradientSync
from app.sync.exchange import Exchange
from app.sync.periodic import Periodic
from app.sync.schedules.sizes import Cost


def cost_of(settings: Settings, parameters: Sequence[nn.Parameter]) -> Cost:
    """The formulas of a step in which ranks average, without ranks to ask."""
    mode = modes.mode_class(settings.sync_mode)
    return mode.cost_of(settings) if settings.compression == "none" else compressed.cost_of(mode, settings, parameters)


def create(settings: Settings, communicator: Communicator) -> GradientSync:
    """Put together what the settings ask for: the mode, the compressor around it, the cadence around both."""
    mode = modes.create(settings, communicator)
    if settings.compression == "none" and settings.sync_every is None:
        return mode
    if not isinstance(mode, Exchange):
        raise SettingError(
            f"SYNC_MODE={settings.sync_mode} with COMPRESSION or SYNC_EVERY: not allowed, its class is no Exchange. "
            "Give it `average(values)`, which averages any vector, or unset both."
        )
    exchange = mode if settings.compression == "none" else Compressed(mode, communicator, settings)
    return exchange if settings.sync_every is None else Periodic(exchange, communicator, settings)
