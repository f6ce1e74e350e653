"""The laws for modes, and the check of one mode, possibly untrusted, on real processes."""
