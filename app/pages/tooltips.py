"""What a browser says of a part of a drawing while the pointer is on it."""

import re

from matplotlib.artist import Artist

MARK = "tooltip: "  # matplotlib writes an artist's name as an id: one that begins like this becomes a title
UNTOUCHED = "pointer passes through"


def explain(artist: Artist, words: str) -> None:
    """Give a part of a figure its words."""
    artist.set_gid(MARK + words)


def let_through(artist: Artist) -> None:
    """Let the pointer reach what this part lies over."""
    artist.set_gid(UNTOUCHED)


def in_drawing(drawing: str) -> str:
    """An SVG with titles in place of the names that `explain` gave."""
    drawing = re.sub(rf'<g id="{MARK}([^"]*)">', r"<g><title>\1</title>", drawing)
    return drawing.replace(f'<g id="{UNTOUCHED}">', '<g pointer-events="none">')
