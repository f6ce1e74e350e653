"""One training step and all that it is made of, from the batch to its record."""
