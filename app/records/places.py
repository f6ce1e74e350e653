"""Names of the files in a run's folder that track its progress and are not records."""

ATTEMPTS = "attempts.jsonl"
STATES = "checkpoint"  # a folder
STATE = "step-"  # prefix of a folder there, followed by the number of steps
COMMIT = "commit.json"  # in each of these, once every rank's part is on disk
FINISHED = "finished"  # an empty file, which excludes the run from the search for unfinished runs
