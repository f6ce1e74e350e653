"""Plots: lines of a few marks with intervals, curves of many with bands, predictions against measured values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.pages.canvas import Canvas, Chip, fitted, text_width
from app.pages.naming import Names
from app.pages.placed_panel import PlacedPanel
from app.pages.scale import Axis, Ruler, ruler
from app.pages.traces import Panel, roles_of, values_of

ROOM_UP = 44  # pixels between two ticks


@dataclass(frozen=True)
class Plot:
    """Panels that share the axis up; in one of predictions against measured values, axes are alike."""

    words: str
    x: Axis
    y: Axis
    panels: Sequence[Panel]
    tolerances: Sequence[float] | None = None  # allowed relative errors of predictions, the largest first

    def draw(self, canvas: Canvas) -> float:
        roles = roles_of(self.panels)
        if not any(True for _ in values_of(self.panels, up=True)):
            return canvas.nothing()
        placed = self._placed(canvas)
        names: Names = {}
        if len(placed) == 1 and (named := placed[0].with_margin().names()):
            placed, names = [placed[0].with_margin()], named
        top = canvas.legend(self._chips(roles, names), 0)
        title = placed[0].up.title
        canvas.text(0, top + 13, fitted(title, canvas.width), role="muted", full=title)
        top, bottom = top + 28, 0.0
        for place, each in enumerate(placed):
            top = bottom + 18 if place and not each.column else top
            bottom = max(bottom, each.draw(top, roles, names))
        return bottom

    def _placed(self, canvas: Canvas) -> list[PlacedPanel]:
        count = len(self.panels)
        columns = 1 if canvas.narrow or count == 1 else 2 if count in (2, 4) else 3
        height = (140.0 if count > 1 else 220.0 if canvas.narrow else 270.0) + 90 * (self.tolerances is not None)
        up = self._up(round(height / ROOM_UP)).between(height, 0)
        left = max((text_width(tick.label) for tick in up.ticks), default=0) + 8
        headed = any(panel.title for panel in self.panels)
        return [
            PlacedPanel(
                canvas, panel, (self.x, self.y), partial(self._across, panel), up, place % columns, columns, left,
                headed=headed, titled=place == count - 1, tolerances=self.tolerances,
            )
            for place, panel in enumerate(self.panels)
        ]  # fmt: skip

    def _chips(self, roles: Mapping[str, str], names: Names) -> list[Chip]:
        """Of names that do not stand at their lines; none if there is but one to tell."""
        traces = [trace for panel in self.panels for trace in panel.traces]
        looks = {trace.name: trace.look for trace in traces if any(True for _ in values_of([Panel([trace])], up=True))}
        if len(roles) == 1 and (len(self.panels) == 1 or not names):
            return []
        return [Chip(name, roles[name], look) for name, look in looks.items() if name not in names]

    def _up(self, ticks: int) -> Ruler:
        return ruler(self.y, self._both() or [*values_of(self.panels, up=True)], ticks, cover=True)

    def _across(self, panel: Panel, ticks: int) -> Ruler:
        if self.tolerances is not None:
            return ruler(replace(self.y, title=self.x.title), self._both(), ticks, cover=True)
        largest = [max(map(abs, values_of([each], up=False)), default=0.0) for each in self.panels]
        like = min((each for each in largest if each), default=1.0)  # one unit for all panels
        return ruler(replace(self.x, zero=False), values_of([panel], up=False), ticks, like=like)

    def _both(self) -> list[float]:
        """Where a prediction is right, it stands on the diagonal: both axes have all values."""
        if self.tolerances is None:
            return []
        return [*values_of(self.panels, up=True), *values_of(self.panels, up=False)]
