"""Shares and times in words."""

from app.analysis.bound import Parts

WORTH_LISTING = 0.005


def percent(share: float, digits: int = 0) -> str:
    """A share of one as text."""
    return f"{100 * share:.{digits}f} %"


def duration(seconds: float) -> str:
    """Three digits, in milliseconds below a second."""
    size, unit = (seconds, "s") if seconds >= 0.9995 else (1e3 * seconds, "ms")
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"  # above, that would be an exponent


def listed(parts: Parts, but: float | None = None) -> str:
    """All parts of the step, the largest first, without the one that was named before."""
    shown = [(part, name) for part, name in parts.largest_first() if part >= WORTH_LISTING and part != but]
    return ", ".join(f"{percent(part)} {name}" for part, name in shown)
