"""A cell of a grid: the settings of a run, and what is wrong with them, told before any run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from app.datasets import SOURCES
from app.datasets.prepared import check_fit
from app.errors import SettingError
from app.machine.cpus import look
from app.settings import fields as settings

# An experiment gives these itself, or the machine that it runs on does.
NOT_IN_A_GRID = frozenset({"RUN_NAME", "RANK", "WORLD_SIZE", "MASTER_ADDR", "NETWORK_PREFIX"})

MOST_WORKERS = 100
MEMORY = re.compile(r"[1-9][0-9]*[kmgKMG][bB]?")


@dataclass(frozen=True)
class Cell:
    """One point of the grid: the settings of a run."""

    name: str
    settings: dict[str, str]
    varied: dict[str, str]  # those of its settings that other cells have otherwise
    may_fail: str | None = None  # why a failure is no failure of the experiment

    @property
    def slug(self) -> str:
        """The name as part of a folder's name."""
        return re.sub(r"[^A-Za-z0-9.]+", "_", self.name).strip("_.") or "cell"

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return int(self.settings.get("WORKERS", "3")) + 1


def world_size(given: Mapping[str, str]) -> int | None:
    """Number of ranks; None where WORKERS is no number."""
    workers = given.get("WORKERS", "3")
    return int(workers) + 1 if re.fullmatch("[0-9]+", workers) else None


def known() -> list[str]:
    """The settings that a grid can have."""
    return [
        name
        for name in (*map(str.upper, settings.Settings.model_fields), "WORKERS", "RANK_MEMORY")
        if name not in NOT_IN_A_GRID
    ]


def problems(given: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with a cell's settings, by setting; what concerns several is put down to one that is given."""
    found = {}
    workers = given.get("WORKERS", "3")
    if not re.fullmatch(r"[0-9]{1,3}", workers) or int(workers) > MOST_WORKERS:
        found["WORKERS"] = f"WORKERS={workers}: not allowed. Allowed: a whole number, 0 to {MOST_WORKERS}."
        workers = "3"
    memory = given.get("RANK_MEMORY")
    if memory is not None and not MEMORY.fullmatch(memory):
        found["RANK_MEMORY"] = f"RANK_MEMORY={memory}: not allowed. Allowed: a whole number with k, m or g, such as 2g."
    own = {name: value for name, value in given.items() if name not in ("WORKERS", "RANK_MEMORY")}
    found |= settings.problems(own | {"WORLD_SIZE": str(int(workers) + 1)})
    cpus = given.get("RANK_CPUS")
    if not found and cpus is not None and float(cpus) > (most := len(look().cores)):
        found["RANK_CPUS"] = f"RANK_CPUS={cpus}: not allowed. Allowed: at most {most}, the CPUs of this machine."
    if not found:
        read_settings = settings.of(own)
        try:
            check_fit(read_settings.model, read_settings.dataset_name)
        except SettingError as error:
            found["DATASET" if "DATASET" in given else "MODEL"] = str(error)
        source = SOURCES[read_settings.dataset_name]
        for name, asked, there in (
            ("TRAIN_SAMPLES", read_settings.train_samples, source.train_samples),
            ("TEST_SAMPLES", read_settings.test_samples, source.test_samples),
        ):
            if asked is not None and asked > there:
                found[name] = f"{name}={asked}: not allowed. Allowed with this data set: 1 to {there}."
    return found
