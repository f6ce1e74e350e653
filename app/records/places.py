"""The files in a run's folder that track its progress and are not records. Reading them needs no torch."""

from contextlib import suppress
from pathlib import Path

from app.errors import DamagedError
from app.machine.durable import unseal

ATTEMPTS = "attempts.jsonl"
STATES = "checkpoint"  # the folder of all checkpoints
STATE = "step-"  # prefix of each checkpoint's folder there, followed by the number of steps
COMMIT = "commit.json"  # in each checkpoint's folder, once every rank's part is on disk
FINISHED = "finished"  # an empty file, which excludes the run from the search for unfinished runs


def is_unfinished(run_folder: Path) -> bool:
    """Whether the run has saved a state but has not finished."""
    folder = run_folder / STATES
    return folder.is_dir() and not (folder / FINISHED).exists()


def newest_commit(run_folder: Path) -> int | None:
    """The newest step with an intact commit. The parts are not checked."""
    steps = []
    for path in (run_folder / STATES).glob(f"{STATE}*/{COMMIT}"):
        with suppress(OSError, DamagedError, LookupError, TypeError, ValueError):
            steps.append(int(unseal(path)["label"]["step"]))
    return max(steps, default=None)
