"""The environment of the program: CPUs, folders, signals, its own source."""
