"""Who sends what to whom, how many bytes that is, and the least time that it takes, as pure functions."""
