"""manifest.json: the description of a run, written before its first step."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.machine.folders import replace_file
from app.machine.interfaces import Carried
from app.records.bounds import MOST_NUMBER, Count, Number, NumberOrNull, Positive, RunName, SecondsOrNull, Speed, Text

FILE = "manifest.json"
MOST_BYTES = 2**26  # of the file; with 100 ranks it is a thousandth of this
ALWAYS_SET = ("sync_mode", "model", "dataset")  # settings that every reader of a run requires

WAYS = ("sent", "received")  # the directions of a link

Setting = bool | int | float | Text | None


@dataclass(frozen=True)
class TrainingPlan:
    """The planned number of epochs, steps and samples."""

    epochs: Positive  # the last one may be cut short by MAX_STEPS
    steps: Count
    steps_per_epoch: Positive
    global_batch_size: Positive


@dataclass(frozen=True)
class Direction:
    """One direction of a rank's link; bytes are payload."""

    asked_bits_per_second: NumberOrNull  # headers included
    expected_bytes_per_second: NumberOrNull  # payload, given the links of the ranks at the other end
    measured_bytes_per_second: Speed  # payload that passed
    error: SecondsOrNull  # measured divided by expected, minus 1; null without a request


@dataclass(frozen=True)
class RoundTrip:
    """The round trip to the next rank, as requested and as measured."""

    asked_seconds: NumberOrNull
    measured_seconds: Number
    error: SecondsOrNull  # measured divided by requested, minus 1; null without a request


@dataclass(frozen=True)
class Link:
    """A rank's link, measured before the run."""

    sent: Direction
    received: Direction
    round_trip: RoundTrip  # to the next rank and back
    asked_loss: NumberOrNull  # share of lost packets, in each direction; null without a request

    def direction(self, way: str) -> Direction:
        return self.sent if way == "sent" else self.received


@dataclass(frozen=True)
class Participant:
    """One rank: its machine, its share of the bytes and its link."""

    rank: Count
    name: Text  # of its container or host
    address: Text
    threads: Positive  # for computation
    cores: Positive  # that it may be scheduled on
    quota_cpus: NumberOrNull  # CPU limit of its cgroup; null without a limit
    fair_share_cpus: Number  # of the CPUs, given the other ranks on its host
    memory_bytes: Count  # of its host
    cpu_model: Text
    host_boot_id: Text  # the same for all containers of one host
    interface: Text  # that has the address
    formula_bytes_sent_per_step: Number  # payload to average gradients, by the mode's formula
    link: Link | None  # null if LINK_CHECK is off, and for a single rank
    kernel: Text | None = None  # its release; null in older records, like the next two
    congestion_control: Text | None = None  # of TCP; null if not reported
    interfaces: list[Carried] | None = None  # external interfaces, before the first step; null in older records


@dataclass(frozen=True)
class Versions:
    """Versions of the software, on rank 0."""

    lockstep: Text
    python: Text
    torch: Text
    numpy: Text
    kernel: Text
    blas: Text | None = None  # the BLAS libraries; null in older records


@dataclass(frozen=True)
class Image:
    """The image that the program runs in, on rank 0."""

    git_revision: Text | None  # marked if it had uncommitted edits; null if unknown
    source_sha256: Text  # of the program's source files with their names
    system: Text | None  # the operating system; null if unknown
    packages_sha256: Text | None = None  # of the list of packages; null in older records and outside an image
    package_versions: dict[Text, Text] | None = None  # of packages that affect numbers or times; null likewise


@dataclass(frozen=True)
class ModeCost:
    """The cost of a mode for this run's gradients on these links."""

    sync_seconds_at_least: Number  # of its messages on the measured links
    hides: bool  # whether it can overlap with backward


@dataclass(frozen=True)
class PlannedMessage:
    """A message that a mode's schedule sends to average gradients."""

    round: Count
    sender: Count
    receiver: Count
    bytes: Count


@dataclass(frozen=True)
class Manifest:
    """A run: its settings, its ranks, and the software and hardware under it."""

    run: RunName
    started_at: Text  # in UTC
    world_size: Positive
    settings: dict[Text, Setting]  # by name in lower case
    plan: TrainingPlan
    dataset: Text  # its description
    parameters: Count  # scalars of the model
    gradient_bytes: Count  # of a step, as sent: WIRE_PRECISION=bf16 and fp16 halve them
    sync_seconds_at_least: NumberOrNull  # of a step's messages on the measured links; null if they were not measured
    ranks: list[Participant]
    warnings: list[Text]  # about the figures, known at the start
    versions: Versions
    image: Image
    given: dict[Text, Setting] | None = None  # settings that rank 0 was given explicitly
    modes: dict[Text, ModeCost] | None = None  # all that synchronise, by name; null if the links were not measured
    layout_cpu_seconds: dict[Text, Number] | None = None  # in older records only: of a small step, by memory layout
    dataset_sha256: Text | None = None  # of its prepared arrays; null in older records
    messages: list[PlannedMessage] | None = None  # of a step, by round; null without a schedule, or if compressed

    @classmethod
    def read(cls, run_folder: Path) -> "Manifest":
        """Read a run's manifest; raises ValueError if it is invalid, OSError if it is missing."""
        if (size := (run_folder / FILE).stat().st_size) > MOST_BYTES:
            raise ValueError(f"it has {size} bytes, more than the limit of {MOST_BYTES}")
        try:
            manifest = _READER.validate_json((run_folder / FILE).read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{f'{place}: ' if place else ''}{first['msg']}") from None
        if [each.rank for each in manifest.ranks] != list(range(len(manifest.ranks))):
            raise ValueError("ranks: not numbered from 0")
        if len(manifest.ranks) != manifest.world_size:
            raise ValueError(f"ranks: {len(manifest.ranks)} are listed, but world_size is {manifest.world_size}")
        if missing := [name for name in ALWAYS_SET if not isinstance(manifest.settings.get(name), str)]:
            raise ValueError(f"settings: {', '.join(missing)} missing")
        for name, value in (manifest.settings | (manifest.given or {})).items():
            if isinstance(value, int | float) and not abs(value) <= MOST_NUMBER:
                raise ValueError(f"settings: {name} is out of range")
        return manifest

    def write(self, run_folder: Path) -> None:
        replace_file(run_folder / FILE, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")


_READER = TypeAdapter(Manifest)
