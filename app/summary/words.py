"""Shares and times in words."""

from app.summary.bound import Parts

WORTH_LISTING = 0.005


def percent(share: float, digits: int = 0) -> str:
    """A share of one as text."""
    return f"{100 * share:.{digits}f} %"


def duration(seconds: float) -> str:
    """Three digits, in milliseconds below a second."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def listed(parts: Parts, but: float | None = None) -> str:
    """All parts of the step, the largest first, without the one that was named before."""
    shown = [(part, name) for part, name in parts.largest_first() if part >= WORTH_LISTING and part != but]
    return ", ".join(f"{percent(part)} {name}" for part, name in shown)
