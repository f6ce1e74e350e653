"""The folders of the working directory that runs read and write."""

import json
from pathlib import Path

RESULTS = Path("results")  # a folder per run; `latest` points at the newest
PREPARED = Path("prepared")  # what `prepare` makes and the ranks only read
RUN_FILE = PREPARED / "run.json"  # how `prepare` hands the run's name to the ranks


def hand_over(run: str) -> None:
    """Tell the ranks which run they are."""
    RUN_FILE.write_text(json.dumps({"run": run}))


def handed_over() -> str:
    """The run's name, as `prepare` gave it."""
    return str(json.loads(RUN_FILE.read_text())["run"])
