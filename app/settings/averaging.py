"""Settings of averaging: mode, compressor, cadence and wire precision, and the valid combinations of them."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from app.errors import ConflictError
from app.modes import ANY_WIRE_PRECISION, EXCHANGES, FITS, MODES, PLAIN_EXCHANGE
from app.settings.concern import (
    LEAST_FACTOR,
    MOST_FACTOR,
    MOST_RANKS,
    MOST_STEPS,
    Concern,
    HelpGroup,
    Mark,
    Needs,
    needs_of,
)
from app.settings.kinds import OneOfOrOwn

CompressionName = Literal["none", "top_k", "random_k", "sign", "power_sgd"]
WirePrecision = Literal["fp32", "bf16", "fp16"]
Switch = Literal["on", "off"]

BUILT_IN_MODES = OneOfOrOwn(tuple(MODES))
SEED_LIMIT = 2**63 - 1

# The reasons why some modes support no compressor or cadence, and why some compressors support only one mode.
WHY_NOT = {
    "none": "it averages nothing",
    "ddp": "it averages gradients during backward",
    "bucketed_all_reduce": "it averages gradients during backward",
}
WHY_ONLY = {
    "top_k": "ranks select different elements, which cannot be summed on the way",
    "sign": "votes need a rank that counts all of them",
}


class AveragingSettings(Concern):
    """Settings of a mode, a compressor and a cadence."""

    meaning = "how the ranks average gradients and parameters"

    sync_mode: Annotated[str, AfterValidator(BUILT_IN_MODES)] = Field(
        "ddp",
        description="how the ranks average their gradients [ddp; with COMPRESSION or SYNC_EVERY flat_all_reduce, with "
        "top_k gathered_all_reduce, with sign parameter_server]",
    )
    compression: Annotated[CompressionName, Mark.CHANGES_STEP_TIME] = Field(
        "none",
        description="compress gradients: top_k sends the largest elements, random_k random elements, the same on all "
        "ranks, sign one bit per element for a majority vote, power_sgd two low-rank factors of each large matrix",
    )
    compression_ratio: Annotated[float, Needs("compression", ("top_k", "random_k")), Mark.CHANGES_STEP_TIME] = Field(
        0.01, ge=1e-9, le=1, description="share of the gradients that top_k and random_k send"
    )
    compression_rank: Annotated[int, Needs("compression", ("power_sgd",)), Mark.CHANGES_STEP_TIME] = Field(
        4, ge=1, le=4096, description="rank of power_sgd's factors"
    )
    error_feedback: Annotated[Switch, Needs("compression", ("top_k", "power_sgd"))] = Field(
        "on", description="add the error of top_k and power_sgd to the next step's gradients"
    )
    sync_every: Annotated[int | None, Mark.CHANGES_STEP_TIME] = Field(
        None,
        ge=1,
        le=MOST_STEPS,
        description="average the parameters every N steps instead of the gradients every step (local SGD) [gradients]",
    )
    outer_learning_rate: Annotated[float, Needs("sync_every")] = Field(
        1,
        ge=LEAST_FACTOR,
        le=MOST_FACTOR,
        description="with SYNC_EVERY: learning rate of the outer optimiser; 1 applies the average unchanged",
    )
    outer_momentum: Annotated[float, Needs("sync_every")] = Field(
        0, ge=0, lt=1, description="with SYNC_EVERY: Nesterov momentum of the outer optimiser (DiLoCo: 0.9, rate 0.7)"
    )
    bucket_bytes: Annotated[int | None, Mark.CHANGES_STEP_TIME] = Field(
        None,
        ge=1,
        le=2**40,
        description="bucket size of ddp and bucketed_all_reduce [4 MiB; ddp: PyTorch's own, 25 MiB, the first 1 MiB]",
    )
    group_size: Annotated[int | None, Needs("sync_mode", ("hierarchical",)), Mark.CHANGES_STEP_TIME] = Field(
        None,
        ge=1,
        le=MOST_RANKS,
        description="ranks per group of hierarchical, a divisor of the number of ranks [the largest up to its square "
        "root]",
    )
    shards: Annotated[int | None, Needs("sync_mode", ("parameter_server",)), Mark.CHANGES_STEP_TIME] = Field(
        None,
        ge=1,
        le=MOST_RANKS,
        description="shards of parameter_server, each served by one rank, at most the number of ranks [one per rank]",
    )
    wire_precision: Annotated[WirePrecision, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED] = Field(
        "fp32",
        description=f"number format of gradients on the wire, for {', '.join(ANY_WIRE_PRECISION[1:])}: bf16 and fp16 "
        "send half the bytes and accumulate in fp32",
    )
    log_every: Annotated[int, HelpGroup("measuring")] = Field(
        20, ge=1, le=MOST_STEPS, description="print the loss, and measure rounding on the wire, every N steps"
    )
    seed: Annotated[int, HelpGroup("training")] = Field(
        1,
        ge=0,
        le=SEED_LIMIT,
        description="seed of the initial parameters, the order of the samples, the augmentation and random_k's draws",
    )

    @model_validator(mode="before")
    @classmethod
    def choose_exchange(cls, values: dict[str, Any]) -> dict[str, Any]:
        """If only a compressor or a cadence is given, choose a mode that supports it."""
        compression = values.get("compression") or "none"
        if not values.get("sync_mode") and (compression != "none" or values.get("sync_every")):
            return values | {"sync_mode": FITS.get(str(compression), (PLAIN_EXCHANGE,))[0]}
        return values

    def _conflicts(self) -> Iterator[ConflictError]:
        yield from self._about_exchange()
        yield from self._about_wire()

    def _about_exchange(self) -> Iterator[ConflictError]:
        """Refuse a compressor or cadence that does not fit. User-defined modes are checked when they are loaded."""
        mode, compression, every = self.sync_mode, self.compression, self.sync_every
        fitting = FITS.get(compression, EXCHANGES)
        if mode not in MODES or mode in fitting:
            return
        why = WHY_NOT.get(mode) or WHY_ONLY.get(compression)
        if compression != "none":
            yield ConflictError(
                f"COMPRESSION={compression} does not work with SYNC_MODE={mode}: {why}. "
                f"Choose SYNC_MODE from: {', '.join(fitting)}."
            )
        elif every is not None:
            yield ConflictError(
                f"SYNC_EVERY={every} does not work with SYNC_MODE={mode}: {why}. "
                f"Choose SYNC_MODE from: {', '.join(fitting)}."
            )

    def _about_wire(self) -> Iterator[ConflictError]:
        wire = self.wire_precision
        if wire == "fp32":
            return
        if self.compression != "none":
            yield ConflictError(
                f"WIRE_PRECISION={wire} does not work with COMPRESSION={self.compression}: the compressor chooses the "
                "number format. Unset one of them."
            )
        if self.sync_mode in MODES and self.sync_mode not in ANY_WIRE_PRECISION:
            yield ConflictError(
                f"WIRE_PRECISION={wire} does not work with SYNC_MODE={self.sync_mode}, which sends gradients uncast. "
                f"Unset WIRE_PRECISION, or choose SYNC_MODE from: {', '.join(ANY_WIRE_PRECISION[1:])}."
            )

    def check_ranks(self, world_size: int) -> None:
        """Refuse groups and shards that this number of ranks cannot form."""
        if self.group_size is not None and world_size % self.group_size:
            allowed = ", ".join(str(size) for size in range(1, world_size + 1) if world_size % size == 0)
            raise ConflictError(
                f"GROUP_SIZE={self.group_size} does not divide {world_size} ranks into equal groups. "
                f"Choose from: {allowed}."
            )
        if self.shards is not None and self.shards > world_size:
            raise ConflictError(
                f"SHARDS={self.shards} is more than {world_size} ranks can serve. Give at most {world_size}."
            )

    def group_size_of(self, world_size: int) -> int:
        return self.group_size or max(size for size in range(1, math.isqrt(world_size) + 1) if world_size % size == 0)

    def shards_of(self, world_size: int) -> int:
        return self.shards or world_size


PARAMETERS = frozenset(name for name in AveragingSettings.model_fields if needs_of(AveragingSettings, name))

# The settings without effect if SYNC_MODE=none, which averages nothing.
OF_AVERAGING = PARAMETERS | {"compression", "sync_every"}
