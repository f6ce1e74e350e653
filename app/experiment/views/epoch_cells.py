"""Cells of batch sizes by numbers of ranks."""

from app.experiment.plan.cells import Cell
from app.experiment.reading.results import Results

PER_RANK = "BATCH_SIZE_PER_RANK"


def batch_of(cell: Cell) -> int | None:
    """Images per rank and step, where that is what the cell sets."""
    return int(cell.settings[PER_RANK]) if PER_RANK in cell.settings else None


def in_order(results: Results) -> list[Cell]:
    """The cells that were measured, by batch size and then by ranks."""
    return sorted(results.cells, key=lambda cell: (batch_of(cell) or 0, cell.world_size))


def base_of(results: Results, cell: Cell) -> Cell | None:
    """One rank with the same batch per rank."""
    return next((each for each in results.cells if each.world_size == 1 and batch_of(each) == batch_of(cell)), None)
