"""Names of the files in a run's folder that track its progress and are not records."""

ATTEMPTS = "attempts.jsonl"
STATES = "checkpoint"  # the folder of all checkpoints
STATE = "step-"  # prefix of each checkpoint's folder there, followed by the number of steps
COMMIT = "commit.json"  # in each checkpoint's folder, once every rank's part is on disk
FINISHED = "finished"  # an empty file, which excludes the run from the search for unfinished runs
