"""The program's surroundings: CPUs, folders, signals, its own sources."""
