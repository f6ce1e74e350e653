"""A run's checkpoints: saved by every rank, and restored bit for bit or not at all."""
