"""What a step's messages amount to: bytes of all ranks and of the busiest one, and how fast they go."""

from collections.abc import Iterator, Sequence

from app.analysis.run import Run
from app.analysis.units import DIGITS, MEGABYTES, MEGABYTES_PER_SECOND, TEXT, digits
from app.pages.table import Column, Table
from app.tools.experiment.reading.results import Measure, MeasuredCell, Results
from app.tools.experiment.views.columns import CELL, RANKS, ROUNDS, compared, estimated, measured, told
from app.tools.experiment.views.measures import gradient_bytes, payload_rate, ratio, sent_by_rank, sent_in_all
from app.tools.experiment.views.view import Published
from app.tools.experiment.views.words import alike, listing, noise_sentence, times


def sentences(results: Results, baseline: str | None) -> Iterator[str]:
    """Bytes first, because MB/s follow from them and from times."""
    yield from _about_bytes(results)
    yield from _about_rates(results, baseline)


def table(results: Results, name: str, baseline: str | None, published: Published | None) -> Table:
    """A row for each cell, and what it is by the baseline's."""
    rates = results.blocks(payload_rate)
    base = next((cell for cell in results.cells if cell.name == baseline), None)

    def by_size(name: str, measure: Measure) -> Column[MeasuredCell]:
        return measured("in S", name, ratio(measure, gradient_bytes))

    def by_base(heading: str, name: str, measure: Measure) -> Column[MeasuredCell]:
        whole = base.middle(measure) if base else None
        return Column(heading, name, DIGITS, lambda cell: _by(cell.middle(measure), whole))

    columns = [
        CELL,
        RANKS,
        measured("all ranks, a step", "total_bytes", sent_in_all, MEGABYTES),
        by_size("total_in_gradients", sent_in_all),
        Column[MeasuredCell](
            "busiest rank", "busiest_rank", TEXT, lambda cell: _busiest_words(sent_by_rank(cell.first))
        ),
        measured("a step", "busiest_bytes", _sent_by_busiest, MEGABYTES),
        by_size("busiest_in_gradients", _sent_by_busiest),
        *estimated("of a rank", "bytes_per_second", rates, MEGABYTES_PER_SECOND),
    ]
    if baseline:
        columns += [
            by_base(f"all ranks, by {baseline}", "total_ratio", sent_in_all),
            by_base("busiest, by its busiest", "busiest_ratio", _sent_by_busiest),
            *compared("MB/s, by its MB/s", "rate_ratio", rates, baseline),
            told("rate_ratio", published),
        ]
    note = (
        "Payload as counted, without headers. S: all gradients of one rank, once. MB/s: a rank's bytes by the "
        "seconds of its steps, the mean over ranks."
    )
    note += f" Published: {published.source}." if published else ""
    return Table.of(name, "Traffic", [*columns, ROUNDS], results.cells, note)


def _sent_by_busiest(run: Run) -> float | None:
    return max(sent_by_rank(run), default=None)


def _about_bytes(results: Results) -> Iterator[str]:
    """Cells of as many ranks and as many gradients, by what all their ranks send together; then their busiest ranks."""
    groups: dict[tuple[int, int], dict[str, Sequence[float]]] = {}
    for cell in results.cells:
        counted = sent_by_rank(cell.first)
        if sum(counted):
            groups.setdefault((cell.world_size, gradient_bytes(cell.first)), {})[cell.name] = counted
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


def _about_rates(results: Results, baseline: str | None) -> Iterator[str]:
    rates = results.blocks(payload_rate)
    against = {cell: found for cell in rates.cells if cell != baseline and (found := rates.compare(cell, baseline))}
    if against:
        yield from listing(
            "Where the bytes of a step are the same, MB/s follow from the seconds of a step alone. A rank's MB/s "
            f"against those of {baseline}",
            (f"{cell}{f'{alike(found)}:' if alike(found) else ''} {times(found)}" for cell, found in against.items()),
        )
        yield noise_sentence(rates, results, what="MB/s")


def _busiest_words(counted: Sequence[float]) -> str | None:
    """Which rank sends most."""
    if not counted or not max(counted):
        return None
    busiest = [rank for rank, sent in enumerate(counted) if max(counted) - sent <= 1]
    return "all alike" if len(busiest) == len(counted) else f"rank {', '.join(map(str, busiest))}"


def _by(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
