"""Figures and sentences derived from records: waiting, the bottleneck of a step, and learning."""
