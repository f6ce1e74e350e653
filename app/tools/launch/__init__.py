"""Starts the ranks with mpirun, which reaches the workers over SSH with a key made for a single start."""
