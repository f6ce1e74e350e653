"""Costs of the program's parts, as ratios within one run, because machines differ."""
