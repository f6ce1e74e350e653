"""User-defined modes, models and data sets: lists, checks without executing, and loads the files in extensions/."""
