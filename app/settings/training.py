"""Settings of the training: model, data set, batch, optimiser and schedule, and number formats."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app.errors import ConflictError
from app.extensions import files
from app.settings.concern import LEAST_FACTOR, MOST_FACTOR, MOST_STEPS, Concern, Mark
from app.settings.kinds import OneOfOrOwn

ModelName = str
DatasetName = str
Evaluation = Literal["sharded", "every_rank", "never"]
BatchNormName = Literal["local", "synchronised"]
Precision = Literal["fp32", "bf16", "fp64"]
MemoryFormat = Literal["mixed", "contiguous", "channels_last"]
LearningRateScaling = Literal["none", "linear"]
ScheduleName = Literal["constant", "cosine", "step"]
Shuffle = Literal["every_epoch", "once"]

DEFAULT_GLOBAL_BATCH_SIZE = 256

BUILT_IN_MODELS = OneOfOrOwn(("vgg11", "lenet5", "resnet18"))
BUILT_IN_DATASETS = OneOfOrOwn(("fashion", "shapes", "digits", "cifar10", "mnist"), files.folders)

MOST_SAMPLES = 1_000_000  # no data set has more than 60,000
MOST_EPOCHS = 1_000_000


class TrainingSettings(Concern):
    """Settings of a training, independent of its ranks and links."""

    meaning = "the model, the data, the batch and the optimiser"

    model: Annotated[ModelName, AfterValidator(BUILT_IN_MODELS), Mark.CHANGES_STEP_TIME] = Field(
        "vgg11", description="the network to train"
    )
    dataset: Annotated[DatasetName, AfterValidator(BUILT_IN_DATASETS)] = Field("fashion", description="the data set")
    train_samples: int | None = Field(None, ge=1, le=MOST_SAMPLES, description="train on the first N images only [all]")
    test_samples: int | None = Field(None, ge=1, le=MOST_SAMPLES, description="test on the first N images only [all]")
    global_batch_size: Annotated[int | None, Mark.CHANGES_STEP_TIME] = Field(
        None, ge=1, le=MOST_SAMPLES, description=f"samples per step, over all ranks [{DEFAULT_GLOBAL_BATCH_SIZE}]"
    )
    batch_size_per_rank: Annotated[int | None, Mark.CHANGES_STEP_TIME] = Field(
        None, ge=1, le=MOST_SAMPLES, description="samples per step on each rank, instead of GLOBAL_BATCH_SIZE"
    )
    epochs: int = Field(1, ge=1, le=MOST_EPOCHS, description="passes over the training set")
    shuffle: Shuffle = Field(
        "every_epoch",
        description="order of the samples: every_epoch draws a new one for each epoch; once keeps the first, so that "
        "each rank sees the same samples in every epoch, as if a sampler's set_epoch were forgotten",
    )
    max_steps: int | None = Field(
        None, ge=1, le=MOST_STEPS, description="stop after N steps [when the epochs are done]"
    )
    learning_rate: float = Field(0.1, ge=LEAST_FACTOR, le=MOST_FACTOR, description="SGD's learning rate")
    learning_rate_scaling: LearningRateScaling = Field(
        "none", description="linear: the learning rate is LEARNING_RATE x global batch / BASE_BATCH_SIZE"
    )
    base_batch_size: int = Field(
        256, ge=1, le=MOST_SAMPLES, description="the global batch that LEARNING_RATE is chosen for"
    )
    warmup_steps: int = Field(
        30, ge=0, le=MOST_STEPS, description="steps over which the learning rate rises to its full size"
    )
    schedule: ScheduleName = Field(
        "constant",
        description="the learning rate after the warm-up: constant; cosine decays it to 0; step divides it by 10 after "
        "half and again after three quarters of the remaining steps",
    )
    gradient_clip: float | None = Field(
        None, ge=LEAST_FACTOR, le=MOST_FACTOR, description="largest norm of the averaged gradient [no limit]"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD's momentum")
    weight_decay: float = Field(0.0001, ge=0, le=MOST_FACTOR, description="SGD's weight decay")
    batch_norm: Annotated[BatchNormName, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED] = Field(
        "local", description="statistics over each rank's part of the batch (local) or the global batch (synchronised)"
    )
    precision: Annotated[Precision, Mark.CHANGES_STEP_TIME, Mark.UNCALIBRATED] = Field(
        "fp32",
        description="number format: bf16 computes layers in bfloat16 and keeps parameters and gradients in fp32; "
        "fp64 is for proofs",
    )
    memory_format: MemoryFormat | None = Field(
        None,
        description="layout of the images in memory: channels_last, contiguous, or mixed, in which the small images "
        "of the last layers are contiguous [mixed; contiguous for fp64, one channel and user-defined models]",
    )
    evaluate: Evaluation = Field(
        "sharded",
        description="test after each epoch: sharded divides the test set among the ranks; every_rank tests all of it "
        "on each rank",
    )

    def _conflicts(self) -> Iterator[ConflictError]:
        if {"global_batch_size", "batch_size_per_rank"} <= self.model_fields_set:
            yield ConflictError(
                f"GLOBAL_BATCH_SIZE={self.global_batch_size} and BATCH_SIZE_PER_RANK={self.batch_size_per_rank} "
                "both set the batch size. Unset one of them."
            )

    def check_ranks(self, world_size: int) -> None:
        """Refuse a learning rate that linear scaling moves outside the bounds of LEARNING_RATE."""
        batch = self.global_batch(world_size)
        rate = self.full_learning_rate(batch)
        if not LEAST_FACTOR <= rate <= MOST_FACTOR:
            raise ConflictError(
                f"LEARNING_RATE={self.learning_rate:g} is scaled to {rate:g} by LEARNING_RATE_SCALING=linear with a "
                f"global batch of {batch} and BASE_BATCH_SIZE={self.base_batch_size}. "
                f"Change one of them to keep the scaled rate from {LEAST_FACTOR:g} to {MOST_FACTOR:g}."
            )

    def order_of(self, epoch: int) -> int:
        """The epoch whose order of samples this epoch uses: epoch 0 for all with SHUFFLE=once."""
        return epoch if self.shuffle == "every_epoch" else 0

    def global_batch(self, world_size: int) -> int:
        """Samples per step over all ranks."""
        if self.batch_size_per_rank is not None:
            return self.batch_size_per_rank * world_size
        return self.global_batch_size or DEFAULT_GLOBAL_BATCH_SIZE

    def full_learning_rate(self, global_batch_size: int) -> float:
        """The learning rate after the warm-up, for this many samples per step."""
        linear = self.learning_rate_scaling == "linear"
        return self.learning_rate * (global_batch_size / self.base_batch_size if linear else 1)
