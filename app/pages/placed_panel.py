"""How a panel of a plot is drawn: grid and references behind, then bands, lines and marks, and names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from app.pages import palette
from app.pages.canvas import LINE, Canvas, box_of, element, fitted, number, path, text_width
from app.pages.naming import Names, Pixel, names_at_ends
from app.pages.scale import Axis, Ruler, draw_ticks, spaced, usable, written
from app.pages.traces import Panel, Trace

MOST_MARGIN = 0.32  # of the canvas, for the names of lines
ROOM_ACROSS = 60.0  # pixels between two ticks, at least
BETWEEN = 24.0  # pixels between two panels side by side
INSET = 12  # pixels from the frame to the outermost marks


@dataclass(frozen=True)
class PlacedPanel:
    """A panel in its column of a canvas; pixels up count from its top."""

    canvas: Canvas
    panel: Panel
    axes: tuple[Axis, Axis]
    scale: Callable[[int], Ruler]  # the one across, of some ticks
    up: Ruler
    column: int
    columns: int
    left: float  # what the labels up take
    headed: bool  # whether panels have titles
    titled: bool  # whether the title of the axis across is under it
    tolerances: Sequence[float] | None = None
    margin: float = 4.0  # what names beside the panel take

    @cached_property
    def across(self) -> Ruler:
        begin, end = self._room[0] + (BETWEEN / 2 if self.column else self.left), self._room[1] - self.margin
        count = max(2, int((end - begin) / ROOM_ACROSS))
        return spaced(self.scale, count, begin + self._inset, end - self._inset, self._room)

    @property
    def _room(self) -> tuple[float, float]:
        """From where to where words may be: the margin on the left belongs to the first column."""
        each = (self.canvas.width - self.left + BETWEEN) / self.columns
        begin = self.left + self.column * each
        return begin - (BETWEEN / 2 if self.column else self.left), begin + each - BETWEEN

    @property
    def _inset(self) -> int:
        marks = any(trace.look != "curve" for trace in self.panel.traces)
        return INSET if marks and self.tolerances is None else 0

    def with_margin(self) -> "PlacedPanel":
        """The same with room for the names of its lines, if that is not too much."""
        wide = max((text_width(trace.name, bold=True) for trace in self.panel.traces if trace.is_line), default=0) + 14
        return replace(self, margin=wide if wide < MOST_MARGIN * self.canvas.width else self.margin)

    def names(self) -> Names:
        lines = {
            trace.name: [each for each in self.pixels(trace) if each] for trace in self.panel.traces if trace.is_line
        }
        if len(lines) < 2 or self.margin <= 4:
            return {}
        return names_at_ends(lines, self.across, self.up.begin)

    def pixels(self, trace: Trace, values: Sequence[float] | None = None) -> list[Pixel | None]:
        """Where the points are; None for a gap."""
        return [
            (self.across.at(x), self.up.at(y)) if self._shown(x, y) else None
            for x, y in zip(trace.x, values if values is not None else trace.y, strict=True)
        ]

    def _shown(self, x: float, y: float) -> bool:
        return usable(x) and usable(y) and (x > 0 or not self.across.log) and (y > 0 or not self.up.log)

    def draw(self, top: float, roles: Mapping[str, str], names: Names) -> float:
        if self.panel.title:
            words = fitted(self.panel.title, self.across.end - self.across.begin, bold=True)
            self.canvas.text(self.across.begin - self._inset, top + 8, words, bold=True, full=self.panel.title)
        top += LINE + 4 if self.headed else 0
        placed = replace(self, up=self.up.between(top + self.up.begin, top))
        placed._draw_behind()
        for trace in self.panel.traces:
            placed._draw_band(trace, roles[trace.name])
        for trace in self.panel.traces:
            placed._draw_trace(trace, roles[trace.name])
        for name, (end, (x, y)) in names.items():
            if abs(y - end[1]) > 6:
                leader = f"M{number(end[0] + 5)} {number(top + end[1])}L{number(x - 2)} {number(top + y)}"
                self.canvas.add(element("path", d=leader, stroke=self.canvas.colour(roles[name]), fill="none"))
            role = palette.words_beside(roles[name])
            self.canvas.text(x, top + y + 4, name, role=role, bold=True, halo=True)
        title = self.across.title if self.titled else ""
        bottom = draw_ticks(self.canvas, self.across, placed.up.begin, self._room, title)
        placed._name_references()
        return bottom

    def _draw_behind(self) -> None:
        """Shades and lines that everything else is read by."""
        canvas, across, up = self.canvas, self.across, self.up
        begin, end = across.begin - self._inset, across.end + self._inset
        if self.panel.shaded and self._shade:
            first, last = self._shade
            shade = element("rect", x=first, y=up.end, width=last - first, height=up.begin - up.end,
                            fill=canvas.colour("grid"), opacity="0.6")  # fmt: skip
            canvas.add(shade, self.panel.shaded[2])
        for tolerance in self.tolerances or ():
            shape = path(_around_diagonal(across, up, tolerance))
            canvas.add(element("path", d=f"{shape}z", fill=canvas.colour("grid"), opacity="0.6"),
                       f"within {100 * tolerance:.3g} %")  # fmt: skip
        lines = "".join(f"M{number(begin)} {number(up.at(tick.value))}H{number(end)}" for tick in up.ticks)
        canvas.add(element("path", d=lines, stroke=canvas.colour("grid"), fill="none"))
        if up.low <= 0 <= up.high and not up.log:
            base = f"M{number(begin)} {number(up.at(0))}H{number(end)}"
            canvas.add(element("path", d=base, stroke=canvas.colour("muted"), fill="none"))
        if self.tolerances is not None:
            ends = f"M{number(across.begin)} {number(up.begin)}L{number(across.end)} {number(up.end)}"
            canvas.add(element("path", d=ends, stroke=canvas.colour("muted"), fill="none"))
        for value, name in self._levels():
            level = f"M{number(begin)} {number(up.at(value))}H{number(end)}"
            canvas.add(element("path", d=level, stroke=canvas.colour("ink"), stroke_dasharray="2 4", fill="none"), name)
        for tick in up.ticks if not self.column else ():
            canvas.text(begin - 8, up.at(tick.value) + 4, tick.label, anchor="end", role="muted")

    @property
    def _shade(self) -> Pixel | None:
        low, high = (max(each, self.across.low) for each in self.panel.shade or (0.0, 0.0))
        return (self.across.at(low), self.across.at(high)) if low < high else None

    def _levels(self) -> list[tuple[float, str]]:
        return [(value, name) for value, name in self.panel.levels if self._shown(self.across.high, value)]

    def _draw_band(self, trace: Trace, role: str) -> None:
        if trace.look != "curve" or not (len(trace.low) and len(trace.high)):
            return
        edges = zip(self.pixels(trace, trace.high), self.pixels(trace, trace.low), strict=True)
        for known, part in groupby(edges, key=lambda edge: None not in edge):
            upper, lower = zip(*part, strict=True) if known else ((), ())
            if known:
                shape = f"{path([*upper, *reversed(lower)])}z"
                self.canvas.add(element("path", d=shape, fill=self.canvas.colour(role), opacity="0.22"))

    def _draw_trace(self, trace: Trace, role: str) -> None:
        colour, points = self.canvas.colour(role), self.pixels(trace)
        if trace.is_line:
            hollow = [*trace.hollow, *[False] * len(points)][: len(points)]
            solid = [None if far else point for point, far in zip(points, hollow, strict=True)]
            # The dashed part begins at the last solid point.
            dashed = [point if far or any(hollow[place + 1 : place + 2]) else None
                      for place, (point, far) in enumerate(zip(points, hollow, strict=True))]  # fmt: skip
            style = {"stroke": colour, "stroke_width": "2" if trace.look == "line" else "1.4", "fill": "none",
                     "stroke_linejoin": "round", "stroke_linecap": "round"}  # fmt: skip
            told = trace.name if trace.look == "curve" else ""
            for part, more in ((solid, {}), (dashed if any(hollow) else [], {"stroke_dasharray": "2 5"})):
                if any(part):
                    self.canvas.add(element("path", d=path(part), **style, **more), told)
        if trace.look != "curve":
            for place, point in enumerate(points):
                if point:
                    self._draw_mark(trace, role, place, point)

    def _draw_mark(self, trace: Trace, role: str, place: int, point: Pixel) -> None:
        canvas, (x, y), interval = self.canvas, point, trace.interval(place)
        hollow = any(trace.hollow[place : place + 1])
        mark = canvas.diamond(x, y, role) if trace.look == "diamond" else canvas.dot(x, y, role, hollow=hollow)
        words = (
            f"{trace.name}, {self._words(self.axes[0], trace.x[place])}: {self._words(self.axes[1], trace.y[place])}"
        )
        upright = ""
        if interval:
            words += f" ({' to '.join(self._words(self.axes[1], each) for each in interval)})"
            low, high = (self.up.at(max(each, self.up.low)) for each in interval)
            line = f"M{number(x)} {number(low)}V{number(high)}"
            upright = element("path", d=line, stroke=canvas.colour(role), stroke_width="1.5")
        canvas.add(upright + mark, trace.notes[place] if trace.notes else words)

    @staticmethod
    def _words(axis: Axis, value: float) -> str:
        return dict(axis.labels).get(value) or written(value, axis.unit)

    def _name_references(self) -> None:
        """Names of levels and shades, where there is room; all have them as explanations too."""
        across, up = self.across, self.up
        for value, name in self._levels():
            sides = (across.end, "end"), (across.begin, "start")
            self._write_clear(name, [(x, up.at(value) + y, anchor) for y in (-6, 15) for x, anchor in sides])
        if self.panel.shaded and self._shade:
            x = self._shade[1] - 4
            self._write_clear(self.panel.shaded[2], [(x, up.end + 14, "end"), (x, up.begin - 6, "end")])

    def _write_clear(self, name: str, places: Sequence[tuple[float, float, str]]) -> None:
        """Write it where it covers no words, and as few points as possible, or not at all."""
        boxes = {place: box_of(place[0], place[1], name, place[2]) for place in places}
        points = [point for trace in self.panel.traces for point in self.pixels(trace) if point]

        def covered(place: tuple[float, float, str]) -> int:
            left, top, right, bottom = boxes[place]
            return sum(left < x < right and top < y < bottom for x, y in points)

        free = [place for place, box in boxes.items() if self.canvas.is_free(box)]
        if free:
            x, y, anchor = min(free, key=covered)
            self.canvas.text(x, y, name, anchor=anchor, role="muted", halo=True)


def _around_diagonal(across: Ruler, up: Ruler, tolerance: float) -> list[Pixel]:
    """The corners of the area in which predictions are off by no more than a share."""
    low, high = across.low, across.high
    least, most = 1 - tolerance, 1 + tolerance
    corners = [(low, low), (low, low * most), (high / most, high), (high, high), (high, high * least)]
    corners.append((max(low, low / least), max(low, low * least) if low > 0 else low * least))
    return [(across.at(x), up.at(y)) for x, y in corners]
