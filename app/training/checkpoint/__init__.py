"""A run's state on disk: saved whole by every rank, and restored exactly, or not at all."""
