"""Reads the rates, delays and losses that the LINK_ settings name."""

import re
from collections.abc import Mapping

RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}  # bits per second
DELAY_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
LOSS_UNITS = {"%": 0.01}

LEAST_RATE, MOST_RATE = 1e6, 100e9
MOST_DELAY = 10.0
MOST_LOSS = 0.5

RATE_WORDS = "a number with kbit, mbit or gbit (per second), from 1mbit to 100gbit, such as 100mbit or 2.5gbit"
RATE_BY_RANK_WORDS = "ranks with their rates, each rank once, such as 2=100mbit or 1=1gbit,2=100mbit"
DELAY_WORDS = "a number with us, ms or s, more than 0 and at most 10s, such as 200us or 1.5ms"
LOSS_WORDS = "a number with %, more than 0 % and at most 50 %, such as 0.1%"


def read_rate(text: str) -> float:
    """The rate in bits per second; raises ValueError for an invalid text."""
    return _within(_read(text, RATE_UNITS), LEAST_RATE, MOST_RATE)


def read_rate_by_rank(text: str) -> dict[int, float]:
    """The rates in bits per second, by rank; raises ValueError for an invalid text."""
    rates: dict[int, float] = {}
    for entry in text.split(","):
        rank, separator, rate = entry.partition("=")
        if not separator or not re.fullmatch(r" *[0-9]{1,5} *", rank) or int(rank) in rates:
            raise ValueError("not rank=rate, or a rank twice")
        rates[int(rank)] = read_rate(rate)
    return rates


def read_delay(text: str) -> float:
    """The delay in seconds; raises ValueError for an invalid text."""
    return _within(_read(text, DELAY_UNITS), 1e-6, MOST_DELAY)


def read_loss(text: str) -> float:
    """The loss as a probability, from 0 to 1; raises ValueError for an invalid text."""
    return _within(_read(text, LOSS_UNITS), 1e-9, MOST_LOSS)


def _read(text: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(r" *([0-9]+(?:\.[0-9]+)?|\.[0-9]+) *([a-z%]+) *", text, re.ASCII | re.IGNORECASE)
    if match is None or match[2].lower() not in units:
        raise ValueError("not a number with one of the units")
    return float(match[1]) * units[match[2].lower()]


def _within(value: float, least: float, most: float) -> float:
    if not least * (1 - 1e-9) <= value <= most * (1 + 1e-9):
        raise ValueError("out of range")
    return value
