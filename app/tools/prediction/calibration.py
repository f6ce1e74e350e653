"""What was calibrated: the costs of computing and of passing messages, where they come from, and how well they fit."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean

from pydantic import TypeAdapter, ValidationError

from app.analysis.statistics import student
from app.errors import SettingError
from app.machine import folders
from app.machine.say import shown
from app.settings import environment
from app.settings.settings import Settings
from app.settings.training import ModelName
from app.tools.prediction.exchange import Passing
from app.tools.prediction.processor import MOST_LOST
from app.tools.prediction.setup import CellSetup

FILE = "model.json"
FOLDER = "calibrations"  # in results/
ENOUGH = 4  # runs of a model that tell how far predictions of it are off
TAIL = 0.1  # of predictions on either side of an 80 % interval


@dataclass(frozen=True)
class CpuLine:
    """CPU seconds by the number of a rank's images."""

    fixed: float
    per_image: float

    def at(self, images: float) -> float:
        return self.fixed + self.per_image * images


@dataclass(frozen=True)
class Computing:
    """A rank's own step with one model."""

    before: CpuLine  # data and forward
    backward: CpuLine
    after: CpuLine  # the update
    least_images: float  # of a rank's step, in the runs of the calibration
    most_images: float
    own_spread: list[float]  # CPU time of a rank's step by the mean of all ranks' in that step
    common_spread: list[float]  # that mean by the mean of the run
    ready: list[float]  # the part of backward after which each gradient is there, the last parameter's first
    renewal: float = 0.0  # CPU seconds lost each time a quota is renewed after others have used the core: cold caches
    alone: bool = False  # whether it was measured on one rank only: how ranks differ is another model's

    def work(self, setup: CellSetup) -> tuple[float, float, float]:
        """CPU seconds of a rank's step: data and forward, backward, update."""
        kept = kept_of(self.renewal, setup)
        before, backward, after = (line.at(setup.images) / kept for line in (self.before, self.backward, self.after))
        return before, backward, after

    @property
    def in_words(self) -> str:
        fixed, each = (
            sum(getattr(line, part) for line in (self.before, self.backward, self.after))
            for part in ("fixed", "per_image")
        )
        return f"a step takes {fixed:.3g} CPU seconds plus {each:.3g} per image"


def kept_of(renewal: float, setup: CellSetup) -> float:
    """The part of a rank's CPU time that is left for its work where each renewal of its quota costs so much."""
    return 1 - min(MOST_LOST, renewal * setup.renewals)


@dataclass(frozen=True)
class Fit:
    """A run of the calibration: mean seconds by phase, and of a step, simulated with CPU times from the other runs."""

    run: str
    settings: dict[str, str]  # that it was given
    ranks: int
    measured: dict[str, float]
    foreseen: float

    @cached_property
    def asked(self) -> Settings:
        return environment.of(self.settings)


@dataclass(frozen=True)
class Check:
    """Predictions that were held against runs: how far they were from them, and what they were."""

    name: str
    made_at: str
    predictions_sha256: str
    cells: int
    median_error: float
    p90_error: float
    held: float  # share of the cells whose interval holds what was measured


@dataclass(frozen=True)
class Provenance:
    """Where and when it was made."""

    made_at: str
    lockstep: str
    source_sha256: str
    kernel: str
    cpu_model: str
    cores: int


@dataclass(frozen=True)
class Calibration:
    """All of it."""

    name: str
    provenance: Provenance
    computing: dict[str, Computing]
    passing: dict[str, Passing]  # by family
    between: float  # CPU seconds from the end of a step to the begin of the next one
    hidden_byte: float  # seconds by which each takes longer while backward has the CPU
    coding: dict[str, float]  # CPU seconds of a compressor for each byte of gradients
    lost: float = 0.0  # CPU seconds of each allowance of a quota that exchanges do not get
    fits: list[Fit] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        folders.replace_file(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    def covered(self, figure: Callable[[Fit], float | None]) -> tuple[float, float]:
        """The least and the most of its runs. A single rank has no say in it: it passes nothing."""
        found = [value for each in self.fits if each.ranks > 1 and (value := figure(each))] or [0.0]
        return min(found), max(found)

    @property
    def rates(self) -> tuple[float, float]:
        """Of links, in bits per second."""
        return self.covered(lambda run: run.asked.links.of(0).bits_per_second)

    def margin(self, model: ModelName) -> float:
        """By which factor four of five measured steps are at most longer or shorter than predicted ones.

        As those runs were that have the same model, or all, where these are too few to tell.
        """
        several = [each for each in self.fits if each.ranks > 1]
        of_model = [each for each in several if each.asked.training.model == model]
        runs = of_model if len(of_model) >= ENOUGH else several
        if len(runs) < 2:
            return math.inf
        return math.exp(student(TAIL, len(runs) - 1) * math.sqrt(1 + 1 / len(runs)) * _spread(runs))

    @property
    def origin(self) -> str:
        made = self.provenance
        return f"calibration {self.name} of {made.made_at}, on {made.cpu_model} with {made.cores} cores"

    @property
    def error(self) -> float:
        """How far simulated steps are from those of all its runs: the root of the mean square."""
        return _spread(self.fits)


def _spread(fits: Sequence[Fit]) -> float:
    """A run that the costs come from would say too little about one that they do not."""
    return math.sqrt(mean(math.log(each.foreseen / each.measured["step"]) ** 2 for each in fits))


_READER = TypeAdapter(Calibration)


def parse(text: bytes) -> Calibration:
    """Raises a ValidationError if the text is not a calibration."""
    return _READER.validate_json(text)


def read(name: str | None = None) -> Calibration:
    """Without a name, the newest."""
    files = (folders.RESULTS / FOLDER).glob(f"*/{FILE}")
    known = {path.parent.name: path for path in sorted(files, key=lambda path: -path.stat().st_mtime)}
    if not known:
        raise SettingError("no calibration found. Run scripts/calibrate first (about eight minutes).", "not-calibrated")
    if name is not None and name not in known:
        raise SettingError(f"unknown calibration '{shown(name)}'. Choose from: {', '.join(known)}.", "unknown-name")
    path = known[name or next(iter(known))]
    try:
        return parse(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingError(
            f"cannot parse {path} in this version ({'.'.join(map(str, first['loc']))}: {first['msg']}). "
            "Run scripts/calibrate again.",
            "damaged-file",
        ) from None
