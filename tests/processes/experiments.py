"""Experiments on real processes: what scripts/experiment does with containers, done without."""

import subprocess
import time
from pathlib import Path

from app.records import series
from app.records.series import EndedRun, PlannedRun
from tests.processes import group, program
from tests.processes.program import PATIENCE_SECONDS, Value


def put_grid(place: Path, name: str, text: str) -> None:
    """A grid file of this name, in a working directory of experiments."""
    (place / "experiments").mkdir(exist_ok=True)
    (place / "experiments" / f"{name}.toml").write_text(text)


def step(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One `python -m app experiment`."""
    process = program.Forked(["experiment", *arguments], place, program.environment_with({}), True)
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    return subprocess.CompletedProcess(arguments, process.returncode or 0, output, errors or "")


def next_series(place: Path, name: str, *options: str) -> list[PlannedRun]:
    """The next runs, which share their containers; none when all are through."""
    told = step(place, "next", name, *options)
    assert told.returncode == 0, told.stderr
    planned = series.planned(folder_of(place, name, *options)) if told.stdout else []
    for each in planned:
        assert dict(line.split("=", 1) for line in told.stdout.splitlines()).items() <= each.settings.items()
    return planned


def next_trial(place: Path, name: str, *options: str) -> dict[str, str]:
    """The settings of the first of them."""
    return next((each.settings for each in next_series(place, name, *options)), {})


def folder_of(place: Path, name: str, *options: str) -> Path:
    """Where the runs lie."""
    return place / "results/experiments" / name / ("quick" if "--quick" in options else "full")


def run_trial(place: Path, name: str, settings: dict[str, str], variant: str = "full") -> None:
    """One run, into the experiment's folder."""
    folder = place / "cluster" / f"{name}-{variant}"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        (folder / "results").symlink_to(Path("../../results/experiments", name, variant))
        (folder / "extensions").symlink_to(Path("../../extensions"))
    own: dict[str, Value] = {key: value for key, value in settings.items() if key not in ("WORKERS", "WORLD_SIZE")}
    group.run(folder, int(settings["WORLD_SIZE"]), **own)


def carry_out(place: Path, name: str, text: str, *, quick: bool = False) -> Path:
    """A whole experiment that has to succeed; the folder of its page."""
    options, variant = (["--quick"], "quick") if quick else ([], "full")
    (place / "results").mkdir(exist_ok=True)
    put_grid(place, name, text)
    planned = step(place, "plan", name, *options)
    assert planned.returncode == 0, planned.stderr
    ended: list[str] = []
    while together := next_series(place, name, *options, *ended):
        for each in together:
            began = time.monotonic()
            run_trial(place, name, each.settings, variant)
            series.end(folder_of(place, name, *options), EndedRun(each.run, 0, time.monotonic() - began))
        ended = ["--ended", "0", "1"]
    made = step(place, "page", name, *options)
    assert made.returncode == 0, made.stderr
    return place / "results" / "experiments" / name
