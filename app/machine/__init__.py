"""What lies under the program: CPUs, folders, signals, its own source."""
