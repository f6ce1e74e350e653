"""What a run could be asked next without another run: the command that predicts it with more ranks, in other modes."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from app.analysis.measures import STEP
from app.analysis.run import Run
from app.analysis.words import duration
from app.modes import MODES
from app.settings import environment
from app.settings.concern import Mark
from app.settings.place import MOST_WORKERS
from app.settings.settings import FIELDS, marked
from app.settings.training import DEFAULT_DATASETS

OTHERS = ("ring_all_reduce", "ddp", "flat_all_reduce", "halving_doubling")
MOST_OTHERS = 2
MORE = (2, 4)  # times as many ranks


@dataclass(frozen=True)
class WhatIf:
    """What it would answer, and the command."""

    sentence: str
    command: str


def what_if(run: Run) -> WhatIf | None:
    """None where nothing can be predicted: no step was measured, or a mode or model is the user's own."""
    settings, step = run.manifest.settings, run.summary.run[STEP.mean]
    given, mode, ranks = run.manifest.given, run.mode, run.manifest.world_size
    if step is None or given is None or mode not in MODES or settings["model"] not in DEFAULT_DATASETS:
        return None
    of_a_step = marked(Mark.CHANGES_STEP_TIME)
    words = {name.upper(): f"{given[name]}" for name in FIELDS if name in of_a_step and given.get(name) is not None}
    if not _accepted(words, mode, ranks):
        return None
    numbers = [ranks, *(each for each in (times * ranks for times in MORE) if _accepted(words, mode, each))]
    fitting = [name for name in OTHERS if all(_accepted(words, name, each) for each in numbers)]
    others = [name for name in fitting if name != mode][:MOST_OTHERS]
    asked = [
        *([f"on {' and '.join(map(str, numbers[1:]))} ranks"] if numbers[1:] else []),
        *([f"with {' and '.join(others)}"] if others else []),
    ]
    if not asked:
        return None
    lists = {"WORKERS": ",".join(f"{each - 1}" for each in numbers), "SYNC_MODE": ",".join([mode, *others])} | words
    return WhatIf(
        f"A step took {duration(step)} on {ranks} rank{'s' if ranks > 1 else ''}, on average. "
        f"What would it take {', or '.join(asked)}?",
        shlex.join(["scripts/predict", *(f"{name}={value}" for name, value in lists.items())]),
    )


def _accepted(given: Mapping[str, str], mode: str, ranks: int) -> bool:
    """Whether these settings are allowed together, on so many ranks that Compose can start."""
    together = {**given, "SYNC_MODE": mode, "WORLD_SIZE": f"{ranks}"}
    return ranks <= MOST_WORKERS + 1 and not environment.problems(together)
