"""What a run is, known before its first step: manifest.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.machine.folders import replace_file
from app.machine.interfaces import Carried
from app.records.bounds import MOST_NUMBER, Count, Number, NumberOrNull, Positive, RunName, SecondsOrNull, Speed, Text

FILE = "manifest.json"
MOST_BYTES = 2**26  # of the file; a hundred ranks take a thousandth of this
ALWAYS_SET = ("sync_mode", "model", "dataset")  # what every reader of a run asks for

WAYS = ("sent", "received")  # the directions of a link

Setting = bool | int | float | Text | None


@dataclass(frozen=True)
class TrainingPlan:
    """What a run will do."""

    epochs: Positive  # the last one may be cut short by MAX_STEPS
    steps: Count
    steps_per_epoch: Positive
    global_batch_size: Positive


@dataclass(frozen=True)
class Direction:
    """One direction of a rank's link; bytes are payload."""

    asked_bits_per_second: NumberOrNull  # headers included
    expected_bytes_per_second: NumberOrNull  # payload that then passes, given the links of the ranks at the other end
    measured_bytes_per_second: Speed
    error: SecondsOrNull  # measured relative to expected; null where nothing was requested


@dataclass(frozen=True)
class RoundTrip:
    """To the next rank and back."""

    asked_seconds: NumberOrNull
    measured_seconds: Number
    error: SecondsOrNull


@dataclass(frozen=True)
class Link:
    """A rank's link, as measured."""

    sent: Direction
    received: Direction
    round_trip: RoundTrip
    asked_loss: NumberOrNull

    def direction(self, way: str) -> Direction:
        """`sent` or `received`."""
        return self.sent if way == "sent" else self.received


@dataclass(frozen=True)
class Participant:
    """One rank: the machine under it, its share of the bytes, and its link."""

    rank: Count
    name: Text
    address: Text
    threads: Positive
    cores: Positive
    quota_cpus: NumberOrNull
    fair_share_cpus: Number
    memory_bytes: Count
    cpu_model: Text
    host_boot_id: Text
    interface: Text
    formula_bytes_sent_per_step: Number
    link: Link | None  # null where LINK_CHECK is off, and for a single rank
    kernel: Text | None = None  # its release; null, as the next two, in older records
    congestion_control: Text | None = None  # of TCP
    interfaces: list[Carried] | None = None  # those that lead out of the machine, before the first step


@dataclass(frozen=True)
class Versions:
    """The software, on rank 0."""

    lockstep: Text
    python: Text
    torch: Text
    numpy: Text
    kernel: Text
    blas: Text | None = None  # the libraries that multiply matrices; null in older records


@dataclass(frozen=True)
class Image:
    """The image that the program runs in, on rank 0."""

    git_revision: Text | None
    source_sha256: Text
    system: Text | None
    packages_sha256: Text | None = None  # of the list of all packages; null, as the next, outside an image or if older
    package_versions: dict[Text, Text] | None = None  # of those that decide numbers and times


@dataclass(frozen=True)
class ModeCost:
    """What a mode would need to average this run's gradients on these links."""

    sync_seconds_at_least: Number
    hides: bool  # whether it can do so behind backward


@dataclass(frozen=True)
class Manifest:
    """A run: its settings, its ranks, and the software and hardware under it."""

    run: RunName
    started_at: Text
    world_size: Positive
    settings: dict[Text, Setting]  # by name in small letters
    plan: TrainingPlan
    dataset: Text
    parameters: Count
    gradient_bytes: Count
    sync_seconds_at_least: NumberOrNull  # null where the links were not measured
    ranks: list[Participant]
    warnings: list[Text]
    versions: Versions
    image: Image
    given: dict[Text, Setting] | None = None  # settings of rank 0 that were not left to their defaults
    modes: dict[Text, ModeCost] | None = None  # by name, all that synchronise; null where the links were not measured
    layout_cpu_seconds: dict[Text, Number] | None = None  # in older records: of a small step, by memory layout
    dataset_sha256: Text | None = None  # of its arrays, as they were prepared; null in older records

    @classmethod
    def read(cls, run_folder: Path) -> "Manifest":
        """A run's manifest; raises ValueError if it is not whole, and OSError if there is none."""
        if (size := (run_folder / FILE).stat().st_size) > MOST_BYTES:
            raise ValueError(f"it has {size} bytes, and no manifest has more than {MOST_BYTES}")
        try:
            manifest = _READER.validate_json((run_folder / FILE).read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{f'{place}: ' if place else ''}{first['msg']}") from None
        if [each.rank for each in manifest.ranks] != list(range(len(manifest.ranks))):
            raise ValueError("ranks: they are not numbered from 0")
        if len(manifest.ranks) != manifest.world_size:
            raise ValueError(f"ranks: {len(manifest.ranks)} are listed, and world_size is {manifest.world_size}")
        if missing := [name for name in ALWAYS_SET if not isinstance(manifest.settings.get(name), str)]:
            raise ValueError(f"settings: {', '.join(missing)} missing")
        for name, value in (manifest.settings | (manifest.given or {})).items():
            if isinstance(value, int | float) and not abs(value) <= MOST_NUMBER:
                raise ValueError(f"settings: {name} is a number that no setting can be")
        return manifest

    def write(self, run_folder: Path) -> None:
        replace_file(run_folder / FILE, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")


_READER = TypeAdapter(Manifest)
