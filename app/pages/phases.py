"""A step as a bar: its phases end to end, and below them the synchronisation that backward hides."""

from collections.abc import Mapping, Sequence

from app.analysis.figures import Figures
from app.analysis.measures import STEP, STEP_TIMES
from app.pages import definitions
from app.pages.drawing import Missing
from app.pages.rows import Bars, Row, Span, stacked
from app.pages.scale import Axis
from app.records.lines import PHASES

TIMES = {**STEP_TIMES, "step": STEP}
MeanSeconds = Mapping[str, float | None]  # of each of these


def mean_seconds(figures: Figures) -> MeanSeconds:
    return {name: figures[timing.mean] for name, timing in TIMES.items()}


def phase_bars(words: str, rows: Sequence[tuple[str, MeanSeconds]], caption: str) -> tuple[Bars, str]:
    """A bar per name, and the caption with what all such bars need."""
    if not any(row["step"] for _, row in rows):
        raise Missing("only the first step was recorded, which includes setup.")
    bars = Bars(words, Axis("time per step", "s"), [_bar(name, row) for name, row in rows])
    hidden = definitions.HIDDEN_BAR if any(row["hidden_sync"] for _, row in rows) else ""
    return bars, f"{caption}. {definitions.WAIT_AND_SYNC}{hidden}"


def _bar(name: str, seconds: MeanSeconds) -> Row:
    hidden, begins = seconds["hidden_sync"] or 0.0, sum(seconds.get(each) or 0.0 for each in ("data", "forward"))
    below = [Span(begins, begins + hidden, "hidden", "hidden sync")] if hidden else []
    parts = [(phase, seconds.get(phase) or 0.0, phase) for phase in PHASES]
    return Row(name, stacked(parts), below, seconds["step"])
