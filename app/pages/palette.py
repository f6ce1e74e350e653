"""Colours of charts by their role, for light and dark pages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Colour:
    """A colour on the light panel and on the dark one."""

    light: str
    dark: str


INK, PANEL = Colour("#1b1d21", "#e8eaee"), Colour("#ffffff", "#1d2026")
LEAST_CONTRAST = 4.5  # of words with what is behind them, by WCAG 2.1, 1.4.3
FRAME = {"ink": INK, "muted": Colour("#62676f", "#a2a8b3"), "grid": Colour("#dcdfe4", "#3a3f48"), "panel": PANEL}

# tests/unit/test_palette.py holds what these were searched for: contrast with the panel, differences that readers
# without red or green cones see, and, between neighbours in a bar, a step of lightness for grey print.
PHASES = {  # in the order of a step: computing is blue, waiting amber, the network red
    "data": Colour("#454955", "#6e717f"),
    "forward": Colour("#0070c8", "#73abff"),
    "backward": Colour("#003e91", "#3f65c9"),
    "wait": Colour("#c38900", "#feb400"),
    "sync": Colour("#af313b", "#e36063"),
    "optimiser": Colour("#5b9ea8", "#8acdd7"),
}
HIDDEN = {"hidden": Colour("#c6827d", "#f8b0aa")}
UNDIVIDED = {"undivided": Colour("#b75714", "#f38a4b")}  # wait or sync, where a mode cannot tell them apart
SERIES = {
    "series-0": Colour("#1d60e7", "#7f8eff"),
    "series-1": Colour("#bc8b10", "#f2bb48"),
    "series-2": Colour("#0da595", "#00dbc6"),
    "series-3": Colour("#88124c", "#bc4978"),
    "series-4": Colour("#119dda", "#83ccfe"),
    "series-5": Colour("#763221", "#a85e49"),
    "series-6": Colour("#00865a", "#2eb982"),
    "series-7": Colour("#214097", "#5b6ac8"),
    "series-8": Colour("#9d4d00", "#d77927"),
    "series-9": Colour("#007179", "#00a3ae"),
}


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21, as WCAG 2.1 defines it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = ((int(colour[place : place + 2], 16), int(other[place : place + 2], 16)) for place in (1, 3, 5))
    return "#" + "".join(f"{round(one + (two - one) * share):02x}" for one, two in pairs)


def _readable(colour: str, panel: str, ink: str) -> str:
    """The colour, mixed with ink until words in it can be read on the panel."""
    return next(
        mixed for step in range(21) if contrast(mixed := _mixed(colour, ink, step / 20), panel) >= LEAST_CONTRAST
    )


def words_on(role: str) -> str:
    """The role of words written on an area of this role."""
    return f"{role}-inside"


def words_beside(role: str) -> str:
    """The role of words in the colour of a line of this role."""
    return f"{role}-words"


def _inside(colour: str) -> str:
    return max(("#ffffff", INK.light), key=lambda words: contrast(words, colour))


DRAWN = PHASES | HIDDEN | UNDIVIDED | SERIES
COLOURS = (
    FRAME
    | DRAWN
    | {words_on(role): Colour(_inside(each.light), _inside(each.dark)) for role, each in DRAWN.items()}
    | {
        words_beside(role): Colour(
            _readable(each.light, PANEL.light, INK.light), _readable(each.dark, PANEL.dark, INK.dark)
        )
        for role, each in DRAWN.items()
    }
)


def series(place: int) -> str:
    """The role of a line among others; colours repeat where there are more lines than colours."""
    return f"series-{place % len(SERIES)}"


def _variables(theme: str) -> str:
    return "".join(f"--{role}:{getattr(each, theme)};" for role, each in COLOURS.items())


STYLE = (
    f":root{{{_variables('light')}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables('dark')}}}}}"
    f"@media print{{:root{{{_variables('light')}}}}}"
)
