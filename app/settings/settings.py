"""All settings of a run by concern, and the lists of settings that follow from their marks."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from app.errors import ConflictError, SettingError
from app.extensions import files
from app.machine.folders import DATA
from app.settings.averaging import BUILT_IN_MODES, AveragingSettings
from app.settings.concern import Concern, Mark
from app.settings.explanations import explain
from app.settings.links import LinkSettings
from app.settings.measuring import MeasuringSettings
from app.settings.place import PlaceSettings
from app.settings.recovery import RecoverySettings
from app.settings.training import BUILT_IN_DATASETS, BUILT_IN_MODELS, TrainingSettings

Value = bool | int | float | str | None

_BUILT_IN = {"SYNC_MODE": BUILT_IN_MODES, "MODEL": BUILT_IN_MODELS, "DATASET": BUILT_IN_DATASETS}


class RefusedSettingsError(SettingError):
    """One or more invalid settings, with an error for each of them."""

    def __init__(self, each: Collection[SettingError]) -> None:
        super().__init__("\n".join(map(str, each)))
        self.each = each

    @property
    def line(self) -> str:
        return "\n".join(each.line for each in self.each)


@dataclass(frozen=True)
class Settings:
    """All settings of a run, read once and never changed."""

    averaging: AveragingSettings = field(default_factory=AveragingSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    place: PlaceSettings = field(default_factory=PlaceSettings)
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    measuring: MeasuringSettings = field(default_factory=MeasuringSettings)

    @classmethod
    def of(cls, **values: object) -> Self:
        """Settings with these values; raises one error that lists all invalid ones."""
        if unknown := sorted(values.keys() - FIELDS.keys()):
            raise TypeError(f"unknown settings: {', '.join(unknown)}")
        concerns: dict[str, Any] = {}
        wrong: list[SettingError] = []
        for name, concern in CONCERNS.items():
            try:
                concerns[name] = concern(**_of_concern(concern, values))
            except ValidationError as error:
                wrong += [SettingError(explain(detail, FIELDS)) for detail in error.errors()]
            except SettingError as error:
                wrong.append(error)
        if wrong:
            raise RefusedSettingsError(wrong)
        return cls(**concerns)

    def __post_init__(self) -> None:
        """Refuse the first conflict between settings of several concerns."""
        for conflict in (*self._about_own_files(), *self._about_wire()):
            raise conflict
        if ranks := self.place.world_size or self.place.ranks_started:
            self.check_ranks(ranks)
        else:
            self.training.check_ranks(1)

    def _about_own_files(self) -> Iterator[ConflictError]:
        for name, value in self._named.items():
            if value in _BUILT_IN[name].choices and value in files.names():
                yield ConflictError(
                    f"{name}={value}: {files.path_of(value)} is shadowed by the built-in one. Rename the file."
                )
        name = self.training.dataset
        if files.holds_pictures(name) and (name in BUILT_IN_DATASETS.choices or name in files.names()):
            other = "a built-in data set" if name in BUILT_IN_DATASETS.choices else str(files.path_of(name))
            yield ConflictError(f"DATASET={name}: the folder {DATA / name} has the name of {other}. Rename the folder.")

    def _about_wire(self) -> Iterator[ConflictError]:
        wire = self.averaging.wire_precision
        if wire != "fp32" and self.training.precision == "fp64":
            yield ConflictError(
                f"WIRE_PRECISION={wire} does not work with PRECISION=fp64: rounding on the wire would spoil the proofs "
                "that fp64 is for. Unset one of them."
            )
        if wire != "fp32" and self.place.backend == "mpi":
            yield ConflictError(
                f"WIRE_PRECISION={wire} does not work with BACKEND=mpi: PyTorch's MPI has no 16-bit numbers. "
                "Unset one of them."
            )

    def check_ranks(self, world_size: int) -> None:
        """Refuse settings that do not fit this number of ranks, once it is known."""
        for concern in (self.training, self.averaging, self.links, self.place):
            concern.check_ranks(world_size)

    @property
    def given(self) -> frozenset[str]:
        """The settings that were given explicitly, even with their default value."""
        return frozenset(name for concern in self._concerns() for name in concern.model_fields_set)

    def values(self, *, only: Collection[str] | None = None, but: Collection[str] = ()) -> dict[str, Value]:
        """The values by setting, as JSON types, without those settings that records exclude."""
        return {
            name: value
            for concern in self._concerns()
            for name, value in concern.model_dump(mode="json").items()
            if name not in but and (only is None or name in only)
        }

    def value(self, name: str) -> Value:
        """The value of one setting, recorded or not."""
        found: Value = next(
            getattr(concern, name) for concern in self._concerns() if name in type(concern).model_fields
        )
        return found

    def changed(self, **values: object) -> Self:
        """A copy with some values replaced, which are not validated."""
        return replace(
            self,
            **{
                name: getattr(self, name).model_copy(update=own)
                for name, concern in CONCERNS.items()
                if (own := _of_concern(concern, values))
            },
        )

    def _concerns(self) -> Iterator[Concern]:
        return (getattr(self, name) for name in CONCERNS)

    @property
    def _named(self) -> dict[str, str]:
        """The values that may be user-defined, by variable."""
        training = self.training
        return {"SYNC_MODE": self.averaging.sync_mode, "MODEL": training.model, "DATASET": training.dataset}

    @property
    def own(self) -> dict[str, str]:
        """The user-defined ones among mode, model and data set, by variable: files in extensions/."""
        return own_among(self._named)


def own_among(named: Mapping[str, str]) -> dict[str, str]:
    """Those among these that are files in extensions/, by variable."""
    return {name: value for name, value in named.items() if _BUILT_IN[name].is_file(value)}


CONCERNS: dict[str, type[Concern]] = {each.name: each.type for each in fields(Settings)}  # type: ignore[misc]

FIELDS: dict[str, FieldInfo] = {
    name: field for concern in CONCERNS.values() for name, field in concern.model_fields.items()
}


def marked(*marks: Mark) -> frozenset[str]:
    """The settings with one of these marks."""
    return frozenset(name for name, each in FIELDS.items() if any(mark in marks for mark in each.metadata))


def _of_concern(concern: type[Concern], values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name in concern.model_fields}
