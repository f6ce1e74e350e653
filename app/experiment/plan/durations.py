"""Lengths of time in words."""


def words(seconds: float) -> str:
    """A length of time, as exact as an estimate is."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"
