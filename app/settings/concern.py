"""The base class for the settings of one concern: validation, and marks from which lists of settings are derived."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from app.errors import ConflictError
from app.settings import kinds

# PyTorch computes with these numbers in single precision, up to 3.4e38. The margin leaves room for products.
LEAST_FACTOR, MOST_FACTOR = 1e-30, 1e30
MOST_RANKS = 65_536
MOST_STEPS = 1_000_000_000  # twelve days of the fastest steps, which take a millisecond


class Mark(Enum):
    """A fact about a setting, from which lists of settings are derived."""

    GIVEN_BY_LAUNCHER = auto()  # to each process; users of Compose do not set it
    READ_BY_COMPOSE = auto()  # and checked by the scripts before they call Compose
    READ_BY_CLOUDLAB = auto()  # by scripts/cloudlab, on a host that may have no engine
    AT_CONTAINER_START = auto()  # has its effect once for all that runs in a rank's container
    RANKS_MAY_DIFFER = auto()
    OF_ONE_START = auto()  # each start of the same run has its own value
    FREE_ON_RESUME = auto()  # changes neither the training nor the meaning of its records
    CHANGES_STEP_TIME = auto()
    UNCALIBRATED = auto()  # changes the time of a step, but every calibration has its default
    CHANGES_NO_FIGURE = auto()
    NOT_IN_A_GRID = auto()  # an experiment sets it for each run, or it depends on the machine


@dataclass(frozen=True)
class Needs:
    """Marks a setting without effect unless its owner, another setting, has one of these values; () allows any."""

    owner: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class HelpGroup:
    """Lists a setting in the help's group where users look for it, instead of its model's group."""

    name: str


class Concern(BaseModel):
    """Immutable settings of one concern. A field's name in capitals is its environment variable."""

    meaning: ClassVar[str]  # a heading in the help

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def check_characters(cls, value: object, info: ValidationInfo) -> object:
        """Refuse unprintable text, and numbers that do not match `kinds.WHOLE` or `kinds.DECIMAL`."""
        if isinstance(value, str) and info.field_name:
            types = kinds.types_of(cls.model_fields[info.field_name])
            is_plain = (
                kinds.WHOLE.fullmatch
                if int in types
                else kinds.DECIMAL.fullmatch
                if float in types
                else str.isprintable
            )
            if not is_plain(value):
                raise ValueError("not a text that a setting can be")
        return value

    def model_post_init(self, context: Any, /) -> None:
        """Refuse the first conflict between settings of this concern."""
        for conflict in (*self._unmet_needs(), *self._conflicts()):
            raise conflict

    def _conflicts(self) -> Iterator[ConflictError]:
        yield from ()

    def _unmet_needs(self) -> Iterator[ConflictError]:
        """Refuse settings that would be ignored, because their owner is unset or has another value."""
        for name in (name for name in type(self).model_fields if name in self.model_fields_set):
            needs, value = needs_of(type(self), name), getattr(self, name)
            if needs is None or value is None:
                continue
            owner, owned = needs.owner.upper(), f"{name.upper()}={as_written(value)}"
            found = getattr(self, needs.owner)
            if needs.values and found not in needs.values:
                yield ConflictError(
                    f"{owned} has no effect with {owner}={found}. "
                    f"Unset {name.upper()}, or set {owner}={' or '.join(needs.values)}."
                )
            elif found is None:
                yield ConflictError(f"{owned} has no effect without {owner}. Unset {name.upper()}, or set {owner}.")


def as_written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def needs_of(concern: type[Concern], name: str) -> Needs | None:
    return next((mark for mark in concern.model_fields[name].metadata if isinstance(mark, Needs)), None)
