"""A figure as the page shows it, or the reason why it is missing."""

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from app.pages import textures, theme


@dataclass(frozen=True)
class Drawing:
    """A figure as the page shows it; without a drawing it is missing, and `caption` says why."""

    name: str
    title: str
    caption: str
    svg: str | None
    png: bytes | None = None


class Missing(Exception):  # noqa: N818  # it is no error
    """What a figure would show was not measured."""


def draw[Subject](
    name: str, title: str, make: Callable[[Subject], tuple[Figure, str]], subject: Subject, *, png: bool = False
) -> Drawing:
    """Make a figure, in the style of all, or say why there is none; where asked for, as pixels too."""
    with mpl.rc_context(theme.STYLE):
        try:
            figure, caption = make(subject)
        except Missing as reason:
            return Drawing(name, title, f"Not measured: {reason}", None)
        textures.lay_over(figure)
        return Drawing(name, title, caption, theme.as_svg(figure, name), theme.as_png(figure) if png else None)
