"""A figure of a page, or the reason why it is missing."""

from collections.abc import Callable
from dataclasses import dataclass

from app.pages.chart import Chart


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption. Without a chart it is missing, and the caption gives the reason."""

    name: str
    title: str
    caption: str
    chart: Chart | None


class Missing(Exception):  # noqa: N818  # it is no error
    """What a figure would show was not measured."""


def draw[Subject](name: str, title: str, make: Callable[[Subject], tuple[Chart, str]], subject: Subject) -> Drawing:
    try:
        chart, caption = make(subject)
    except Missing as reason:
        return Drawing(name, title, f"Not measured: {reason}", None)
    return Drawing(name, title, caption, chart)
