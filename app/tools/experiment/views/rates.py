"""The link rate below which one line of cells is faster than another."""

from collections.abc import Mapping, Sequence
from functools import partial

from app.analysis.break_even import EVERYWHERE, NOWHERE, break_even
from app.analysis.statistics import Interval
from app.analysis.units import TEXT, Scale, Unit, digits
from app.pages.findings import Judged
from app.pages.table import Column, Table
from app.settings.link_rates import read_rate
from app.tools.experiment.views.places import RATE, Spot

MEGABITS = Unit(lambda rate: f"{digits(rate / 1e6)} Mbit/s", scales=(Scale("Mbit/s", 1e6),))
Ratios = Mapping[float, Interval]  # by bits per second


def ratios(found: Sequence[Spot], judged: Judged, against: str) -> dict[str, dict[float, Interval]]:
    """Of each line that has a rate in common with the one that it is laid beside."""
    lines: dict[str, dict[float, Interval]] = {}
    for spot in found:
        if RATE in spot.settings and spot.series != against and (ratio := judged.blocks.compare(spot.name, spot.base)):
            lines.setdefault(spot.line, {})[read_rate(spot.settings[RATE])] = ratio
    return lines


def table(lines: Mapping[str, Ratios], name: str) -> Table:
    """A row for each line."""
    found = {line: break_even(own) for line, own in lines.items()}

    def end(which: str, line: str) -> float | None:
        value: float | None = getattr(found[line], which)
        return None if value in (None, NOWHERE, EVERYWHERE) else value

    columns: list[Column[str]] = [Column("", "line", TEXT, lambda line: line)]
    for heading, which in (("break-even", "value"), ("95 % from", "low"), ("to", "high")):
        own = f"break_even_bits_per_second{'' if which == 'value' else f'_{which}'}"
        columns.append(Column(heading, own, MEGABITS, partial(end, which)))
    note = (
        "The rate at which both take equally long, interpolated on logarithmic scales. An end outside the measured "
        "rates is left empty. Rates are the requested ones."
    )
    return Table.of(name, "Break-even", columns, lines, note)
