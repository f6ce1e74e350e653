"""Where a run notes how far it has come: the names of those files in its folder that are no records."""

ATTEMPTS = "attempts.jsonl"
STATES = "checkpoint"  # a folder
STATE = "step-"  # a folder there, with the number of steps behind it
COMMIT = "commit.json"  # in each of those, once every rank's part is safe
FINISHED = "finished"  # an empty file: whoever looks for unfinished runs passes this one by
