"""What a run is, known before its first step: manifest.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.machine.folders import replace_file

FILE = "manifest.json"

WAYS = ("sent", "received")  # the directions of a link

Setting = bool | int | float | str | None


@dataclass(frozen=True)
class Plan:
    """What a run will do."""

    epochs: int  # the last one may be cut short by MAX_STEPS
    steps: int
    steps_per_epoch: int
    global_batch_size: int


@dataclass(frozen=True)
class Direction:
    """One direction of a rank's link; bytes are payload."""

    asked_bits_per_second: float | None  # headers included
    expected_bytes_per_second: float | None  # payload that then passes, given the links of the ranks at the other end
    measured_bytes_per_second: float
    error: float | None  # measured relative to expected; null where nothing was requested


@dataclass(frozen=True)
class RoundTrip:
    """To the next rank and back."""

    asked_seconds: float | None
    measured_seconds: float
    error: float | None


@dataclass(frozen=True)
class Link:
    """A rank's link, as measured."""

    sent: Direction
    received: Direction
    round_trip: RoundTrip
    asked_loss: float | None

    def direction(self, way: str) -> Direction:
        """`sent` or `received`."""
        return self.sent if way == "sent" else self.received


@dataclass(frozen=True)
class Participant:
    """One rank: the machine under it, its share of the bytes, and its link."""

    rank: int
    name: str
    address: str
    threads: int
    cores: int
    quota_cpus: float | None
    fair_share_cpus: float
    memory_bytes: int
    cpu_model: str
    host_boot_id: str
    interface: str
    formula_bytes_sent_per_step: float
    link: Link | None  # null where LINK_CHECK is off, and for a single rank


@dataclass(frozen=True)
class Versions:
    """The software, on rank 0."""

    lockstep: str
    python: str
    torch: str
    numpy: str
    kernel: str


@dataclass(frozen=True)
class Image:
    """The image that the program runs in, on rank 0."""

    git_revision: str | None
    source_sha256: str
    system: str | None


@dataclass(frozen=True)
class ModeCost:
    """What a mode would need to average this run's gradients on these links."""

    sync_seconds_at_least: float
    hides: bool  # whether it can do so behind backward


@dataclass(frozen=True)
class Manifest:
    """A run: its settings, its ranks, and the software and hardware under it."""

    run: str
    started_at: str
    world_size: int
    settings: dict[str, Setting]  # by name in small letters
    plan: Plan
    dataset: str
    parameters: int
    gradient_bytes: int
    sync_seconds_at_least: float | None  # null where the links were not measured
    ranks: list[Participant]
    warnings: list[str]
    versions: Versions
    image: Image
    given: dict[str, Setting] | None = None  # settings of rank 0 that were not left to their defaults
    modes: dict[str, ModeCost] | None = None  # by name, all that synchronise; null where the links were not measured

    @classmethod
    def read(cls, run_folder: Path) -> "Manifest":
        """A run's manifest; raises ValueError if it is not whole, and OSError if there is none."""
        try:
            return _READER.validate_json((run_folder / FILE).read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{f'{place}: ' if place else ''}{first['msg']}") from None

    def write(self, run_folder: Path) -> None:
        """Write it into the run's folder."""
        replace_file(run_folder / FILE, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")


_READER = TypeAdapter(Manifest)
