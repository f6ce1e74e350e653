"""What a step's messages amount to: bytes of all ranks and of the busiest one, and how fast they go."""

from collections.abc import Iterator

from app.experiment.reading.results import Measured, Results
from app.experiment.reading.statistics import Blocks
from app.experiment.views.measures import gradient_bytes, payload_rate, sent_by_rank, sent_in_all
from app.experiment.views.view import (
    Published,
    cell_column,
    estimate_columns,
    estimate_values,
    interval,
    middle,
    noise_sentence,
)
from app.report.table import Column, Table, Value, digits, megabytes, plain


def sentences(results: Results, baseline: str | None) -> Iterator[str]:
    """Bytes first, because MB/s follow from them and from times."""
    yield from _about_bytes(results)
    yield from _about_rates(results, results.blocks(payload_rate), baseline)


def table(results: Results, name: str, baseline: str | None, published: Published | None) -> Table:
    """A row for each cell, and what it is by the baseline's."""
    rates = results.blocks(payload_rate)
    columns = [
        cell_column(),
        Column("ranks", "world_size", digits),
        Column("all ranks, MB a step", "total_bytes", megabytes),
        Column("in S", "total_in_gradients", digits),
        Column("busiest rank", "busiest_rank", plain),
        Column("MB a step", "busiest_bytes", megabytes),
        Column("in S", "busiest_in_gradients", digits),
        *(
            Column(column.heading, column.name, megabytes)
            for column in estimate_columns("MB/s of a rank", "bytes_per_second")
        ),
    ]
    if baseline:
        columns += [
            Column(f"all ranks, by {baseline}", "total_ratio", digits),
            Column("busiest, by its busiest", "busiest_ratio", digits),
            *estimate_columns("MB/s, by its MB/s", "rate_ratio"),
            Column("published", "published_rate_ratio", digits),
        ]
    base = results.runs(baseline) if baseline else []
    base_total, base_busiest = middle(base, sent_in_all), middle(base, _busiest_bytes)
    rows: list[list[Value]] = []
    for cell in results.cells:
        runs = results.runs(cell.name)
        total, busiest, size = middle(runs, sent_in_all), middle(runs, _busiest_bytes), middle(runs, gradient_bytes)
        row: list[Value] = [
            cell.name,
            cell.world_size,
            total,
            _by(total, size),
            _busiest_words(sent_by_rank(runs[0])),
        ]
        row += [busiest, _by(busiest, size), *estimate_values(rates.estimate(cell.name))]
        if baseline:
            row += [_by(total, base_total), _by(busiest, base_busiest)]
            row += estimate_values(rates.compare(cell.name, baseline))
            row.append(published.of(cell.name) if published else None)
        rows.append([*row, len(runs)])
    note = (
        "Payload as counted, without headers. S: all gradients of one rank, once. MB/s: a rank's bytes by the "
        "seconds of its steps, the mean over ranks."
    )
    note += f" Published: {published.source}." if published else ""
    return Table(name, "Traffic", [*columns, Column("rounds", "rounds", digits)], rows, note)


def _about_bytes(results: Results) -> Iterator[str]:
    """Cells of as many ranks and as many gradients, by what all their ranks send together; then their busiest ranks."""
    groups: dict[tuple[int, int], dict[str, list[float]]] = {}
    for cell in results.cells:
        run = results.first(cell.name)
        counted = sent_by_rank(run)
        if counted and sum(counted):
            groups.setdefault((cell.world_size, gradient_bytes(run)), {})[cell.name] = counted
    for (ranks, size), cells in groups.items():
        totals = {cell: sum(counted) for cell, counted in cells.items()}
        least, most = min(totals.values()), max(totals.values())
        where = f"{ranks} ranks, where the gradients of one, S, are {size / 1e6:.2f} MB"
        if most - least <= ranks:  # each rank counts whole bytes
            who = f"{', '.join(cells)} send the same" if len(cells) > 1 else f"{next(iter(cells))} sends"
            yield f"Over all ranks together {who}: {digits(least / size)} S = {least / 1e6:.1f} MB a step ({where})."
        else:
            parts = ", ".join(f"{cell} {digits(total / size)} S" for cell, total in totals.items())
            yield f"Over all ranks together a step sends: {parts} ({where})."
        parts = ", ".join(
            f"{cell} {digits(max(counted) / size)} S ({_busiest_words(counted)})" for cell, counted in cells.items()
        )
        yield f"The busiest rank sends: {parts}."


def _about_rates(results: Results, rates: Blocks, baseline: str | None) -> Iterator[str]:
    if not baseline:
        return
    parts = []
    for cell in rates.cells:
        comparison = rates.compare(cell, baseline)
        if cell == baseline or comparison is None:
            continue
        times = f"{digits(comparison.value)} times{interval(comparison)}"
        alike = f", no difference beyond the noise: {times}" if comparison.beyond_noise is False else f" {times}"
        parts.append(f"{cell}{alike}")
    if parts:
        yield (
            "Where the bytes of a step are the same, MB/s follow from the seconds of a step alone. A rank's MB/s "
            f"against those of {baseline}: {'; '.join(parts)}."
        )
        yield noise_sentence(rates, results, what="MB/s")


def _busiest_bytes(run: Measured) -> float | None:
    counted = sent_by_rank(run)
    return max(counted) if counted else None


def _busiest_words(counted: list[float] | None) -> str | None:
    """Which rank sends most."""
    if not counted or not max(counted):
        return None
    busiest = [rank for rank, sent in enumerate(counted) if max(counted) - sent <= 1]
    return "all alike" if len(busiest) == len(counted) else f"rank {', '.join(map(str, busiest))}"


def _by(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
