"""The colours of the figures, held by computation: on both panels, to colour-blind readers, and in grey print."""

from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from app.pages import theme
from app.pages.textures import HATCHES

Array = npt.NDArray[np.float64]

# Between neighbours. At 2.3 a difference is just seen side by side; at 10 it is seen at a glance, also across a gap.
LEAST_DIFFERENCE = 15.0  # CIEDE2000, of phases that touch
LEAST_DIFFERENCE_1976 = 24.0  # the same by the older measure, the distance in CIELAB
LEAST_DIFFERENCE_OF_LINES = 20.0  # CIEDE2000, between any two of the first four
LEAST_DIFFERENCE_OF_ANY = 9.5  # CIEDE2000, between any two phases, and any two series
LEAST_STEP_OF_GREY = 14.0  # in lightness, which goes from 0 to 100
LEAST_CONTRAST = 3.0  # WCAG 2.1, 1.4.11, of graphics against what is behind them
PANELS = ("#ffffff", "#1d2026")

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

BAR = [*theme.PHASES]
# In a bar each phase touches the next one; without waits, without messages, across two steps, and behind backward.
TOUCHING = [
    *pairwise(BAR),
    ("backward", "sync"),
    ("backward", "optimiser"),
    ("optimiser", "data"),
    ("backward", "hidden"),
]
ALIKE_IN_GREY = ("backward", "sync")  # they touch only where nobody waited
COLOURS = theme.PHASES | {"hidden": theme.HIDDEN}


def linear(colour: str) -> Array:
    """Red, green and blue as amounts of light."""
    share = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(TO_XYZ[1] @ linear(colour))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


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


@pytest.mark.parametrize("vision", VISIONS)
def test_phases_that_touch_are_distinct(vision: str) -> None:
    seen = {name: lab(colour, vision) for name, colour in COLOURS.items()}
    pairs = {f"{one}, {other}": (seen[one], seen[other]) for one, other in TOUCHING}
    apart = {pair: (difference(*both), float(np.linalg.norm(both[0] - both[1]))) for pair, both in pairs.items()}
    assert {pair: by for pair, by in apart.items() if by[0] < LEAST_DIFFERENCE or by[1] < LEAST_DIFFERENCE_1976} == {}


@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_colours_of_a_figure_are_alike(vision: str) -> None:
    for colours in (tuple(COLOURS.values()), theme.SERIES):
        apart = {pair: difference(*(lab(each, vision) for each in pair)) for pair in combinations(colours, 2)}
        assert {pair: by for pair, by in apart.items() if by < LEAST_DIFFERENCE_OF_ANY} == {}


@pytest.mark.parametrize("vision", VISIONS)
def test_four_lines_are_far_apart(vision: str) -> None:
    apart = {pair: difference(*(lab(each, vision) for each in pair)) for pair in combinations(theme.SERIES[:4], 2)}
    assert {pair: by for pair, by in apart.items() if by < LEAST_DIFFERENCE_OF_LINES} == {}


def test_in_grey_print_a_phase_ends_where_the_next_one_begins() -> None:
    apart = {pair: abs(lab(COLOURS[pair[0]])[0] - lab(COLOURS[pair[1]])[0]) for pair in {*TOUCHING} - {ALIKE_IN_GREY}}
    assert {pair: step for pair, step in apart.items() if step < LEAST_STEP_OF_GREY} == {}


def test_textures_tell_in_grey_print_what_lightness_cannot() -> None:
    """Backward, wait and sync each touch both others, and there is not enough lightness for three of them.

    Contrast with a white and with a dark panel leaves a range in which three colours are less than 10 apart.
    """
    least, most = LEAST_CONTRAST * (luminance(PANELS[1]) + 0.05), (luminance(PANELS[0]) + 0.05) / LEAST_CONTRAST
    range_of_lightness = 116 * (np.cbrt(most - 0.05) - np.cbrt(least - 0.05))
    assert range_of_lightness < 2 * 10
    one, other = (HATCHES.get(COLOURS[phase]) for phase in ALIKE_IN_GREY)
    assert one != other


@pytest.mark.parametrize("panel", PANELS)
def test_everything_drawn_stands_out_from_the_panel(panel: str) -> None:
    found = {colour: contrast(colour, panel) for colour in (*COLOURS.values(), *theme.SERIES)}
    assert {colour: value for colour, value in found.items() if value < LEAST_CONTRAST} == {}
