"""Gradient synchronisation: a mode, its compressor and its averaging period, also for your own training loop."""

from collections.abc import Sequence

from pydantic import ValidationError
from torch import nn

from app.cluster.wire.communicator import Communicator as Communicator
from app.errors import SettingError
from app.settings.averaging import AveragingSettings as AveragingSettings
from app.settings.explanations import explain
from app.sync.compressors import compressed
from app.sync.compressors.compressed import Compressed
from app.sync.contract import GradientSync as GradientSync
from app.sync.contract import gradients_of as gradients_of
from app.sync.exchange import Exchange as Exchange
from app.sync.modes import mode_class
from app.sync.modes.gather_scatter import STAR as STAR
from app.sync.modes.ring_all_reduce import RING as RING
from app.sync.periodic import Periodic
from app.sync.rounds import Scheduled as Scheduled
from app.sync.schedules.costs import ALL_REDUCE as ALL_REDUCE
from app.sync.schedules.costs import Cost as Cost
from app.sync.schedules.costs import Size as Size
from app.sync.schedules.schedule import Message as Message
from app.sync.schedules.schedule import Schedule as Schedule
from app.sync.schedules.schedule import cut as cut
from app.sync.synchroniser import Synchroniser as Synchroniser


def create(mode: str | type[GradientSync], communicator: Communicator, **options: object) -> Synchroniser:
    """Create a synchroniser for your own training loop, from a mode's name or from your own class.

    Options are the averaging settings in lower case, such as `wire_precision="bf16"` or `compression="top_k"`.
    The environment is not read.
    """
    if unknown := sorted(options.keys() - AveragingSettings.model_fields.keys() | options.keys() & {"sync_mode"}):
        allowed = ", ".join(name for name in AveragingSettings.model_fields if name != "sync_mode")
        raise TypeError(f"create(): unknown option {', '.join(unknown)}. Choose from: {allowed}.")
    given = {"sync_mode": mode, **options} if isinstance(mode, str) else options
    try:
        settings = AveragingSettings.model_validate(given)
    except ValidationError as error:
        raise SettingError(
            "\n".join(explain(detail, AveragingSettings.model_fields) for detail in error.errors())
        ) from None
    settings.check_ranks(communicator.world_size)
    kind = mode_class(mode) if isinstance(mode, str) else mode
    return Synchroniser(_assemble(kind, communicator, settings), communicator)


def from_settings(settings: AveragingSettings, communicator: Communicator) -> GradientSync:
    return _assemble(mode_class(settings.sync_mode), communicator, settings)


def cost_of(settings: AveragingSettings, parameters: Sequence[nn.Parameter]) -> Cost:
    """The cost of one averaging step, computed without other ranks."""
    mode = mode_class(settings.sync_mode)
    return mode.cost_of(settings) if settings.compression == "none" else compressed.cost_of(mode, settings, parameters)


def _assemble(kind: type[GradientSync], communicator: Communicator, settings: AveragingSettings) -> GradientSync:
    """Wrap the mode in its compressor, and both in the averaging period."""
    mode = kind(communicator, settings)
    if settings.compression == "none" and settings.sync_every is None:
        return mode
    if not isinstance(mode, Exchange):
        raise SettingError(
            f"COMPRESSION and SYNC_EVERY require a subclass of Exchange, not {kind.__name__}. "
            "Define `average(values)`, which averages any vector, or unset both.",
            "conflicting-settings",
        )
    exchange = mode if settings.compression == "none" else Compressed(mode, communicator, settings)
    return exchange if settings.sync_every is None else Periodic(exchange, communicator, settings)
