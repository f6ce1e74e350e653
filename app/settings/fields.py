"""Every setting: its name, its default, its meaning and its bounds."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.errors import SettingError
from app.extensions import files
from app.machine.say import shown
from app.settings import forms, kinds
from app.settings.averaging import LEAST_FACTOR, MOST_FACTOR, MOST_RANKS, MOST_STEPS, AveragingSettings
from app.settings.link_rates import read_rate_by_rank

ModelName = str
DatasetName = str
Evaluation = Literal["sharded", "every_rank", "never"]
BatchNormName = Literal["local", "synchronised"]
Precision = Literal["fp32", "bf16", "fp64"]
MemoryFormat = Literal["mixed", "contiguous", "channels_last"]
LearningRateScaling = Literal["none", "linear"]
ScheduleName = Literal["constant", "cosine", "step"]
LinkCheck = Literal["strict", "warn", "off"]
BackendName = Literal["gloo", "mpi"]
Shuffle = Literal["every_epoch", "once"]

DEFAULT_DATASETS: dict[ModelName, DatasetName] = {"vgg11": "shapes", "lenet5": "digits", "resnet18": "shapes"}
DEFAULT_DATASET = "shapes"  # of a user's own model
DEFAULT_GLOBAL_BATCH_SIZE = 256
DEFAULT_TRACE_STEPS = 200

MOST_SAMPLES = 1_000_000  # no data set has more than 60,000
MOST_EPOCHS = 1_000_000

_BUILT_IN = {"SYNC_MODE": forms.SYNC_MODE, "MODEL": forms.MODEL, "DATASET": forms.DATASET}

# The ranks' machine can be larger than the one that checks, but no setting may fill a small one with threads.
MOST_THREADS = 256
ALWAYS_ALLOWED_THREADS, THREADS_PER_CPU = 16, 4

# Given to each process by whatever starts it, and not by the user of Compose.
OUTSIDE_COMPOSE = frozenset({"rank", "master_addr", "ranks_started", "node", "nodes"})

# Compose itself needs these six, so the scripts check them before they call it.
CONSUMED_BY_COMPOSE = ("workers", "max_restarts", "rank_cpus", "rank_memory", "network_prefix", "data_folder")

# scripts/cloudlab itself needs these two.
CONSUMED_BY_CLOUDLAB = ("network", "experiment_network")

# Ranks of one run may differ in these.
IDENTITY = frozenset(
    {
        "rank",
        "world_size",
        "ranks_started",
        "master_addr",
        "master_port",
        "node",
        "nodes",
        "threads_per_rank",
        "run_name",
        "rank_cpus",
    }
)


class Settings(AveragingSettings, BaseSettings):
    """All settings of a run, read once and never changed; a field's name in capitals is its variable."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore", allow_inf_nan=False)

    backend: BackendName = Field(
        "gloo", description="what carries the messages: gloo, or mpi, which is OpenMPI under mpirun"
    )
    model: Annotated[ModelName, AfterValidator(forms.MODEL)] = Field("vgg11", description="the network to train")
    dataset: Annotated[DatasetName | None, AfterValidator(forms.DATASET)] = Field(
        None, description="the data set [by model: digits for lenet5, shapes for the others]"
    )
    train_samples: int | None = Field(
        None, ge=1, le=MOST_SAMPLES, description="train on the first N images only [on all]"
    )
    test_samples: int | None = Field(
        None, ge=1, le=MOST_SAMPLES, description="test with the first N images only [with all]"
    )
    global_batch_size: int | None = Field(
        None, ge=1, le=MOST_SAMPLES, description=f"samples per step, over all ranks [{DEFAULT_GLOBAL_BATCH_SIZE}]"
    )
    batch_size_per_rank: int | None = Field(
        None, ge=1, le=MOST_SAMPLES, description="samples per step on each rank, instead of GLOBAL_BATCH_SIZE"
    )
    epochs: int = Field(1, ge=1, le=MOST_EPOCHS, description="passes over the training set")
    shuffle: Shuffle = Field(
        "every_epoch",
        description="order of the samples: every_epoch draws a new one for each epoch; once keeps the first, so each "
        "rank sees the same samples in every epoch, as when a sampler's set_epoch is forgotten",
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
        description="the learning rate after the warm-up: constant keeps it; cosine lowers it to 0; step divides it by "
        "10 after half of the remaining steps, and again after three quarters",
    )
    gradient_clip: float | None = Field(
        None, ge=LEAST_FACTOR, le=MOST_FACTOR, description="largest norm of the averaged gradient [no limit]"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD's momentum")
    weight_decay: float = Field(0.0001, ge=0, le=MOST_FACTOR, description="SGD's weight decay")
    batch_norm: BatchNormName = Field(
        "local", description="statistics over each rank's part of the batch (local) or the global batch (synchronised)"
    )
    precision: Precision = Field(
        "fp32",
        description="number format: bf16 computes layers in bfloat16 and keeps parameters and gradients in fp32; "
        "fp64 is for proofs",
    )
    memory_format: MemoryFormat | None = Field(
        None,
        description="layout of the images in memory: channels_last, contiguous, or mixed, which has the last layers' "
        "small images contiguous [mixed; contiguous for fp64, images of one channel and your own models]",
    )
    evaluate: Evaluation = Field(
        "sharded",
        description="test after each epoch: sharded divides the test set among the ranks; every_rank tests all of it "
        "on each rank",
    )
    threads_per_rank: int | None = Field(
        None, ge=1, le=MOST_THREADS, description="compute threads of each rank [what its share of the CPUs allows]"
    )
    checkpoint_every: int = Field(
        100, ge=0, le=MOST_STEPS, description="save the state every N steps, and at the end; 0 never saves it"
    )
    resume: Annotated[str, AfterValidator(forms.RESUME)] = Field(
        "auto",
        description="the run to go on with: auto is the newest unfinished one of the same settings and sources, if "
        "there is one; never begins a new run; the name of a run insists on that one",
    )
    run_name: Annotated[str | None, AfterValidator(forms.RUN_NAME)] = Field(
        None, description="name of the run's folder in results/ [the time of the start]"
    )
    join_timeout: float = Field(120, ge=1, le=86_400, description="seconds within which every rank must join")
    peer_timeout: float = Field(300, ge=1, le=86_400, description="seconds after which a silent rank counts as lost")
    link_rate: Annotated[str | None, AfterValidator(forms.LINK_RATE)] = Field(
        None, description="bandwidth of each rank's link, in each direction [not shaped]"
    )
    link_rate_by_rank: Annotated[str | None, AfterValidator(forms.LINK_RATE_BY_RANK)] = Field(
        None, description="bandwidth of single ranks' links, instead of LINK_RATE"
    )
    link_delay: Annotated[str | None, AfterValidator(forms.LINK_DELAY)] = Field(
        None, description="delay of each packet on its way out of a rank, and again on its way in [nothing]"
    )
    link_loss: Annotated[str | None, AfterValidator(forms.LINK_LOSS)] = Field(
        None, description="share of packets that each rank's link drops, in each direction [none]"
    )
    link_check: LinkCheck = Field(
        "strict",
        description="if measured links miss the requested rate by more than 10 %: strict stops, warn continues, "
        "off skips the measurement",
    )
    usage_interval: float = Field(
        0.5, ge=0.05, le=3600, description="seconds between two samples of a rank's CPU, memory and network"
    )
    trace_steps: int = Field(
        DEFAULT_TRACE_STEPS,
        ge=0,
        le=MOST_STEPS,
        description="steps of each rank in trace.json, half of them from the beginning of the run and half from its "
        "end; 0 writes no trace",
    )
    slow_rank: int | None = Field(None, ge=0, le=65_535, description="a rank to slow down on purpose [none]")
    slow_factor: float = Field(
        2, ge=1, le=100, description="how many times as long each computation of SLOW_RANK takes"
    )
    rank: int | None = Field(
        None, ge=0, le=65_535, description="this process's rank, with WORLD_SIZE [found in Compose]"
    )
    world_size: int | None = Field(
        None, ge=1, le=MOST_RANKS, description="number of ranks [found in Compose; where set, it must agree]"
    )
    ranks_started: int | None = Field(
        None, ge=1, le=MOST_RANKS, exclude=True, description="number of ranks that a script has started [scripts/up]"
    )
    master_addr: Annotated[str | None, AfterValidator(forms.MASTER_ADDR)] = Field(
        None, description="rank 0's address or name [compose.yaml gives it]"
    )
    master_port: int = Field(29500, ge=1024, le=65_535, description="rank 0's port for the join")
    nodes: Annotated[str | None, AfterValidator(forms.NODES)] = Field(
        None, description="all nodes in the order of their ranks, as each finds its own rank [found in Compose]"
    )
    node: Annotated[str | None, AfterValidator(forms.MASTER_ADDR)] = Field(
        None, description="this node, as NODES names it [the one of NODES that is an address of this machine]"
    )

    # No record holds the next six but RANK_CPUS: they are Compose's. The number of ranks is found.
    workers: Annotated[int, BeforeValidator(forms.WORKERS)] = Field(
        3, exclude=True, description="number of ranks besides rank 0"
    )
    max_restarts: Annotated[int, BeforeValidator(forms.MAX_RESTARTS)] = Field(
        5,
        exclude=True,
        description="how often Docker starts each rank of a run again that fails, so that the run goes on at its last "
        "state by itself; 0 never does",
    )
    rank_cpus: Annotated[float | None, BeforeValidator(forms.RANK_CPUS)] = Field(
        None, description="CPU limit of each rank, such as 0.5 [no limit]"
    )
    rank_memory: Annotated[str | None, AfterValidator(forms.RANK_MEMORY)] = Field(
        None, exclude=True, description="memory limit of each rank [no limit]"
    )
    network_prefix: Annotated[str | None, AfterValidator(forms.NETWORK_PREFIX)] = Field(
        None, exclude=True, description="the ranks' private network [Docker chooses one that is free]"
    )
    data_folder: Annotated[str, AfterValidator(forms.DATA_FOLDER)] = Field(
        "./data",
        exclude=True,
        description="where prepare looks for the archives of real data sets, and downloads them to: a shared folder, "
        "for example, which may be read-only if it holds them",
    )

    # No rank receives these either.
    network: Annotated[str, AfterValidator(forms.NETWORK)] = Field(
        "host",
        description="what the ranks of several machines talk over: host is the machines' own network; overlay is "
        "Docker's, a tunnel through it, to measure what that costs",
    )
    experiment_network: Annotated[str, AfterValidator(forms.EXPERIMENT_NETWORK)] = Field(
        "10.10.1.0/24", exclude=True, description="the network of several machines that the gradients cross"
    )

    @field_validator("*", mode="before")
    @classmethod
    def check_writing(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a text that does not print, and a number that is not written in plain digits."""
        if isinstance(value, str) and info.field_name:
            types = kinds.types_of(cls.model_fields[info.field_name])
            is_written = kinds.WHOLE if int in types else kinds.DECIMAL if float in types else str.isprintable
            if not is_written(value):
                raise ValueError("not a text that a setting can be")
        return value

    def model_post_init(self, context: Any, /) -> None:
        """Check what concerns more than one setting."""
        super().model_post_init(context)
        given = self.model_fields_set
        if {"global_batch_size", "batch_size_per_rank"} <= given:
            raise SettingError(
                f"GLOBAL_BATCH_SIZE={self.global_batch_size} and BATCH_SIZE_PER_RANK={self.batch_size_per_rank}: "
                "give only one of them. Unset the other."
            )
        if self.rank is not None and self.world_size is None:
            raise SettingError(f"RANK={self.rank} without WORLD_SIZE. Set both, or neither inside Compose.")
        if self.rank is not None and self.world_size is not None and self.rank >= self.world_size:
            raise SettingError(
                f"RANK={self.rank} with WORLD_SIZE={self.world_size}. Allowed: 0 to {self.world_size - 1}."
            )
        if self.resume not in ("auto", "never", self.run_name or self.resume):
            raise SettingError(
                f"RESUME={self.resume} with RUN_NAME={self.run_name}: they name two runs. Unset one of them."
            )
        self._check_own()
        self._check_nodes()
        self._check_wire()
        if "slow_factor" in given and self.slow_rank is None:
            raise SettingError(f"SLOW_FACTOR={self.slow_factor:g} without SLOW_RANK. Set SLOW_RANK, or unset both.")
        if ranks := self.world_size or self.ranks_started:
            self.check_ranks(ranks)
        else:
            self._check_scaled_rate(world_size=1)

    def _check_own(self) -> None:
        """Refuse a file that has the name of what is built in: it would never be used."""
        for name, value in self._named.items():
            if value in _BUILT_IN[name].choices and value in files.names():
                raise SettingError(
                    f"{name}={value}: {files.path_of(value)} has the name of what is built in, which wins. "
                    "Give the file another name."
                )

    def _check_nodes(self) -> None:
        if self.node is not None and self.node not in self.all_nodes:
            raise SettingError(
                f"NODE={self.node} is not one of NODES={shown(self.nodes or '')}. Give both, or neither inside Compose."
            )
        if len(set(self.all_nodes)) < len(self.all_nodes):
            raise SettingError(f"NODES={shown(self.nodes or '')}: names a node twice. Each has one rank.")
        if self.all_nodes and self.world_size not in (None, len(self.all_nodes)):
            raise SettingError(
                f"WORLD_SIZE={self.world_size}, but NODES={shown(self.nodes or '')} names {len(self.all_nodes)}. "
                "Unset WORLD_SIZE."
            )

    def _check_wire(self) -> None:
        """Refuse half precision where it would spoil what is asked for, or cannot be sent."""
        wire = self.wire_precision
        if wire != "fp32" and self.precision == "fp64":
            raise SettingError(
                f"WIRE_PRECISION={wire} with PRECISION=fp64: not allowed, rounding on the wire would spoil the proofs "
                "that fp64 is for. Allowed: WIRE_PRECISION=fp32, or PRECISION=fp32, bf16."
            )
        if wire != "fp32" and self.backend == "mpi":
            raise SettingError(
                f"WIRE_PRECISION={wire} with BACKEND=mpi: not allowed, PyTorch's MPI carries no numbers of 16 bits. "
                "Allowed: WIRE_PRECISION=fp32, or BACKEND=gloo."
            )

    def check_ranks(self, world_size: int) -> None:
        """Refuse settings of ranks that do not exist, once the number of ranks is known."""
        self._check_scaled_rate(world_size)
        super().check_ranks(world_size)
        rates = read_rate_by_rank(self.link_rate_by_rank) if self.link_rate_by_rank else {}
        named = [("LINK_RATE_BY_RANK", rank) for rank in rates] + [("SLOW_RANK", self.slow_rank)]
        for name, rank in named:
            if rank is not None and rank >= world_size:
                raise SettingError(
                    f"{name}={shown(str(getattr(self, name.lower())))}: there is no rank {rank}. "
                    f"Allowed with {world_size} rank(s): 0 to {world_size - 1}."
                )

    def _check_scaled_rate(self, world_size: int) -> None:
        """Refuse a learning rate that linear scaling brings out of its own bounds."""
        rate, batch = self.full_learning_rate(self.global_batch(world_size)), self.global_batch(world_size)
        if not LEAST_FACTOR <= rate <= MOST_FACTOR:
            raise SettingError(
                f"LEARNING_RATE={self.learning_rate:g} with LEARNING_RATE_SCALING=linear is {rate:g} for a global "
                f"batch of {batch} and BASE_BATCH_SIZE={self.base_batch_size}: not allowed. "
                f"Allowed: {LEAST_FACTOR:g} to {MOST_FACTOR:g}."
            )

    def check_machine(self, cpus: int) -> None:
        """Refuse more CPUs or threads for a rank than a machine with so many CPUs can give."""
        if self.rank_cpus is not None and self.rank_cpus > cpus:
            raise SettingError(
                f"RANK_CPUS={self.rank_cpus:g}: not allowed. Allowed: at most {cpus}, the CPUs of this machine."
            )
        most = max(ALWAYS_ALLOWED_THREADS, THREADS_PER_CPU * cpus)
        if self.threads_per_rank is not None and self.threads_per_rank > most:
            raise SettingError(
                f"THREADS_PER_RANK={self.threads_per_rank}: not allowed. Allowed: at most {most} on this machine of "
                f"{cpus} CPU(s)."
            )

    @property
    def dataset_name(self) -> DatasetName:
        """The data set, chosen or by model."""
        return self.dataset or DEFAULT_DATASETS.get(self.model, DEFAULT_DATASET)

    @property
    def _named(self) -> dict[str, str]:
        """What may be a file of the user's own, by its setting."""
        return {"SYNC_MODE": self.sync_mode, "MODEL": self.model, "DATASET": self.dataset_name}

    @property
    def own(self) -> dict[str, str]:
        """The user's own among mode, model and data set, by setting: files in extensions/."""
        return {name: value for name, value in self._named.items() if value not in _BUILT_IN[name].choices}

    @property
    def restarts(self) -> int:
        """How often a rank that fails is started again: by Docker, where compose.yaml says how often."""
        return self.max_restarts if "max_restarts" in self.model_fields_set else 0

    @property
    def all_nodes(self) -> tuple[str, ...]:
        """The nodes by rank; none where something else tells the ranks."""
        return tuple(self.nodes.split(",")) if self.nodes else ()

    def order_of(self, epoch: int) -> int:
        """The epoch whose order of the samples this one takes."""
        return epoch if self.shuffle == "every_epoch" else 0

    def global_batch(self, world_size: int) -> int:
        """Samples per step over all ranks."""
        if self.batch_size_per_rank is not None:
            return self.batch_size_per_rank * world_size
        return self.global_batch_size or DEFAULT_GLOBAL_BATCH_SIZE

    def full_learning_rate(self, global_batch_size: int) -> float:
        """The learning rate after the warm-up, with this many samples per step."""
        linear = self.learning_rate_scaling == "linear"
        return self.learning_rate * (global_batch_size / self.base_batch_size if linear else 1)
