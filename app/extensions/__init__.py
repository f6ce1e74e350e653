"""A user's own modes, models and data sets: files in extensions/, found, read without running them, and loaded."""
