"""Faults injected into real runs: what to break and when, and whether the run ended as promised."""
