"""Charts: every word legible and clear of all others, valid whatever the data and the names are, and small."""

import math
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import get_args, get_type_hints
from xml.etree.ElementTree import Element
from xml.etree.ElementTree import fromstring as parsed

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.pages import palette
from app.pages.canvas import FILE_MARGIN, MOST_FOCUSED, SIZE, Box, box_of, fitted, path, text_width
from app.pages.chart import NARROW, STYLE, WIDE, Chart, as_file, in_page
from app.pages.naming import spread
from app.pages.plot import Plot
from app.pages.rows import Bars, Moment, Row, Span, Timeline, stacked
from app.pages.scale import Axis, digits, ruler, written, written_alike
from app.pages.traces import Panel, Trace

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = """<i>&"'$y$</i><script>alert(1)</script>]]>{{ 7 * 7 }}&amp;\x00\x1b\ud800é漢🦊"""
MOST_BYTES = 40_000  # of four curves with bands, in one width
MOST_BYTES_OF_A_RUN = 600_000
WHOLE = 0.6  # pixels that a box may be off, since coordinates have one decimal


def svgs(chart: Chart) -> list[Element]:
    """The wide and the narrow one of a page, and the file."""
    page, file = in_page(chart), as_file(chart)
    file.encode()  # no half characters
    assert page.startswith('<div class="chart"><svg class="wide"')
    return [*parsed(page), parsed(file.replace(f'xmlns="{SVG[1:-1]}" ', "", 1))]  # noqa: S314  # it is our own


def texts(svg: Element) -> list[tuple[str, Box]]:
    found = []
    for text in svg.iter("text"):
        words = "".join(text.itertext()) if not len(text) else text[0].tail or ""
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        bold = "font-weight" in text.attrib
        found.append((words, box_of(x, y, words, text.get("text-anchor", "start"), bold=bold)))
    return found


def overlap(one: Box, other: Box) -> bool:
    apart = one[2] <= other[0] + WHOLE or other[2] <= one[0] + WHOLE
    return not (apart or one[3] <= other[1] + WHOLE or other[3] <= one[1] + WHOLE)


def check(chart: Chart) -> None:
    """All that holds for every chart."""
    for svg, width in zip(svgs(chart), (WIDE, NARROW, WIDE), strict=True):
        margin = FILE_MARGIN if "class" not in svg.attrib else 0
        left, top, wide, high = map(float, svg.attrib["viewBox"].split())
        assert (left, top, wide) == (-margin, -margin, width + 2 * margin)
        right, bottom = float(width), high - 2 * margin
        assert svg.attrib["aria-label"]
        boxes = texts(svg)
        for words, box in boxes:
            inside = box[0] >= -WHOLE and box[2] <= right + WHOLE and box[1] >= -WHOLE and box[3] <= bottom + WHOLE
            assert inside, (words, box)
        for one, other in combinations(boxes, 2):
            assert not overlap(one[1], other[1]), (one, other)
        check_marks(svg, right, bottom)


def check_marks(svg: Element, right: float, bottom: float) -> None:
    for each in svg.iter():
        for name, value in each.attrib.items():
            if name in ("x", "y", "width", "height", "cx", "cy", "d", "r"):
                assert not re.search(r"nan|inf|e[+-]|\.\d\d", value), (name, value)
    for rect in svg.iter("rect"):
        if rect.attrib["width"] != "100%":
            x, y, wide, high = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            assert x >= -WHOLE
            assert y >= -WHOLE
            assert min(wide, high) >= 0
            assert x + wide <= right + WHOLE
            assert y + high <= bottom + WHOLE
    for dot in svg.iter("circle"):
        assert 0 <= float(dot.attrib["cx"]) <= right
        assert 0 <= float(dot.attrib["cy"]) <= bottom
    focused = [each for each in svg.iter("g") if "tabindex" in each.attrib]
    assert len(focused) <= MOST_FOCUSED
    assert all(each.attrib["role"] == "img" and each.attrib["aria-label"] for each in focused)
    assert svg.attrib["role"] == ("group" if focused else "img")


# Data


def line(name: str, values: Sequence[float], places: Sequence[float] | None = None) -> Trace:
    at = places or range(1, len(values) + 1)
    return Trace(name, at, values, [0.9 * each for each in values], [1.2 * each for each in values])


def plot(*traces: Trace, log: bool | None = None, **more: object) -> Plot:
    return Plot("A plot", Axis("ranks"), Axis("time", "s", log=log), [Panel(traces)])


def curves(count: int = 4, points: int = 240, panels: int = 1) -> Plot:
    source = random.Random(1)  # noqa: S311  # nothing secret

    def curve(number: int) -> Trace:
        values = [2 * math.exp(-place / 80) + source.random() / 5 + number / 4 for place in range(points)]
        low, high = ([each * factor for each in values] for factor in (0.9, 1.1))
        return Trace(f"rank {number}", [10.0 * place for place in range(points)], values, low, high, "curve")

    each = [Panel([curve(number) for number in range(count)], f"cell {place}") for place in range(panels)]
    return Plot("Loss", Axis("step", "count"), Axis("loss"), each if panels > 1 else [Panel(each[0].traces)])


def plain(chart: Plot) -> Plot:
    """The same without bands."""
    panels = [replace(panel, traces=[replace(trace, low=(), high=()) for trace in panel.traces])
              for panel in chart.panels]  # fmt: skip
    return replace(chart, panels=panels)


def bars(*names: str) -> Bars:
    rows = [
        Row(
            name,
            stacked([(phase, 0.01 + place / 10, phase) for place, phase in enumerate(palette.PHASES)]),
            [Span(0.1, 0.4, "hidden", "hidden sync")],
            value=1.6,
            low=1.5,
            high=1.7,
            published=1.9,
        )
        for name in names
    ]
    return Bars("Phases", Axis("time per step", "s"), rows)


def timeline(moments: int, ranks: int) -> Timeline:
    rows = [Row(f"rank {rank}", stacked([(phase, 0.1, phase) for phase in palette.PHASES], rank / 20),
                [Span(0.2, 0.25, "hidden", "hidden messages")]) for rank in range(ranks)]  # fmt: skip
    return Timeline("Timeline", Axis("time", "s"), [Moment(f"Step {each}: 600 ms", rows) for each in range(moments)])


# Laws


@pytest.mark.parametrize(
    "chart",
    [
        plot(line("one", [1.0, 2.0, 3.0])),
        plot(line("ring_all_reduce", [1.0, 2.0, 3.0]), line("ddp", [1.0, 2.0, 3.01])),
        plot(*(line(f"mode {each}", [1.0, 1.1, 1.2]) for each in range(10))),
        plot(*(line(f"a name that is too long for the margin {each}", [1.0, 50.0]) for each in range(3))),
        plot(line("ends early", [1.0, 9.0]), line("goes on", [1.0, 2.0, 3.0, 3.0])),
        Plot("p", Axis("rate", labels=[(1, "10mbit"), (2, "unshaped")]), Axis("time", "s", log=True),
             [Panel([line("a", [1e-3, 2e2])], levels=[(0.1, "half"), (0.12, "near"), (0.0, "none")],
                    shaded=(1, 1.5, "calibrated"))]),
        Plot("p", Axis("measured", "s", log=True), Axis("predicted", "s", log=True),
             [Panel([Trace("a", [0.1, 2], [0.12, 1.9], look="dot")])], tolerances=(0.25, 0.1)),
        Plot("p", Axis("measured", "s"), Axis("predicted", "s"),
             [Panel([Trace("a", [0.1, 2], [0.12, 1.9], look="diamond")])], tolerances=()),
        curves(),
        *(curves(2, 20, panels) for panels in (2, 3, 4, 5, 6)),
        bars("rank 0", "rank 1"),
        bars("ring_all_reduce with a name that goes on and on", "b"),
        *(timeline(moments, ranks) for moments in (1, 2, 3, 4) for ranks in (1, 8)),
    ],
)  # fmt: skip
def test_no_word_is_cut_off_or_covers_another(chart: Chart) -> None:
    check(chart)


def test_all_words_are_at_least_twelve_pixels_high() -> None:
    assert SIZE >= 12
    assert f"font:{SIZE}px" in STYLE
    for chart in (bars("a", "b"), curves(), timeline(3, 4)):
        page, file = in_page(chart), as_file(chart)
        assert "font-size" not in page
        assert re.findall('font-size="([^"]*)"', file) == [str(SIZE)]
        assert "transform" not in page + file
    switch = float(re.search(r"max-width:(\d+)px\)", STYLE)[1])  # type: ignore[index]
    least = float(re.search(r"min-width:(\d+)px", STYLE)[1])  # type: ignore[index]
    assert SIZE * switch / WIDE >= 11.99
    assert SIZE * least / NARROW >= 11.99


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0.001, 1000) | st.sampled_from([0.0, 1.0, -1.0])
NAMES = st.text(max_size=40) | st.sampled_from([HOSTILE, "ddp", "W" * 60])


@st.composite
def plots(draw: st.DrawFn) -> Plot:
    def trace(name: str) -> Trace:
        size = draw(st.integers(0, 5))
        x, y, low, high = (draw(st.lists(NUMBERS, min_size=size, max_size=size)) for _ in range(4))
        hollow = draw(st.lists(st.booleans(), max_size=size))
        return Trace(name, x, y, low, high, draw(st.sampled_from(get_args(get_type_hints(Trace)["look"]))), hollow)

    panels = [
        Panel(
            [trace(name) for name in draw(st.lists(NAMES, max_size=4, unique=True))],
            draw(NAMES),
            draw(st.lists(st.tuples(NUMBERS, NAMES), max_size=2)),
            draw(st.none() | st.tuples(NUMBERS, NUMBERS, NAMES)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    log = st.sampled_from([None, False, True])
    x = Axis(draw(NAMES), draw(st.sampled_from(["", "s", "B/s", "count"])), log=draw(log), zero=draw(st.booleans()))
    y = Axis(
        draw(NAMES),
        draw(st.sampled_from(["", "s", "share", "%"])),
        log=draw(log),
        most=draw(st.none() | st.floats(0.1, 100)),
    )
    return Plot(draw(NAMES) or "a", x, y, panels, draw(st.none() | st.just((0.25, 0.1))))


@settings(max_examples=80)
@given(plots())
def test_a_plot_of_anything_is_whole(chart: Plot) -> None:
    check(chart)


ROWS = st.builds(
    Row,
    NAMES,
    st.lists(st.builds(Span, NUMBERS, NUMBERS, st.sampled_from([*palette.PHASES]), NAMES), max_size=4),
    st.lists(st.builds(Span, NUMBERS, NUMBERS, st.just("hidden"), NAMES), max_size=2),
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
)


@settings(max_examples=60)
@given(st.lists(ROWS, max_size=4), NAMES)
@example([Row(HOSTILE, stacked([(HOSTILE, 1.0, "sync"), ("b", math.nan, "wait"), ("c", 0.5, "wait")]))], HOSTILE)
def test_rows_of_anything_are_whole(rows: list[Row], title: str) -> None:
    check(Bars(title or "a", Axis(title, "s"), [replace(row, spans=end_to_end(row.spans)) for row in rows]))
    check(Timeline(title or "a", Axis(title, "s"), [Moment(title, rows)] * 2))


def end_to_end(spans: Sequence[Span]) -> list[Span]:
    """In a bar no part lies over another."""
    return stacked([(span.name, span.end, span.role) for span in spans])


def test_names_are_shown_and_nothing_but_shown() -> None:
    chart = Bars(HOSTILE, Axis(HOSTILE), [Row(HOSTILE, [Span(0, 1, "sync", HOSTILE)])])
    assert "<script" not in in_page(chart) + as_file(chart)
    wide = svgs(chart)[0]
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\ud800", "\ufffd")
    assert wide.attrib["aria-label"] == shown
    assert any("".join(each.itertext()).startswith(shown) for each in wide.iter("g"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 1e-300])
def test_what_is_no_measurement_is_a_gap(value: float) -> None:
    chart = plot(Trace("a", [1, 2, 3, 4, 5], [1.0, 2.0, value, 2.0, 1.0], look="curve"))
    drawn = [each.attrib["d"] for each in svgs(chart)[0].iter("path") if each.get("stroke-linecap")]
    assert [each.count("M") for each in drawn] == [2]


@pytest.mark.parametrize("chart", [Plot("a", Axis("x"), Axis("y"), [Panel([])]), Plot("a", Axis("x"), Axis("y"), []),
                                   Bars("a", Axis("x"), []), Timeline("a", Axis("x"), [Moment("a", [])])])  # fmt: skip
def test_what_was_not_measured_is_said(chart: Chart) -> None:
    assert [words for words, _ in texts(svgs(chart)[0])] == ["Nothing was measured."]


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-7, 1e9])
def test_a_single_value_and_equal_values_are_drawn(value: float) -> None:
    for chart in (plot(Trace("a", [1], [value])), plot(Trace("a", [1, 2], [value, value]))):
        check(chart)
        assert len([*svgs(chart)[0].iter("circle")]) == len(chart.panels[0].traces[0].x)


def test_a_name_stands_for_one_line() -> None:
    with pytest.raises(ValueError, match="'ddp'"):
        in_page(plot(line("ddp", [1.0]), line("ring", [1.0]), line("ddp", [2.0])))
    same = [Panel([line("ddp", [1.0, 2.0])], title) for title in ("a", "b")]  # in several panels it is the same
    in_page(Plot("a", Axis("x"), Axis("y"), same))


def test_names_stand_at_the_ends_of_their_lines_in_their_colours() -> None:
    wide, narrow, _ = svgs(plot(line("ring_all_reduce", [1.0, 2.0]), line("ddp", [3.0, 6.0])))
    ends = {float(each.attrib["cy"]) for each in wide.iter("circle")}
    for number, name in enumerate(("ring_all_reduce", "ddp")):
        (text,) = (each for each in wide.iter("text") if each.text == name)
        assert text.attrib["fill"] == f"var(--{palette.words_beside(palette.series(number))})"
        assert min(abs(float(text.attrib["y"]) - 4 - end) for end in ends) < 1
    left = [box[0] for words, box in texts(narrow) if words in ("ring_all_reduce", "ddp")]
    assert min(left) < 40  # there is no room beside the lines, but in a legend above them


def test_lines_that_end_at_one_place_have_a_legend() -> None:
    chart = plot(*(line(f"mode {each}", [1.0, 1.0 + each / 1000]) for each in range(6)))
    tops = [box[1] for words, box in texts(svgs(chart)[0]) if words.startswith("mode")]
    assert max(tops) < 10
    assert len(tops) == 6


def test_parts_are_named_inside_where_there_is_room_and_once() -> None:
    for svg in svgs(bars("rank 0", "rank 1")):
        words = [words for words, _ in texts(svg)]
        for name in (*palette.PHASES, "hidden sync", "published"):
            assert words.count(name) == 1
        inside = [each for each in svg.iter("text") if each.get("text-anchor") == "middle"]
        assert {"sync"} <= {"".join(each.itertext()) for each in inside}


def test_what_is_not_verified_is_dashed_and_hollow() -> None:
    (svg, *_) = svgs(plot(Trace("a", [1, 2, 3, 4], [1, 2, 3, 4], hollow=[False, False, True, True])))
    assert [each.attrib["fill"] for each in svg.iter("circle")].count("var(--panel)") == 2
    solid, dashed = (each for each in svg.iter("path") if each.get("stroke-linecap"))
    assert "stroke-dasharray" in dashed.attrib
    assert solid.attrib["d"].count("M") == dashed.attrib["d"].count("M") == 1


def test_a_file_has_colours_of_its_own() -> None:
    for chart in (bars("a"), curves(), timeline(2, 2)):
        file = as_file(chart)
        assert "var(" not in file
        assert "class=" not in file
        assert 'xmlns="http://www.w3.org/2000/svg"' in file
        assert palette.PANEL.light in file
        assert not re.search("#[0-9a-f]{6}", in_page(chart))


def test_few_marks_have_the_focus_and_many_do_not() -> None:
    few, many = plot(line("a", [1.0] * 20)), plot(*(line(f"{each}", [1.0] * 20) for each in range(4)))
    assert in_page(few).count("tabindex") == 2 * 20
    assert in_page(many).count("tabindex") == 0
    assert in_page(many).count("<title>") == 2 * 80
    assert "focus-visible" in STYLE


def test_charts_are_small() -> None:
    wide, _ = re.findall("<svg.*?</svg>", in_page(curves()))
    assert len(wide) < MOST_BYTES
    run: list[Chart] = [plain(curves(8, 240, panels)) for panels in (2, 2, 1, 1)]
    run += [curves(8), curves(1), bars("a", "b"), timeline(3, 8)]
    assert sum(len(in_page(chart)) for chart in run) < 0.8 * MOST_BYTES_OF_A_RUN


def test_drawing_needs_no_heavy_library() -> None:
    program = "import sys; import app.pages.chart, app.pages.plot, app.pages.rows; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, text=True)
    assert {"matplotlib", "numpy", "pydantic", "jinja2"} & {*loaded.stdout.split()} == set()


# Numbers and ticks


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (17.7, "s", "17.7 s"),
        (0.35, "s", "350 ms"),
        (0.99996, "s", "1 s"),
        (0.000012, "s", "12 µs"),
        (1.2e9, "B", "1.2 GB"),
        (37.25e6, "B/s", "37.2 MB/s"),
        (17_700, "count", "17,700"),
        (17_700, "", "17,700"),
        (0.914, "share", "91.4 %"),
        (0.0, "s", "0 µs"),
        (-0.25, "s", "-250 ms"),
        (45, "%", "45 %"),
        (1.77e15, "", "1.77·10¹⁵"),
        (2e-9, "", "2·10⁻⁹"),
    ],
)
def test_numbers_are_written_for_people(value: float, unit: str, words: str) -> None:
    assert written(value, unit) == words


@given(st.floats(1e-4, 1e11))
def test_three_digits_are_right_and_never_an_exponent(value: float) -> None:
    words = digits(value)
    assert re.fullmatch(r"[\d,]+(\.\d+)?", words)
    assert float(words.replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_numbers_below_each_other_have_one_unit_and_as_many_places() -> None:
    assert written_alike([1.4, 0.902, None, 0.0], "s") == ["1.40 s", "0.90 s", "", "0.00 s"]
    assert written_alike([37.21e6, 39.0e6], "B") == ["37.2 MB", "39.0 MB"]
    assert written_alike([120.0, 0.0042], "s") == ["120 s", "0.0042 s"]


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9), st.integers(2, 12))
def test_ticks_are_nice_and_cover(thousandths: int, spanned: int, count: int) -> None:
    low, span = thousandths / 1000, spanned / 1000
    scale = ruler(Axis("a", zero=False), [low, low + span], count, cover=True)
    places = [tick.value for tick in scale.ticks]
    assert places[0] <= low + 1e-5 * span
    assert places[-1] >= (low + span) - 1e-5 * span
    assert (places[0], places[-1]) == (scale.low, scale.high)
    steps = [after - before for before, after in pairwise(places)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-3)
    assert f"{steps[0]:.2e}"[:4] in ("1.00", "2.00", "5.00")
    assert len(places) <= count + 2
    assert len(places) > count / 2.51  # no fewer than the smallest nice step gives
    labels = [tick.label for tick in scale.ticks]
    assert len({*labels}) == len(labels)
    for tick in scale.ticks:
        assert float(tick.label.replace(",", "")) == pytest.approx(tick.value, abs=steps[0] / 100)


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e9), st.integers(2, 8))
def test_ticks_of_a_logarithmic_scale_are_at_1_2_5_or_powers(low: float, factor: float, count: int) -> None:
    scale = ruler(Axis("a", "", log=True), [low, low * factor], count, cover=True)
    assert scale.low <= low * (1 + 1e-8)
    assert scale.high >= low * factor * (1 - 1e-8)
    places = [tick.value for tick in scale.ticks]
    assert len(places) >= 2
    digits_of = {f"{each:.6e}"[:8] for each in places}
    if factor > 10:
        assert digits_of <= {"1.000000", "2.000000", "5.000000"}
    assert all(scale.low <= each * (1 + 1e-8) and each <= scale.high * (1 + 1e-8) for each in places)


def test_a_scale_is_logarithmic_where_values_are_far_apart() -> None:
    assert ruler(Axis("a", log=None), [1, 6.1], 5).log
    assert not ruler(Axis("a", log=None), [1, 5.9], 5).log
    assert not ruler(Axis("a", log=None), [0, 100], 5).log
    assert ruler(Axis("a", log=None), [1, 5.9], 5).low == 0


def test_a_scale_has_the_unit_that_suits_it() -> None:
    short = ruler(Axis("time", "s"), [0.35], 5)
    assert short.title == "time, ms"
    assert [tick.label for tick in short.ticks][:3] == ["0", "100", "200"]
    far = ruler(Axis("time", "s", log=True), [1e-4, 1e2], 9)
    assert far.title == "time"
    assert {"1 ms", "1 s", "100 s"} <= {tick.label for tick in far.ticks}


# Words and shapes


@given(st.text(), st.floats(0, 500))
def test_words_fit_the_room_or_are_nothing_but_an_ellipsis(words: str, room: float) -> None:
    shown = fitted(words, room)
    assert text_width(shown) <= max(room, text_width("…"))
    assert shown == words or shown.endswith("…")


@given(st.lists(st.floats(0, 300), max_size=10))
def test_places_are_spread_in_their_order(wanted: list[float]) -> None:
    found = spread(wanted, 16, 0, 300)
    assert all(0 <= each <= 300 for each in found)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    assert all(found[b] - found[a] >= 16 - 1e-6 for a, b in pairwise(order))
    if all(b - a >= 16 for a, b in combinations(sorted(wanted), 2)):
        assert found == pytest.approx(wanted) or min(wanted) < 16 * len(wanted) or max(wanted) > 300 - 16 * len(wanted)


@given(st.lists(st.none() | st.tuples(st.floats(0, 720), st.floats(0, 400)), max_size=20))
def test_a_path_leads_through_its_points(points: list[tuple[float, float] | None]) -> None:
    found = [*followed(path(points))]
    assert len(found) == sum(point is not None for point in points)
    for (x, y), point in zip(found, filter(None, points), strict=True):
        assert (x, y) == pytest.approx(point, abs=0.051)


def followed(data: str) -> Iterator[tuple[float, float]]:
    for part in data.split("M")[1:]:
        start, steps = part.split("l")
        x, y = map(float, start.split())
        offsets = [float(each) for each in re.findall(r"-?[\d.]+", steps)]
        for right, down in zip(offsets[::2], offsets[1::2], strict=True):
            x, y = x + right, y + down
            yield x, y
