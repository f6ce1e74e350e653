"""One training step, and all it is made of, from the batch to its record."""
