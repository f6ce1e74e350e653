"""Names of runs by what they differ in, where a run's own name is only a time stamp."""

import re
from collections import Counter
from collections.abc import Sequence

from app.analysis.run import Run
from app.analysis.units import plain
from app.records.manifest import Setting
from app.settings.concern import Mark
from app.settings.settings import marked

TIME_STAMP = re.compile(r"\d{8}-\d{6}(-\d+)?")


def differing_settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The settings in which runs differ, except for their mode, each with its value in every run."""
    own = {"sync_mode", *marked(Mark.OF_ONE_START, Mark.CHANGES_NO_FIGURE)} - {"world_size"}
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run.manifest.settings if name not in own):
        values = [_written(run.manifest.settings.get(name)) for run in runs]
        if len(set(values)) > 1:
            found[name] = values
    return found


def _written(value: Setting) -> str:
    return "unset" if value is None else plain(value)


def call_by_difference(runs: Sequence[Run]) -> None:
    """Replace time stamps. A name that the user gave stays."""
    settings = differing_settings(runs)
    averaging = [run.averaging for run in runs]
    labels = []
    for place, run in enumerate(runs):
        parts = [averaging[place]] if len(set(averaging)) > 1 or not settings else []
        parts += [f"{run.summary.world_size} ranks"] if "world_size" in settings else []
        parts += [
            f"{name.upper()}={values[place]}"
            for name, values in settings.items()
            if name not in ("world_size", "compression", "sync_every")
        ]
        labels.append(", ".join(parts))
    times, seen = Counter(labels), Counter[str]()
    for run, label in zip(runs, labels, strict=True):
        if TIME_STAMP.fullmatch(run.manifest.run):
            seen[label] += 1
            run.called = f"{label} ({seen[label]})" if times[label] > 1 else label
