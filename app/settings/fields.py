"""The one reader of the environment: every setting, its default, what it means and what is allowed."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.errors import SettingError
from app.modes import MODES
from app.settings import link_rates as asked

ModelName = Literal["vgg11", "lenet5", "resnet18"]
DatasetName = Literal["shapes", "digits", "cifar10", "mnist"]
Evaluation = Literal["sharded", "every_rank", "never"]
BatchNormName = Literal["local", "synchronised"]
Precision = Literal["fp32", "bf16", "fp64"]
MemoryFormat = Literal["contiguous", "channels_last"]
LearningRateScaling = Literal["none", "linear"]
ScheduleName = Literal["constant", "cosine", "step"]
LinkCheck = Literal["strict", "warn", "off"]
Shuffle = Literal["every_epoch", "once"]

DEFAULT_DATASETS: dict[ModelName, DatasetName] = {"vgg11": "shapes", "lenet5": "digits", "resnet18": "shapes"}
DEFAULT_GLOBAL_BATCH_SIZE = 256
SEED_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class OneOf:
    """A text out of a table whose entries are registered elsewhere."""

    choices: tuple[str, ...]

    def __call__(self, value: str) -> str:
        """Validate."""
        if value not in self.choices:
            raise ValueError("not registered")
        return value


@dataclass(frozen=True)
class Form:
    """A text that `read` understands; `words` describe what it does."""

    read: Callable[[str], object]
    words: str

    def __call__(self, value: str | None) -> str | None:
        """Validate."""
        if value is not None and not self.read(value):
            raise ValueError("not of this form")
        return value


SYNC_MODE = OneOf(tuple(MODES))
RUN_NAME = Form(
    re.compile(r"(?!(?:latest|comparisons|experiments)$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch,
    "letters, digits, '.', '_' and '-', a letter or digit first, at most 100, and not 'latest', 'comparisons' or "
    "'experiments'",
)
LINK_RATE = Form(asked.read_rate, asked.RATE_WORDS)
LINK_RATE_BY_RANK = Form(asked.read_rate_by_rank, asked.RATE_BY_RANK_WORDS)
LINK_DELAY = Form(asked.read_delay, asked.DELAY_WORDS)
LINK_LOSS = Form(asked.read_loss, asked.LOSS_WORDS)


class Settings(BaseSettings):
    """All settings of a run, read once and never changed; a field's name in capitals is its variable."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore", allow_inf_nan=False)

    sync_mode: Annotated[str, AfterValidator(SYNC_MODE)] = Field(
        "ddp", description="how the ranks average their gradients"
    )
    bucket_bytes: int | None = Field(
        None, ge=1, le=2**40, description="size of DDP's buckets [PyTorch's own choice: 25 MiB, the first one 1 MiB]"
    )
    model: ModelName = Field("vgg11", description="the network that is trained")
    dataset: DatasetName | None = Field(
        None, description="the data set [by model: digits for lenet5, shapes for the others]"
    )
    train_samples: int | None = Field(None, ge=1, description="train on the first so many images [on all]")
    test_samples: int | None = Field(None, ge=1, description="test with the first so many images [with all]")
    global_batch_size: int | None = Field(
        None, ge=1, description=f"samples per step over all ranks [{DEFAULT_GLOBAL_BATCH_SIZE}]"
    )
    batch_size_per_rank: int | None = Field(
        None, ge=1, description="samples per step of each rank, instead of GLOBAL_BATCH_SIZE"
    )
    epochs: int = Field(1, ge=1, description="passes over the training set")
    shuffle: Shuffle = Field(
        "every_epoch",
        description="the order of the samples: another one in every epoch; or once and for all, so that each rank "
        "always has the same ones, as where a sampler's set_epoch is forgotten",
    )
    max_steps: int | None = Field(None, ge=1, description="end after this many steps [when the epochs are done]")
    learning_rate: float = Field(0.1, gt=0, description="SGD's learning rate")
    learning_rate_scaling: LearningRateScaling = Field(
        "none", description="linear: LEARNING_RATE is meant for BASE_BATCH_SIZE, and grows with the global batch"
    )
    base_batch_size: int = Field(256, ge=1, description="the global batch that LEARNING_RATE is meant for")
    warmup_steps: int = Field(30, ge=0, description="steps in which the learning rate rises to its full size")
    schedule: ScheduleName = Field(
        "constant",
        description="the learning rate after the warm-up: "
        "as it is, or down to 0 along a cosine, or a tenth after half and again after three quarters of what is left",
    )
    gradient_clip: float | None = Field(
        None, gt=0, description="the most that the norm of the averaged gradient may be [no limit]"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="SGD's momentum")
    weight_decay: float = Field(0.0001, ge=0, description="SGD's weight decay")
    seed: int = Field(
        1, ge=0, le=SEED_LIMIT, description="fixes the first parameters, the order of the samples, the augmentation"
    )
    batch_norm: BatchNormName = Field(
        "local", description="statistics over a rank's own part of the batch, or over the global batch"
    )
    precision: Precision = Field(
        "fp32",
        description="floating-point numbers: bf16 computes layers in bfloat16, but keeps parameters and gradients "
        "in fp32; fp64 is for proofs",
    )
    memory_format: MemoryFormat | None = Field(
        None,
        description="layout of the images in memory [what is faster: channels_last, but contiguous for fp64 "
        "and for images of one channel]",
    )
    log_every: int = Field(20, ge=1, description="steps between two lines of loss")
    evaluate: Evaluation = Field(
        "sharded",
        description="after each epoch: the test set cut over the ranks, or whole on each of them, or not at all",
    )
    threads_per_rank: int | None = Field(
        None, ge=1, le=1024, description="compute threads of a rank [what its share of the CPUs allows]"
    )
    run_name: Annotated[str | None, AfterValidator(RUN_NAME)] = Field(
        None, description="the run's folder in results/ [the time of the start]"
    )
    join_timeout: float = Field(
        120, gt=0, le=86_400, description="seconds in which every rank must have come to the start"
    )
    peer_timeout: float = Field(300, ge=1, le=86_400, description="seconds after which a silent peer counts as lost")
    link_rate: Annotated[str | None, AfterValidator(LINK_RATE)] = Field(
        None, description="what each rank's link carries, outgoing and incoming [not shaped]"
    )
    link_rate_by_rank: Annotated[str | None, AfterValidator(LINK_RATE_BY_RANK)] = Field(
        None, description="the same for single ranks, in place of LINK_RATE"
    )
    link_delay: Annotated[str | None, AfterValidator(LINK_DELAY)] = Field(
        None, description="what each packet waits on its way out of a rank, and again on its way in [nothing]"
    )
    link_loss: Annotated[str | None, AfterValidator(LINK_LOSS)] = Field(
        None, description="packets that each rank's link loses, outgoing and incoming [none]"
    )
    link_check: LinkCheck = Field(
        "strict",
        description="what becomes of a run whose links, as measured before it, are not within 10 % of what is asked: "
        "it ends, or warns; off: they are not measured",
    )
    usage_interval: float = Field(
        0.5, ge=0.05, le=3600, description="seconds between two samples of a rank's CPU, memory and network"
    )
    slow_rank: int | None = Field(None, ge=0, le=65_535, description="a rank that is slowed down on purpose [none]")
    slow_factor: float = Field(2, ge=1, le=100, description="how many times as long its computation takes")
    rank_cpus: float | None = Field(
        None, gt=0, description="CPUs that Compose was asked to give to each rank [no limit]"
    )
    rank: int | None = Field(
        None, ge=0, le=65_535, description="this process's rank, with WORLD_SIZE [found in Compose]"
    )
    world_size: int | None = Field(
        None, ge=1, le=65_536, description="number of ranks [found in Compose; where set, it must agree]"
    )
    master_addr: str | None = Field(None, description="rank 0's address [compose.yaml gives it]")
    master_port: int = Field(29500, ge=1024, le=65_535, description="rank 0's port for the join")

    def model_post_init(self, context: Any, /) -> None:
        """Check what concerns more than one setting."""
        given = self.model_fields_set
        if {"global_batch_size", "batch_size_per_rank"} <= given:
            raise SettingError(
                f"GLOBAL_BATCH_SIZE={self.global_batch_size} and BATCH_SIZE_PER_RANK={self.batch_size_per_rank}: "
                "only one of them can be given. Unset the other."
            )
        if self.rank is not None and self.world_size is None:
            raise SettingError(f"RANK={self.rank} without WORLD_SIZE. Set both, or neither inside Compose.")
        if self.rank is not None and self.world_size is not None and self.rank >= self.world_size:
            raise SettingError(
                f"RANK={self.rank} with WORLD_SIZE={self.world_size}. Allowed: 0 to {self.world_size - 1}."
            )
        if "slow_factor" in given and self.slow_rank is None:
            raise SettingError(f"SLOW_FACTOR={self.slow_factor:g} without SLOW_RANK. Say which rank is to be slow.")
        if self.world_size is not None:
            self.check_ranks(self.world_size)

    def check_ranks(self, world_size: int) -> None:
        """Refuse what is asked of ranks that there are not, once it is known how many there are."""
        rates = asked.read_rate_by_rank(self.link_rate_by_rank) if self.link_rate_by_rank else {}
        named = [("LINK_RATE_BY_RANK", rank) for rank in rates] + [("SLOW_RANK", self.slow_rank)]
        for name, rank in named:
            if rank is not None and rank >= world_size:
                raise SettingError(
                    f"{name}={getattr(self, name.lower())}: there is no rank {rank}. "
                    f"Allowed with {world_size} rank(s): 0 to {world_size - 1}."
                )

    @property
    def dataset_name(self) -> DatasetName:
        """The data set, chosen or by model."""
        return self.dataset or DEFAULT_DATASETS[self.model]

    def order_of(self, epoch: int) -> int:
        """The epoch whose order of the samples this one takes."""
        return epoch if self.shuffle == "every_epoch" else 0

    def global_batch(self, world_size: int) -> int:
        """Samples per step over all ranks."""
        if self.batch_size_per_rank is not None:
            return self.batch_size_per_rank * world_size
        return self.global_batch_size or DEFAULT_GLOBAL_BATCH_SIZE


# Given to each process by whatever starts it, where that is not Compose.
OUTSIDE_COMPOSE = frozenset({"rank", "master_addr"})

# What one rank may have and another not.
IDENTITY = frozenset({"rank", "world_size", "master_addr", "master_port", "threads_per_rank", "run_name", "rank_cpus"})

# What Compose itself consumes; scripts/up checks these before Compose sees them.
CONSUMED_BY_COMPOSE = {
    "WORKERS": ("3", "ranks beside rank 0, from 0 to 100"),
    "RANK_CPUS": ("", "CPUs of each rank, such as 0.5 [no limit]"),
    "RANK_MEMORY": ("", "memory of each rank, such as 2g [no limit]"),
    "NETWORK_PREFIX": ("10.77.1", "first three numbers of the ranks' private network"),
}


def load() -> Settings:
    """Read the environment, or refuse it with everything that is wrong in it."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingError("\n".join(_explain(detail) for detail in error.errors())) from None


class _Given(Settings):
    """Settings that the environment has no part in."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def of(given: Mapping[str, str]) -> Settings:
    """Settings out of these values alone, by variable."""
    return _Given(**{name.lower(): value for name, value in given.items()})  # type: ignore[arg-type]  # it reads texts


def problems(given: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with these values, by variable; what concerns several of them stands under the first it names."""
    try:
        of(given)
    except ValidationError as error:
        return {str(detail["loc"][0]).upper(): _explain(detail) for detail in error.errors()}
    except SettingError as error:
        named = [name for name in re.findall(r"[A-Z][A-Z_]+", str(error)) if name in given]
        return {named[0] if named else "": str(error)}
    return {}


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint for a name that is not known."""
    by_small_letters = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(by_small_letters), n=1, cutoff=0.5)
    return f"Did you mean {by_small_letters[near[0]]}?" if near else f"Known: {', '.join(known)}."


def _explain(detail: ErrorDetails) -> str:
    name = str(detail["loc"][0])
    got = str(detail["input"])
    allowed = allowed_values(Settings.model_fields[name])
    message = f"{name.upper()}={got}: not allowed. Allowed: {allowed}."
    near = difflib.get_close_matches(got.lower(), _choices(Settings.model_fields[name]), n=1, cutoff=0.5)
    return message + (f" Did you mean {near[0]}?" if near else "")


def _rule[Rule](field: FieldInfo, kind: type[Rule]) -> Rule | None:
    """The validator of this kind that a setting carries."""
    functions = [rule.func for rule in field.metadata if isinstance(rule, AfterValidator)]
    return next((function for function in functions if isinstance(function, kind)), None)


def _choices(field: FieldInfo) -> list[str]:
    """The words that a setting can take; none where it takes numbers or free text."""
    if one_of := _rule(field, OneOf):
        return list(one_of.choices)
    options = [field.annotation, *get_args(field.annotation)]
    return [word for option in options for word in get_args(option) if isinstance(word, str)]


def allowed_values(field: FieldInfo) -> str:
    """What a setting can take, in words, made from its own definition."""
    if choices := _choices(field):
        return ", ".join(choices)
    if form := _rule(field, Form):
        return form.words
    types = {field.annotation, *get_args(field.annotation)}
    kind = "a whole number" if int in types else "a number" if float in types else "text"
    return ", ".join([kind, *_bounds(field)])


def _bounds(field: FieldInfo) -> Iterator[str]:
    words = {"gt": "more than {}", "ge": "{} or more", "lt": "less than {}", "le": "at most {}"}
    for rule in field.metadata:
        for attribute, text in words.items():
            if (bound := getattr(rule, attribute, None)) is not None:
                yield text.format(bound)


def default_text(field: FieldInfo) -> str:
    """A setting's default as one would write it; empty where it follows from something else."""
    return "" if field.default is None else str(field.default)


def help_text() -> str:
    """The table of all settings for `python -m app --help`."""
    rows = [
        (name.upper(), default_text(field), f"{field.description} ({allowed_values(field)})")
        for name, field in Settings.model_fields.items()
        if name.upper() not in CONSUMED_BY_COMPOSE
    ]
    rows += [(name, default, what) for name, (default, what) in CONSUMED_BY_COMPOSE.items()]
    return "\n".join(f"  {name:<20} {default:<8} {what}" for name, default, what in rows)


def env_example() -> str:
    """The text of .env.example: every setting that Compose passes on, commented out, at its default."""
    lines = [
        "# Every setting of Lockstep with its default. Copy to .env and uncomment what you change,",
        "# or give it on the command line: SYNC_MODE=all_reduce scripts/up",
        "# Made by `python -m app env-example`.",
    ]
    for name, field in Settings.model_fields.items():
        if name in OUTSIDE_COMPOSE or name.upper() in CONSUMED_BY_COMPOSE:
            continue
        lines += ["", f"# {field.description} ({allowed_values(field)})", f"#{name.upper()}={default_text(field)}"]
    lines += ["", "# The next four are read by Docker Compose itself."]
    for name, (default, what) in CONSUMED_BY_COMPOSE.items():
        lines += ["", f"# {what}", f"#{name}={default}"]
    return "\n".join(lines) + "\n"
