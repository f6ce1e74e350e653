"""Starts the ranks through mpirun, which reaches the workers by SSH with a key that is made for one start."""
