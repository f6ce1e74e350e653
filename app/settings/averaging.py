"""What the settings about averaging allow together: the exchange, the compressor, the cadence, the wire's precision."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from app.errors import SettingError
from app.modes import ANY_WIRE_PRECISION, EXCHANGES, FITS, MODES, PLAIN_EXCHANGE

if TYPE_CHECKING:
    from app.settings.fields import Settings

# Each parameter, and what it is a parameter of.
PARAMETERS = {
    "group_size": ("sync_mode", ("hierarchical",)),
    "shards": ("sync_mode", ("parameter_server",)),
    "compression_ratio": ("compression", ("top_k", "random_k")),
    "compression_rank": ("compression", ("power_sgd",)),
    "error_feedback": ("compression", ("top_k", "power_sgd")),
}

# Why compressors and cadences do not fit some modes, and why some compressors fit one mode alone.
WHY_NOT = {
    "none": "it averages nothing",
    "ddp": "it averages gradients while backward still makes them",
    "bucketed_all_reduce": "it averages gradients while backward still makes them",
}
WHY_ONLY = {
    "top_k": "each rank sends elements that it chooses for itself, which do not add up on the way",
    "sign": "votes need a rank that counts all of them",
}

# What says how ranks average, and has no meaning where they do not.
OF_AVERAGING = (*PARAMETERS, "compression", "sync_every", "outer_learning_rate", "outer_momentum")


def fill_in(values: dict[str, Any]) -> None:
    """Choose the exchange where only a compressor or a cadence is given."""
    compression = values.get("compression") or "none"
    if not values.get("sync_mode") and (compression != "none" or values.get("sync_every")):
        values["sync_mode"] = FITS.get(str(compression), (PLAIN_EXCHANGE,))[0]


def check(settings: "Settings") -> None:
    """Refuse what would be ignored, and what does not fit."""
    for problem in (*_idle(settings), *_about_exchange(settings), *_about_wire(settings)):
        raise problem


def _idle(settings: "Settings") -> Iterator[SettingError]:
    """What would be ignored."""
    given = settings.model_fields_set
    for name, (whose, allowed) in PARAMETERS.items():
        value, owner = getattr(settings, name), getattr(settings, whose)
        if name in given and value is not None and owner not in allowed:
            yield SettingError(
                f"{name.upper()}={value} with {whose.upper()}={owner}: not allowed, it is a setting of "
                f"{' and '.join(allowed)}. Unset {name.upper()}, or set {whose.upper()}={allowed[0]}."
            )
    for name in ("outer_learning_rate", "outer_momentum"):
        if name in given and settings.sync_every is None:
            yield SettingError(
                f"{name.upper()}={getattr(settings, name):g} without SYNC_EVERY: not allowed, it says how averaged "
                f"parameters move. Set SYNC_EVERY as well, or unset {name.upper()}."
            )


def _about_exchange(settings: "Settings") -> Iterator[SettingError]:
    """A compressor or a cadence that the mode does not fit. Modes from elsewhere are looked at when they are loaded."""
    mode, compression, every = settings.sync_mode, settings.compression, settings.sync_every
    fitting = FITS.get(compression, EXCHANGES)
    if mode not in MODES or mode in fitting:
        return
    why = WHY_NOT.get(mode) or WHY_ONLY.get(compression)
    if compression != "none":
        yield SettingError(
            f"COMPRESSION={compression} with SYNC_MODE={mode}: not allowed, {why}. "
            f"Allowed: SYNC_MODE={', '.join(fitting)}."
        )
    elif every is not None:
        yield SettingError(
            f"SYNC_EVERY={every} with SYNC_MODE={mode}: not allowed, {why}. Allowed: SYNC_MODE={', '.join(fitting)}."
        )


def _about_wire(settings: "Settings") -> Iterator[SettingError]:
    """Half precision where it could not be, or would spoil what is asked for."""
    wire = settings.wire_precision
    if wire == "fp32":
        return
    if settings.compression != "none":
        yield SettingError(
            f"WIRE_PRECISION={wire} with COMPRESSION={settings.compression}: not allowed, the compressor decides what "
            "is sent. Allowed: WIRE_PRECISION=fp32, or COMPRESSION=none."
        )
    if settings.sync_mode in MODES and settings.sync_mode not in ANY_WIRE_PRECISION:
        yield SettingError(
            f"WIRE_PRECISION={wire} with SYNC_MODE={settings.sync_mode}: not allowed, this mode sends gradients as "
            f"they are. Allowed: WIRE_PRECISION=fp32, or SYNC_MODE={', '.join(ANY_WIRE_PRECISION[1:])}."
        )
    if settings.precision == "fp64":
        yield SettingError(
            f"WIRE_PRECISION={wire} with PRECISION=fp64: not allowed, rounding on the wire would spoil the proofs that "
            "fp64 is for. Allowed: WIRE_PRECISION=fp32, or PRECISION=fp32, bf16."
        )
    if settings.backend == "mpi":
        yield SettingError(
            f"WIRE_PRECISION={wire} with BACKEND=mpi: not allowed, PyTorch's MPI carries no numbers of 16 bits. "
            "Allowed: WIRE_PRECISION=fp32, or BACKEND=gloo."
        )


def check_ranks(settings: "Settings", world_size: int) -> None:
    """Refuse groups and shards that so many ranks cannot form."""
    if settings.group_size is not None and world_size % settings.group_size:
        allowed = ", ".join(str(size) for size in range(1, world_size + 1) if world_size % size == 0)
        raise SettingError(
            f"GROUP_SIZE={settings.group_size} with {world_size} rank(s): not allowed, groups must be of equal size. "
            f"Allowed: {allowed}."
        )
    if settings.shards is not None and settings.shards > world_size:
        raise SettingError(
            f"SHARDS={settings.shards} with {world_size} rank(s): not allowed, each shard is served by a rank of its "
            f"own. Allowed: 1 to {world_size}."
        )
