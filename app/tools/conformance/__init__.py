"""The laws that every mode is held to, and the check of one mode, perhaps a stranger's, on real processes."""
