"""A check-up of the cluster: what each rank is, what the wire does, what to do about it."""
