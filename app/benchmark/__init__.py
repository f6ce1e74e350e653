"""Benchmarks: what the program's own parts cost, as ratios within one run, because times differ between machines."""
