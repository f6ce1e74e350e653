"""The training loop and its parts, from the batch to the record of a step."""
