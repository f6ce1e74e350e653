"""summary.json: the results of a run, written at its end."""

import json
from pathlib import Path

FILE = "summary.json"


def is_complete(run_folder: Path) -> bool:
    """Whether a run's summary is readable and marks the run as complete."""
    try:
        return json.loads((run_folder / FILE).read_text())["complete"] is True
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
