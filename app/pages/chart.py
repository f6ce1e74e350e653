"""Charts as SVG, for a desk and for a telephone, in the colours of a page or of a file."""

from typing import Protocol

from app.pages import palette
from app.pages.canvas import SIZE, Canvas

WIDE, NARROW = 720, 350  # pixels, at which text has its natural size
MOST_STRETCH, LEAST_TEXT = 1.15, 12  # times that size, and pixels
STYLE = (
    f"{palette.STYLE}"
    ".chart{container-type:inline-size;overflow-x:auto}"
    f".chart svg{{display:block;width:100%;height:auto;font:{SIZE}px system-ui,sans-serif;overflow:visible}}"
    f".chart .wide{{max-width:{MOST_STRETCH * WIDE:.0f}px}}"
    f".chart .narrow{{display:none;max-width:{MOST_STRETCH * NARROW:.0f}px}}"
    f".chart .narrow{{min-width:{NARROW * LEAST_TEXT / SIZE:.0f}px}}"
    # The width of the column counts, not that of the window: figures may stand side by side.
    f"@container (max-width:{WIDE * LEAST_TEXT / SIZE:.0f}px)"
    "{.chart .wide{display:none}.chart .narrow{display:block}}"
    ".chart g:focus-visible{outline:2px solid var(--ink);outline-offset:2px;border-radius:2px}"
)


class Chart(Protocol):
    """Anything that draws itself at a given width."""

    @property
    def words(self) -> str:
        """What it is, and what it shows, for readers who do not see it."""

    def draw(self, canvas: Canvas) -> float:
        """Draw, and return the height."""


def in_page(chart: Chart) -> str:
    """Both widths. STYLE displays the one that fits the column."""
    return f'<div class="chart">{_svg(chart, WIDE, "wide")}{_svg(chart, NARROW, "narrow")}</div>'


def as_file(chart: Chart) -> str:
    """The wide one, which needs no style sheet."""
    return _svg(chart, WIDE)


def _svg(chart: Chart, width: float, kind: str = "") -> str:
    canvas = Canvas(width, in_file=not kind)
    return canvas.svg(chart.draw(canvas), chart.words, kind)
