"""The colours of charts, held by computation: in both themes, to colour-blind readers, and in grey print."""

from collections.abc import Iterable
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from app.pages import palette

Array = npt.NDArray[np.float64]

# Between neighbours. At 2.3 a difference is just seen side by side; at 10 it is seen at a glance, also across a gap.
LEAST_DIFFERENCE = 15.0  # CIEDE2000, of phases that touch
LEAST_DIFFERENCE_OF_LINES = 20.0  # CIEDE2000, between any two of the first four
LEAST_DIFFERENCE_OF_ANY = 12.0  # CIEDE2000, between any two phases, and any two series
LEAST_STEP_OF_GREY = 12.0  # in lightness, which goes from 0 to 100
LEAST_CONTRAST = 3.0  # WCAG 2.1, 1.4.11, of graphics with what is behind them
LEAST_CONTRAST_OF_WORDS = 4.5  # WCAG 2.1, 1.4.3
THEMES = ("light", "dark")

# Machado, Oliveira and Fernandes 2009, severity 1.0, in linear RGB
VISIONS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.119192, 0.9503041]]
)

# In a bar each phase touches the next one; without waits, without messages, across two steps, and behind backward.
TOUCHING = [
    *pairwise(palette.PHASES),
    ("backward", "sync"),
    ("backward", "optimiser"),
    ("optimiser", "data"),
    ("backward", "hidden"),
]
DRAWN = palette.PHASES | palette.HIDDEN  # together in a figure, beside which "undivided" stands for two of them


def shown(roles: Iterable[str], theme: str) -> dict[str, str]:
    return {role: str(getattr(palette.COLOURS[role], theme)) for role in roles}


def linear(colour: str) -> Array:
    """Red, green and blue as amounts of light."""
    share = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(colour: str, vision: str = "normal") -> Array:
    """CIELAB, at the white of a screen, as somebody with this vision sees it."""
    seen = np.clip(VISIONS[vision] @ linear(colour), 0, 1)
    share = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), (24389 / 27 * share + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: Array, other: Array) -> float:
    """CIEDE2000, as Sharma, Wu and Dalal 2005 write it down."""
    chroma = (np.hypot(*one[1:]) + np.hypot(*other[1:])) / 2
    stretch = 1 + 0.5 * (1 - np.sqrt(chroma**7 / (chroma**7 + 25**7)))
    (l1, c1, h1), (l2, c2, h2) = (
        (grey, np.hypot(stretch * a, b), np.degrees(np.arctan2(b, stretch * a)) % 360) for grey, a, b in (one, other)
    )
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    c, middle = (c1 + c2) / 2, ((l1 + l2) / 2 - 50) ** 2
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    t = 1 + sum(height * np.cos(np.radians(times * hue + shift)) for height, times, shift in waves)
    lightness = (l2 - l1) / (1 + 0.015 * middle / np.sqrt(20 + middle))
    colourful = (c2 - c1) / (1 + 0.045 * c)
    hued = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * c * t)
    blue = 2 * np.sqrt(c**7 / (c**7 + 25**7)) * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    return float(np.sqrt(lightness**2 + colourful**2 + hued**2 - blue * colourful * hued))


@pytest.mark.parametrize(
    ("one", "other", "known"),
    [  # of the data that Sharma, Wu and Dalal publish with their formula
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (58.0, 24.0, 15.0), 19.4535),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
    ],
)
def test_the_measure_of_colours_is_the_published_one(one: Array, other: Array, known: float) -> None:
    assert difference(np.array(one), np.array(other)) == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_phases_that_touch_are_distinct(vision: str, theme: str) -> None:
    seen = {name: lab(colour, vision) for name, colour in shown(DRAWN, theme).items()}
    apart = {pair: difference(seen[pair[0]], seen[pair[1]]) for pair in TOUCHING}
    assert {pair: by for pair, by in apart.items() if by < LEAST_DIFFERENCE} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_colours_of_a_figure_are_alike(vision: str, theme: str) -> None:
    for roles in (DRAWN, palette.SERIES):
        colours = shown(roles, theme).values()
        apart = {pair: difference(*(lab(each, vision) for each in pair)) for pair in combinations(colours, 2)}
        assert {pair: by for pair, by in apart.items() if by < LEAST_DIFFERENCE_OF_ANY} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_four_lines_are_far_apart(vision: str, theme: str) -> None:
    colours = [*shown(palette.SERIES, theme).values()][:4]
    apart = {pair: difference(*(lab(each, vision) for each in pair)) for pair in combinations(colours, 2)}
    assert {pair: by for pair, by in apart.items() if by < LEAST_DIFFERENCE_OF_LINES} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_in_grey_print_a_phase_ends_where_the_next_one_begins(theme: str) -> None:
    grey = {name: lab(colour)[0] for name, colour in shown(DRAWN, theme).items()}
    apart = {pair: abs(grey[pair[0]] - grey[pair[1]]) for pair in TOUCHING}
    assert {pair: step for pair, step in apart.items() if step < LEAST_STEP_OF_GREY} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_computing_is_blue_waiting_amber_and_the_network_red(theme: str) -> None:
    hues = {}
    for role, colour in shown(DRAWN, theme).items():
        _, a, b = lab(colour)
        hues[role] = float(np.degrees(np.arctan2(b, a)) % 360)
    assert all(200 < hues[role] < 300 for role in ("data", "forward", "backward", "optimiser")), hues
    assert 60 < hues["wait"] < 90
    assert all(hues[role] < 45 for role in ("sync", "hidden")), hues


@pytest.mark.parametrize("theme", THEMES)
def test_everything_drawn_stands_out_from_the_panel(theme: str) -> None:
    panel = shown(["panel"], theme)["panel"]
    drawn = shown((*DRAWN, *palette.UNDIVIDED, *palette.SERIES), theme)
    found = {role: palette.contrast(colour, panel) for role, colour in drawn.items()}
    assert {role: value for role, value in found.items() if value < LEAST_CONTRAST} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_all_words_can_be_read(theme: str) -> None:
    colours = shown(palette.COLOURS, theme)
    behind = {"ink": "panel", "muted": "panel"}
    for role in (*DRAWN, *palette.UNDIVIDED, *palette.SERIES):
        behind |= {palette.words_on(role): role, palette.words_beside(role): "panel"}
    found = {words: palette.contrast(colours[words], colours[ground]) for words, ground in behind.items()}
    assert {words: value for words, value in found.items() if value < LEAST_CONTRAST_OF_WORDS} == {}


def test_contrast_is_that_of_the_guidelines() -> None:
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_the_style_sheet_has_every_colour_in_both_themes_and_prints_the_light_one() -> None:
    for theme, count in (("light", 2), ("dark", 1)):
        for role, colour in shown(palette.COLOURS, theme).items():
            assert palette.STYLE.count(f"--{role}:{colour};") >= count
