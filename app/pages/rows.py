"""Charts of rows: bars made of parts, and what happened on each rank over time."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from app.pages import palette
from app.pages.canvas import LINE, Canvas, Chip, element, fitted, number, text_width
from app.pages.scale import Axis, Ruler, draw_ticks, ruler, spaced, usable, written, written_alike

THICK, LANE, THIN = 22.0, 16.0, 5.0  # pixels, of a bar, of a row of a timeline, and of what is below either
BETWEEN = 28.0  # pixels between two moments side by side
APART = 12.0  # from row to row
MOST_NAMES = 0.28  # of the canvas, beside the rows; wider names stand above them


@dataclass(frozen=True)
class Span:
    """A part of a row."""

    begin: float
    end: float
    role: str
    name: str
    note: str = ""  # instead of its name and length


@dataclass(frozen=True)
class Row:
    """Parts in a row, and thin ones under them."""

    name: str
    spans: Sequence[Span]
    below: Sequence[Span] = ()
    value: float | None = None  # written at the end
    low: float | None = None  # with high, the interval of the value
    high: float | None = None
    published: float | None = None


def stacked(parts: Sequence[tuple[str, float, str]], begin: float = 0.0) -> list[Span]:
    """Spans end to end from (name, length, role); a part that is no positive number takes no room."""
    spans = []
    for name, length, role in parts:
        if usable(length) and length > 0:
            spans.append(Span(begin, begin + length, role, name))
            begin += length
    return spans


@dataclass(frozen=True)
class Bars:
    """A bar for each row, with the names of its parts inside them where they fit."""

    words: str
    x: Axis
    rows: Sequence[Row]
    legend: bool = True

    def draw(self, canvas: Canvas) -> float:
        if not self.rows:
            return canvas.nothing()
        left = _column(canvas, [row.name for row in self.rows])
        values = written_alike([row.value if _known(row.value) else None for row in self.rows], self.x.unit)
        ends = [each for row in self.rows for each in _extent(row)]
        room, end = (0.0, canvas.width), canvas.width - max(map(text_width, values)) - 14
        scale = spaced(lambda count: ruler(self.x, ends, count), max(2, int((end - left) / 80)), left, end, room)
        inside = _named_inside(self.rows, scale)
        chips = _chips(self.rows, {span.name for _, span in inside}) if self.legend else []
        if any(_known(row.published) for row in self.rows):
            chips.append(Chip("published", "ink", "diamond"))
        above = 0.0 if left else LINE
        tops = [canvas.legend(chips, 0)]
        for row in self.rows:
            tops.append(tops[-1] + above + THICK + (THIN + 2 if row.below else 0) + APART)
        _draw_grid(canvas, scale, tops[0], tops[-1] - APART + 6)
        for row, value, top in zip(self.rows, values, tops, strict=False):
            _draw_name(canvas, row.name, left, top)
            _draw_spans(canvas, row, scale, top + above, THICK, self.x.unit)
            _draw_value(canvas, row, scale, top + above + THICK / 2, value, self.x.unit)
        for place, span in inside:
            middle, y = (scale.at(span.begin) + scale.at(span.end)) / 2, tops[place] + above + THICK / 2 + 4.5
            canvas.text(middle, y, span.name, anchor="middle", role=palette.words_on(span.role))
        return draw_ticks(canvas, scale, tops[-1] - APART + 6, room, scale.title)


@dataclass(frozen=True)
class Moment:
    """What happened in some rows, on one clock."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Timeline:
    """Moments side by side, or one above the other where there is no room."""

    words: str
    x: Axis
    moments: Sequence[Moment]

    def draw(self, canvas: Canvas) -> float:
        rows = [row for moment in self.moments for row in moment.rows]
        if not rows:
            return canvas.nothing()
        names = [row.name for row in rows]
        left = min(max(map(text_width, names)) + 10, MOST_NAMES * canvas.width)
        top = canvas.legend(_chips(rows, ()), 0)
        across = 1 if canvas.narrow else min(3, len(self.moments))
        each = (canvas.width - left + BETWEEN) / across
        lengths = [max((end for row in moment.rows for end in _extent(row)), default=0.0) for moment in self.moments]
        like = min((length for length in lengths if length), default=1.0)
        bottom = top
        for place, moment in enumerate(self.moments):
            column = place % across
            top = bottom + 18 if place and not column else top
            begin, end = left + column * each, left + (column + 1) * each - BETWEEN
            is_last = place + across >= len(self.moments) and column == min(across, len(self.moments)) - 1
            found = self._draw_moment(canvas, moment, (begin, end), like, top, named=not column, titled=is_last)
            bottom = max(bottom, found)
        return bottom

    def _draw_moment(
        self, canvas: Canvas, moment: Moment, ends: tuple[float, float], like: float, top: float, *, named: bool,
        titled: bool,
    ) -> float:  # fmt: skip
        begin, end = ends
        extents = [each for row in moment.rows for each in _extent(row)]
        room, count = (begin - 8, min(end + BETWEEN / 2 - 4, canvas.width)), max(2, int((end - begin) / 60))
        scale = spaced(lambda count: ruler(self.x, extents, count, like=like), count, begin, end, room)
        canvas.text(begin, top + 13, fitted(moment.title, end - begin, bold=True), bold=True, full=moment.title)
        top += LINE + 8
        high = LANE + (THIN + 2 if any(row.below for row in moment.rows) else 0) + 8
        bottom = top + high * len(moment.rows) - 2
        _draw_grid(canvas, scale, top - 4, bottom)
        for place, row in enumerate(moment.rows):
            if named:
                name = fitted(row.name, begin - 9.9)
                canvas.text(begin - 10, top + place * high + LANE / 2 + 4.5, name, anchor="end", full=row.name)
            _draw_spans(canvas, row, scale, top + place * high, LANE, self.x.unit)
        return draw_ticks(canvas, scale, bottom, room, scale.title if titled else "")


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and usable(value)


def _extent(row: Row) -> Iterator[float]:
    """All that has to be on the axis."""
    for span in _drawable(row.spans, row.below):
        yield from (span.begin, span.end)
    yield from filter(_known, (row.low, row.high, row.published))


def _drawable(*parts: Sequence[Span]) -> list[Span]:
    return [span for part in parts for span in part if usable(span.begin) and usable(span.end)]


def _column(canvas: Canvas, names: Sequence[str]) -> float:
    """The room for names beside their rows; none where they have to stand above them."""
    wide = max(map(text_width, names)) + 12
    return wide if wide <= MOST_NAMES * canvas.width else 0.0


def _draw_name(canvas: Canvas, name: str, left: float, top: float) -> None:
    if left:
        canvas.text(left - 12, top + THICK / 2 + 4.5, name, anchor="end")
    else:
        canvas.text(0, top + 12, fitted(name, canvas.width), halo=True, full=name)


def _named_inside(rows: Sequence[Row], scale: Ruler) -> list[tuple[int, Span]]:
    """A part of each name that has room for it, and no interval across, with the place of its row.

    As many as possible are in one row, where they read like the heading of a table.
    """
    fitting: list[list[Span]] = []
    for row in rows:
        interval = (row.low, row.high) if _known(row.low) and _known(row.high) else (float("inf"), 0.0)
        apart = [span for span in _others(row) if interval[0] >= span.end or interval[1] <= span.begin]
        fitting.append(
            [span for span in apart if text_width(span.name) + 8 <= abs(scale.at(span.end) - scale.at(span.begin))]
        )
    found: dict[str, tuple[int, Span]] = {}
    for place in sorted(range(len(rows)), key=lambda place: -len(fitting[place])):
        for span in fitting[place]:
            found.setdefault(span.name, (place, span))
    return [*found.values()]


def _others(row: Row) -> list[Span]:
    """Parts that are not named by the row already."""
    return [span for span in _drawable(row.spans) if span.name != row.name]


def _chips(rows: Sequence[Row], inside: Collection[str]) -> list[Chip]:
    """Of names that stand in no bar, in the order of the palette; none if there is but one to tell."""
    roles = {span.name: span.role for row in rows for span in (*_others(row), *_drawable(row.below))}
    order = {role: place for place, role in enumerate(palette.COLOURS)}
    if len(roles) == 1:
        return []
    return [
        Chip(name, roles[name]) for name in sorted(roles, key=lambda name: order[roles[name]]) if name not in inside
    ]


def _draw_grid(canvas: Canvas, scale: Ruler, top: float, bottom: float) -> None:
    lines = "".join(f"M{number(scale.at(tick.value))} {number(top)}V{number(bottom)}" for tick in scale.ticks)
    canvas.add(element("path", d=lines, stroke=canvas.colour("grid"), fill="none"))


def _draw_spans(canvas: Canvas, row: Row, scale: Ruler, top: float, thick: float, unit: str) -> None:
    """The parts, those below them, and gaps where parts meet, so that they end there in grey print too."""
    for spans, y, high in ((row.spans, top, thick), (row.below, top + thick + 2, THIN)):
        edges: list[float] = []
        for span in _drawable(spans):
            begin, end = sorted((scale.at(span.begin), scale.at(span.end)))
            bar = element("rect", x=begin, y=y, width=end - begin, height=high, fill=canvas.colour(span.role))
            length = written(abs(span.end - span.begin), unit)
            canvas.add(bar, span.note or f"{row.name}, {span.name}: {length}")
            edges += [begin] if end - begin > 2 else []
        gaps = "".join(f"M{number(each)} {number(y)}v{number(high)}" for each in edges[1:])
        if gaps:
            canvas.add(element("path", d=gaps, stroke=canvas.colour("panel"), stroke_width="1.2"))


def _draw_value(canvas: Canvas, row: Row, scale: Ruler, middle: float, value: str, unit: str) -> None:
    """The interval, what was published, and behind them the value."""
    if _known(row.low) and _known(row.high):
        low, high = scale.at(row.low), scale.at(row.high)
        whisker = f"M{number(low)} {number(middle)}H{number(high)}M{number(low)} {number(middle - 4)}v8"
        whisker += f"M{number(high)} {number(middle - 4)}v8"
        for role, wide in (("panel", "4"), ("ink", "1.5")):
            canvas.add(element("path", d=whisker, stroke=canvas.colour(role), stroke_width=wide, fill="none"))
    if _known(row.published):
        words = f"{row.name}, published: {written(row.published, unit)}"
        canvas.add(canvas.diamond(scale.at(row.published), middle, "ink"), words)
    if value:
        ends = [max(span.begin, span.end) for span in _drawable(row.spans)] + [
            row.high if _known(row.high) else scale.low
        ]
        x = max(map(scale.at, ends), default=scale.begin) + 8
        if _known(row.published) and x - 14 < scale.at(row.published) < x + text_width(value) + 6:
            x = scale.at(row.published) + 12
        canvas.text(x, middle + 4.5, value, halo=True)
