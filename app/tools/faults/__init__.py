"""Fault injection into real runs: planning faults, injecting them, and judging how each run ended."""
