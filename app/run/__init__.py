"""One rank's life, and what happens once for all ranks."""
