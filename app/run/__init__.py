"""A run: preparing, training, retrying and resuming it."""
