"""What charts are drawn with: words of a known width, marks that explain themselves, and legends that wrap."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.pages import palette

SIZE = 13  # of all text, in pixels
LINE = 18  # from one baseline to the next
FAMILY = "system-ui, sans-serif"
FILE_MARGIN = 16  # pixels around a chart that stands alone
MOST_FOCUSED = 60  # marks that the Tab key stops at; more would trap readers in a figure

# In ems, of DejaVu Sans, the widest of the usual fonts: words that fit in it fit in all.
LETTERS = {
    letter: wide
    for wide, letters in {
        0.34: " ijl.,'|IJ:;/\\", 0.41: "ft()[]{}-!r", 0.53: "sz_\"*", 0.61: "ckvxyLYFT", 0.7: "ABCKPRVXZ",
        0.79: "DGHNOQU&", 0.84: "w+=<>~^#", 1.0: "mMW@%—…",
    }.items()
    for letter in letters
}  # fmt: skip
BOLD = 1.12
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

type Box = tuple[float, float, float, float]  # left, top, right, bottom


def escaped(words: str) -> str:
    return html.escape(NOT_XML.sub("�", words))


def text_width(words: str, *, bold: bool = False) -> float:
    """Pixels, rather too many than too few."""
    return SIZE * sum(map(_em, words)) * (BOLD if bold else 1)


def _em(letter: str) -> float:
    if letter < " ":
        return 1.4  # what stands in its place is wide
    return LETTERS.get(letter) or (0.64 if letter < "\x7f" else 0.85 if letter < "\u0250" else 1.4)


def fitted(words: str, room: float, *, bold: bool = False) -> str:
    """The words, cut off with an ellipsis where they are wider than the room."""
    if text_width(words, bold=bold) <= room:
        return words
    while words and text_width(words + "…", bold=bold) > room:
        words = words[:-1]
    return words.rstrip() + "…"


def number(value: float) -> str:
    digits = f"{value:.1f}".removesuffix(".0")
    return "0" if digits == "-0" else digits


def element(tag: str, content: str = "", **attributes: str | float) -> str:
    pairs = (
        (name.replace("_", "-"), value if isinstance(value, str) else number(value))
        for name, value in attributes.items()
    )
    inside = f">{content}</{tag}>" if content else "/>"
    return f"<{tag}{''.join(f' {name}="{value}"' for name, value in pairs)}{inside}"


def path(points: Iterable[tuple[float, float] | None]) -> str:
    """The data of a path that breaks at None, in steps from point to point, which are shorter than coordinates."""
    parts: list[str] = []
    last: tuple[int, int] | None = None
    for point in points:
        if point is None:
            last = None
            continue
        x, y = (round(10 * each) for each in point)
        if last is None:
            parts.append(f"M{number(x / 10)} {number(y / 10)}l0 0")  # a dot, where nothing follows
        else:
            up = number((y - last[1]) / 10)
            parts.append(f"{' ' if x >= last[0] else ''}{number((x - last[0]) / 10)}{'' if up[0] == '-' else ' '}{up}")
        last = x, y
    return "".join(parts)


@dataclass(frozen=True)
class Chip:
    """An entry of a legend."""

    name: str
    role: str
    look: str = "area"  # or that of a trace


class Canvas:
    """Collects the parts of one SVG of a given width."""

    def __init__(self, width: float, *, in_file: bool) -> None:
        self.width = width
        self._in_file = in_file
        self._parts: list[tuple[str, str]] = []  # each with its explanation
        self._boxes: list[Box] = []

    @property
    def narrow(self) -> bool:
        return self.width < 500

    def colour(self, role: str) -> str:
        return palette.COLOURS[role].light if self._in_file else f"var(--{role})"

    def add(self, svg: str, explanation: str = "") -> None:
        """Add shapes, with what a browser says of them while the pointer or the focus is on them."""
        self._parts.append((svg, explanation))

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", role: str = "ink", bold: bool = False,
        halo: bool = False, full: str = "",
    ) -> None:  # fmt: skip
        """Write words on a baseline; `full` is what was shortened to them."""
        more: dict[str, str | float] = {} if anchor == "start" else {"text_anchor": anchor}
        more |= {"font_weight": "600"} if bold else {}
        more |= {"paint_order": "stroke", "stroke": self.colour("panel"), "stroke_width": 4} if halo else {}
        title = f"<title>{escaped(full)}</title>" if full and full != words else ""
        self._boxes.append(box_of(x, y, words, anchor, bold=bold))
        self.add(element("text", title + escaped(words), x=x, y=y, fill=self.colour(role), **more))

    def nothing(self) -> float:
        """Say that there is nothing to draw; returns where the next thing may begin."""
        self.text(0, LINE, "Nothing was measured.", role="muted")
        return LINE + 8.0

    def is_free(self, box: Box) -> bool:
        """Whether a box is on the canvas, and clear of all words so far."""
        left, top, right, bottom = box
        apart = all(left >= r or right <= l or top >= b or bottom <= t for l, t, r, b in self._boxes)  # noqa: E741
        return apart and left >= 0 and right <= self.width and top >= 0

    def legend(self, chips: Sequence[Chip], y: float) -> float:
        """Rows of names beside their looks; returns where the next thing may begin."""
        x = 0.0
        for chip in chips:
            words = fitted(chip.name, self.width - 20)
            wide = 20 + text_width(words)
            if x and x + wide > self.width:
                x, y = 0.0, y + LINE + 2
            self.add(self._look(chip, x, y + 9))
            self.text(x + 20, y + 13, words, full=chip.name)
            x += wide + 16
        return y + LINE + 12 if chips else y

    def _look(self, chip: Chip, x: float, y: float) -> str:
        if chip.look == "area":
            return element("rect", x=x + 1, y=y - 6, width=12, height=12, rx=2, fill=self.colour(chip.role))
        line = element("path", d=f"M{number(x)} {number(y)}h14", stroke=self.colour(chip.role), stroke_width="2.5")
        if chip.look == "diamond":
            return self.diamond(x + 7, y, chip.role)
        return ("" if chip.look == "dot" else line) + ("" if chip.look == "curve" else self.dot(x + 7, y, chip.role))

    def dot(self, x: float, y: float, role: str, *, hollow: bool = False) -> str:
        colours = {"fill": self.colour("panel" if hollow else role)} | (
            {"stroke": self.colour(role), "stroke_width": "2"} if hollow else {}
        )
        return element("circle", cx=x, cy=y, r=3.5 if hollow else 4, **colours)

    def diamond(self, x: float, y: float, role: str) -> str:
        return element(
            "path", d=f"M{number(x - 5.5)} {number(y)}l5.5-5.5 5.5 5.5-5.5 5.5z", fill=self.colour("panel"),
            stroke=self.colour(role), stroke_width=2,
        )  # fmt: skip

    def svg(self, height: float, words: str, kind: str) -> str:
        """The whole, as a part of a page that belongs to a class, or as a file."""
        few = sum(bool(explanation) for _, explanation in self._parts) <= MOST_FOCUSED and not self._in_file
        marks = any(explanation for _, explanation in self._parts) and few
        inside = "".join(_explained(svg, escaped(told), few=few) for svg, told in self._parts)
        margin = FILE_MARGIN if self._in_file else 0
        wide, high = (number(each + 2 * margin) for each in (self.width, height))
        box = f"{number(-margin)} {number(-margin)} {wide} {high}"
        # Parts of an image are hidden from those who have the page read out; those of a group are not.
        head = f'viewBox="{box}" role="{"group" if marks else "img"}" aria-label="{escaped(words)}"'
        if not self._in_file:
            return f'<svg class="{kind}" {head}>{inside}</svg>'
        ground = f'<rect x="{number(-margin)}" y="{number(-margin)}" width="100%" height="100%" '
        ground += f'fill="{self.colour("panel")}"/>'
        style = f'width="{wide}" height="{high}" font-family="{FAMILY}" font-size="{SIZE}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {style} {head}>{ground}{inside}</svg>'


def box_of(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False) -> Box:
    wide = text_width(words, bold=bold)
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    return left, y - 12, left + wide, y + 4


def _explained(svg: str, words: str, *, few: bool) -> str:
    if not words:
        return svg
    focus = f' tabindex="0" role="img" aria-label="{words}"' if few else ""
    return f"<g{focus}><title>{words}</title>{svg}</g>"
