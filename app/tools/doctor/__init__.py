"""Diagnosis of the cluster: the facts of each rank, the measured network, and advice."""
