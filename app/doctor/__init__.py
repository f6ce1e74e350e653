"""A check-up of the cluster: what the ranks are, what the wire between them does, and what to do about it."""
