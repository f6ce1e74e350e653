"""One rank's life, and what is done once for all ranks."""
