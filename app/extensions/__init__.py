"""User-defined modes, models and data sets: finding, checking and loading the files in extensions/."""
