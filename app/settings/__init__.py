"""Every setting with its meaning and its rules, and the only reader of the environment."""
