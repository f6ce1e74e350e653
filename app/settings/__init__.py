"""Every setting: what it means, what it may be, and where it is read from the environment, once."""
