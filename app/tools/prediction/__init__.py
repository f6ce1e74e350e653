"""Predicted step times: measured costs, applied to the same schedules that the program runs."""
