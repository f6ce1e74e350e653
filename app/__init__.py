"""Lockstep: the program inside the image."""

__version__ = "0.1.0"
