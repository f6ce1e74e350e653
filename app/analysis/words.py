"""Shares and times in words."""

WORTH_LISTING = 0.005


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def duration(seconds: float) -> str:
    """Three digits, in milliseconds below a second."""
    size, unit = (seconds, "s") if seconds >= 0.9995 else (1e3 * seconds, "ms")
    written = f"{size:#.3g}" if size < 999.5 else f"{size:.0f}"  # above, that would be an exponent
    return f"{written.rstrip('.')} {unit}" if size else f"0 {unit}"
