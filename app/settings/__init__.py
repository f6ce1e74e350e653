"""Every setting: what it means, what it may be, and the one place that reads the environment."""
