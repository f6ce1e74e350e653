"""Thin lines over the bars of each phase, by which they differ in grey print too."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path

from app.pages import theme
from app.pages.tooltips import let_through

HATCHES = {  # the longest part, backward, stays plain; no dots, which take 200 kB
    theme.PHASES["data"]: "++",
    theme.PHASES["forward"]: "//",
    theme.PHASES["wait"]: "\\\\",
    theme.PHASES["sync"]: "xx",
    theme.PHASES["optimiser"]: "---",
    theme.HIDDEN: "|||",
}
LINES = (1.0, 1.0, 1.0, 0.55)  # white that lets the colour through


def lay_over(figure: Figure) -> None:
    """Mark all bars that have a phase's colour, and their entries in the legends."""
    for axes in figure.axes:
        for colour, lines in HATCHES.items():
            _cover(axes, [bar for bar in axes.patches if _colour(bar) == colour and not bar.get_hatch()], lines)
    for entry in _legend_entries(figure):
        if not entry.get_hatch() and (hatch := HATCHES.get(_colour(entry))) is not None:
            entry.set(hatch=hatch, edgecolor=LINES, linewidth=0)


def _cover(axes: Axes, bars: Sequence[Patch], hatch: str) -> None:
    """One shape over all bars of a phase: a bar each would double the size of a drawing."""
    outlines = [bar.get_bbox() for bar in bars if isinstance(bar, Rectangle)]
    corners = [Path([(b.x0, b.y0), (b.x1, b.y0), (b.x1, b.y1), (b.x0, b.y1), (b.x0, b.y0)], closed=True)
               for b in outlines if b.width and b.height]  # fmt: skip
    if corners:
        shape = Path.make_compound_path(*corners)
        limits = axes.get_xlim(), axes.get_ylim()
        lines = PathPatch(shape, facecolor="none", edgecolor=LINES, linewidth=0, hatch=hatch)
        let_through(lines)
        axes.add_patch(lines)
        axes.set(xlim=limits[0], ylim=limits[1])


def _legend_entries(figure: Figure | SubFigure) -> Iterator[Patch]:
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        yield from legend.get_patches() if legend else ()
    for part in figure.subfigs:
        yield from _legend_entries(part)


def _colour(patch: Patch) -> str:
    return to_hex(patch.get_facecolor())
