"""Colours and type of all figures, and how a figure becomes SVG: for a page that is light or dark, or for a file."""

import html
import io
import re
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.pages import tooltips
from app.pages.series import Series

INK, MUTED, GRID, PANEL = "#1b1d21", "#62676f", "#dcdfe4", "#fefefe"

# tests/unit/test_palette.py holds what these were searched for: contrast on the light and the dark panel, differences
# that readers without red or green cones see, and, between neighbours in a bar, a step of lightness for grey print.
PHASES = {  # in the order of a step
    "data": "#626c7c",
    "forward": "#6095de",
    "backward": "#4d60d2",
    "wait": "#de7905",
    "sync": "#c9373d",
    "optimiser": "#719d7d",
}
HIDDEN = "#af82a3"
SERIES = ("#648efe", "#a95405", "#719d7c", "#9c5189", "#d28017", "#218773", "#8984b3", "#df4051", "#ac8192", "#368143")

# What follows the page's own colours, by the names of its style sheet.
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PANEL: "--panel"}

BAND_OPACITY = 0.25
WIDTH, HEIGHT = 6.4, 3.0  # inches, of 72 points
PIXELS_PER_INCH = 160
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.4,
}


def colour(number: int) -> str:
    """Of a rank or a run."""
    return SERIES[number % len(SERIES)]


def new_figure(height: float = HEIGHT) -> Figure:
    """An empty one; what is drawn into it follows STYLE as long as that is in force."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def plot(axes: Axes, line: Series, number: int, marker: str | None = None) -> None:
    """A line of a rank's or a run's colour, which is a dot where it has but one point."""
    dot = marker or ("o" if len(line.values) == 1 else None)
    axes.plot(line.at, line.values, label=line.name, color=colour(number), marker=dot, markersize=4)
    band(axes, line, number)


def band(axes: Axes, line: Series, number: int) -> None:
    """The least and most of a line that shows means, so that it hides no spike."""
    if line.band:
        least, most = line.band.least, line.band.most
        shade = axes.fill_between(line.at, least, most, color=colour(number), alpha=BAND_OPACITY, linewidth=0)
        shade.set_clip_on(False)  # the axes reach as far, and nothing has to be cut off at them
        shade.set_gid(f"band-{number}")


def legend_above(axes: Axes, entries: int) -> None:
    """A legend that covers nothing, however many entries it has."""
    axes.figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper left",
        ncols=min(entries, 7),
        borderaxespad=0.2,
        handlelength=1.2,
    )


def as_svg(figure: Figure, name: str) -> str:
    """The figure as a drawing that can stand in a page beside others, or alone in a file."""
    target = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    drawing = target.getvalue()
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing[drawing.index("<svg") :], flags=re.DOTALL)
    drawing = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", drawing)  # numbers that every figure counts from 1
    drawing = re.sub(r"(font[^:]*: (?:[\d.]+px )?)'DejaVu Sans'[^;\"]*", r"\1sans-serif", drawing)
    drawing = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), drawing)
    return tooltips.in_drawing(drawing)


def as_png(figure: Figure) -> bytes:
    """The figure as pixels on white, for a text that takes no drawings."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=PIXELS_PER_INCH, facecolor=PANEL)
    return target.getvalue()


def for_page(drawing: str, prefix: str, words: str) -> str:
    """The same in the colours of the page, as wide as there is room, with names of its own inside.

    The words are for readers who do not see it: what it is, and what it shows.
    """
    label = html.escape(words)
    drawing = re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{prefix}", drawing)
    for value, variable in VARIABLES.items():
        drawing = drawing.replace(value, f"var({variable})")
    drawing = re.sub(r'(<svg [^>]*?)width="[^"]*pt" ?', r"\1", drawing, count=1)
    told = f'role="img" aria-label="{label}"'
    return re.sub(r'(<svg [^>]*?)height="[^"]*pt"', lambda found: found[1] + told, drawing, count=1)


def shorten(values: Sequence[str], most: int = 28) -> list[str]:
    """Names that fit beside an axis."""
    return [value if len(value) <= most else value[: most - 1] + "…" for value in values]
