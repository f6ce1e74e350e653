"""The cells that are to be predicted: those of an experiment's grid file, or every combination of lists of values."""

import itertools
import re
from collections.abc import Sequence

from app.errors import SettingError
from app.machine.say import shown
from app.settings import environment
from app.settings.explanations import hint
from app.settings.settings import Settings
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.cells import Cell, known, problems
from app.tools.prediction.calibration import Calibration
from app.tools.prediction.forecast import MOST_RANKS, Forecast
from app.tools.prediction.setup import setup_of

MOST_CELLS = 1000
MOST_STARTED = 101  # that Compose starts, so that WORKERS of a run can have
WITH_COMMAS = "LINK_RATE_BY_RANK"  # several ranks' rates are one value


def asked(words: Sequence[str]) -> tuple[str, list[Cell]]:
    """A name for all, and the cells: of a grid file, of lists of values, or both, where lists override the file."""
    lists = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    for name in lists:
        if name not in known():
            raise SettingError(f"{shown(name)} cannot be set in a prediction. {hint(name, known())}", "unknown-setting")
    values = {name: [value] if name == WITH_COMMAS else value.split(",") for name, value in lists.items()}
    if len(names) > 1:
        message = f"{len(names)} grids given. Give one, and lists of values such as WORKERS=1,3,7."
        raise SettingError(message, "conflicting-arguments")
    if not names:
        return "settings", _combined(values)
    if several := [name for name, each in values.items() if len(each) > 1]:
        message = f"{several[0]} has several values. Give one value with a grid file."
        raise SettingError(message, "conflicting-arguments")
    read = grid.read(names[0], given=lists)
    return read.name, read.cells


def _combined(values: dict[str, list[str]]) -> list[Cell]:
    points = list(itertools.islice(itertools.product(*values.values()), MOST_CELLS + 1))
    if len(points) > MOST_CELLS:
        raise SettingError(f"these lists have more than {MOST_CELLS:,} combinations. Shorten them.", "invalid-argument")
    varied = [name for name, each in values.items() if len(each) > 1]
    found = []
    for point in points:
        settings = dict(zip(values, point, strict=True))
        if wrong := problems({**settings, "WORKERS": str(min(_ranks(settings), MOST_STARTED) - 1)}):
            raise SettingError(next(iter(wrong.values())))
        named = [f"{settings[name]}" if name == "SYNC_MODE" else f"{name}={settings[name]}" for name in varied]
        found.append(Cell(", ".join(named) or "all", settings))
    return found


def _ranks(settings: dict[str, str]) -> int:
    workers = settings.get("WORKERS", str(environment.of({}).place.workers))
    if not re.fullmatch("[0-9]{1,4}", workers) or int(workers) >= MOST_RANKS:
        raise SettingError(f"invalid WORKERS '{shown(workers)}'. Give a whole number, 0 to {MOST_RANKS - 1}.")
    return int(workers) + 1


def settings_of(cell: Cell) -> Settings:
    """Without WORKERS: more ranks can be predicted than Compose can start."""
    return environment.of({name: value for name, value in cell.settings.items() if name != "WORKERS"})


def forecasts(asked: Sequence[Cell], calibration: Calibration, *, one_host: bool | None) -> list[Forecast]:
    """All of them, or a refusal of the first that the simulation has no costs for."""
    found = []
    for cell in asked:
        settings = settings_of(cell)
        model, compression = settings.training.model, settings.averaging.compression
        if model not in calibration.computing:
            raise SettingError(
                f"{cell.name}: MODEL={model} is not in calibration '{calibration.name}' "
                f"({', '.join(calibration.computing)}). scripts/predict MODEL={model} adds it.",
                "not-calibrated",
            )
        if compression not in (coded := ["none", *calibration.coding]):
            message = f"{cell.name}: COMPRESSION={compression} is not calibrated. Choose from: {', '.join(coded)}."
            raise SettingError(message, "not-calibrated")
        setup = setup_of(settings, _ranks(cell.settings), cores=calibration.provenance.cores, one_host=one_host)
        found.append(Forecast(cell, setup, calibration))
    return found
