"""How ranks average: the mode, the compressor, the cadence and the wire's precision, and what fits together."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from app.errors import SettingError
from app.modes import ANY_WIRE_PRECISION, EXCHANGES, FITS, MODES, PLAIN_EXCHANGE
from app.settings import forms

CompressionName = Literal["none", "top_k", "random_k", "sign", "power_sgd"]
WirePrecision = Literal["fp32", "bf16", "fp16"]
Switch = Literal["on", "off"]

# PyTorch computes with these numbers in single precision, which ends at 3.4e38; the rest is room for products.
LEAST_FACTOR, MOST_FACTOR = 1e-30, 1e30
MOST_RANKS = 65_536
MOST_STEPS = 1_000_000_000  # twelve days of the fastest steps, which take a millisecond
SEED_LIMIT = 2**63 - 1

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


class AveragingSettings(BaseModel):
    """What a mode, a compressor and a cadence need to know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sync_mode: Annotated[str, AfterValidator(forms.SYNC_MODE)] = Field(
        "ddp",
        description="how the ranks average their gradients [ddp; with COMPRESSION or SYNC_EVERY flat_all_reduce, with "
        "top_k gathered_all_reduce, with sign parameter_server]",
    )
    compression: CompressionName = Field(
        "none",
        description="what each rank sends in place of its gradients: top_k the largest ones, random_k some that all "
        "ranks draw alike, sign one bit each for a vote, power_sgd two thin matrices for each large one",
    )
    compression_ratio: float = Field(
        0.01, ge=1e-9, le=1, description="share of the gradients that top_k and random_k send"
    )
    compression_rank: int = Field(4, ge=1, le=4096, description="columns of power_sgd's thin matrices")
    error_feedback: Switch = Field(
        "on", description="whether top_k and power_sgd add what they left out to the next step's gradients"
    )
    sync_every: int | None = Field(
        None,
        ge=1,
        le=MOST_STEPS,
        description="average the parameters after every N steps, and none of the gradients [gradients in each step]",
    )
    outer_learning_rate: float = Field(
        1,
        ge=LEAST_FACTOR,
        le=MOST_FACTOR,
        description="with SYNC_EVERY: how far the parameters move towards their average; 1 takes it as it is",
    )
    outer_momentum: float = Field(
        0,
        ge=0,
        lt=1,
        description="with SYNC_EVERY: Nesterov's momentum of that move; DiLoCo has 0.9, and a rate of 0.7",
    )
    bucket_bytes: int | None = Field(
        None,
        ge=1,
        le=2**40,
        description="size of the buckets of ddp and bucketed_all_reduce [4 MiB; for ddp PyTorch's own choice, 25 MiB "
        "and the first one 1 MiB]",
    )
    group_size: int | None = Field(
        None,
        ge=1,
        le=MOST_RANKS,
        description="ranks in each group of hierarchical; it divides the number of ranks [the largest divisor up to "
        "the square root]",
    )
    shards: int | None = Field(
        None,
        ge=1,
        le=MOST_RANKS,
        description="shards of parameter_server, each served by a rank; at most as many as ranks [as many as ranks]",
    )
    wire_precision: WirePrecision = Field(
        "fp32",
        description=f"number format of gradients on the wire, for {', '.join(ANY_WIRE_PRECISION[1:])}: bf16 and fp16 "
        "send half the bytes, and add up in fp32",
    )
    log_every: int = Field(
        20, ge=1, le=MOST_STEPS, description="print the loss, and measure rounding on the wire, every N steps"
    )
    seed: int = Field(
        1, ge=0, le=SEED_LIMIT, description="fixes the initial parameters, the order of the samples, the augmentation"
    )

    @model_validator(mode="before")
    @classmethod
    def fill_in(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Choose the exchange where only a compressor or a cadence is given."""
        compression = values.get("compression") or "none"
        if not values.get("sync_mode") and (compression != "none" or values.get("sync_every")):
            values["sync_mode"] = FITS.get(str(compression), (PLAIN_EXCHANGE,))[0]
        return values

    def model_post_init(self, context: Any, /) -> None:
        """Refuse what would be ignored, and what does not fit."""
        for problem in (*_idle(self), *_about_exchange(self), *_about_wire(self)):
            raise problem

    def check_ranks(self, world_size: int) -> None:
        """Refuse groups and shards that this number of ranks cannot form."""
        if self.group_size is not None and world_size % self.group_size:
            allowed = ", ".join(str(size) for size in range(1, world_size + 1) if world_size % size == 0)
            raise SettingError(
                f"GROUP_SIZE={self.group_size} with {world_size} rank(s): not allowed, groups must be of equal size. "
                f"Allowed: {allowed}."
            )
        if self.shards is not None and self.shards > world_size:
            raise SettingError(
                f"SHARDS={self.shards} with {world_size} rank(s): not allowed, each shard is served by a rank of its "
                f"own. Allowed: 1 to {world_size}."
            )

    def group_size_of(self, world_size: int) -> int:
        return self.group_size or max(size for size in range(1, math.isqrt(world_size) + 1) if world_size % size == 0)

    def shards_of(self, world_size: int) -> int:
        """How many ranks serve a shard."""
        return self.shards or world_size


def _idle(settings: AveragingSettings) -> Iterator[SettingError]:
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


def _about_exchange(settings: AveragingSettings) -> Iterator[SettingError]:
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


def _about_wire(settings: AveragingSettings) -> Iterator[SettingError]:
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
