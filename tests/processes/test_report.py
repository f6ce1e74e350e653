"""Reports of real runs, as a reader's browser shows them: all that was measured, nothing else, and nothing invented."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sin
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.analysis import run_records
from app.analysis.run import Run
from app.analysis.units import digits
from app.pages import drawings, page
from app.pages.series import MOST_POINTS
from app.records import journal
from app.records import lines as records
from app.records.lines import PHASES, OverlappedMessage, Record, Step, Usage
from tests.processes import group
from tests.processes.browser import HEIGHT, NARROW, WIDE, Browser

RUNS = ("pair", "alone")  # two ranks with DistributedDataParallel; and one, with a single sample of its usage
HOSTILE = """<i>&"'$y$</i><script>document.title="bad"</script><img src=x onerror='document.title="bad"'>{{ 7 * 7 }}"""
MOST_BYTES = 600_000
MOST_SCREENS = 3  # before the first fold
LEAST_TEXT = 12  # pixels

Row = dict[str, Any]
Shape = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with finished runs."""
    folder = tmp_path_factory.mktemp("place")
    group.run(folder, 2, RUN_NAME="pair", SYNC_MODE="ddp", EPOCHS=2, LINK_CHECK="strict", USAGE_INTERVAL=0.1)
    group.run(folder, 1, RUN_NAME="alone", SYNC_MODE="all_reduce", MAX_STEPS=3, EVALUATE="never", USAGE_INTERVAL=3600)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all pages."""
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, place: Path) -> Path:
    """The folder of each of the runs."""
    return place / "results" / str(request.param)


def content(path: Path) -> Any:
    return json.loads(path.read_text())


# What the tables must show, looked up in the files of the run


def expected(folder: Path) -> dict[str, list[Row]]:
    """The rows of each table, by the columns' names; a name that is not there was not measured."""
    manifest, summary = content(folder / "manifest.json"), content(folder / "summary.json")
    whole = {"rank": "all", "steps": summary["steps"]}
    names = [{"rank": f"rank {rank['rank']}"} for rank in summary["ranks"]]
    ranks = list(zip(names, summary["ranks"], manifest["ranks"], strict=True))
    about = [("started", manifest["started_at"]), ("data set", manifest["dataset"])]
    about += [("parameters", manifest["parameters"])]
    about += [("steps", manifest["plan"]["steps"])]
    about += [(f"version of {name}", value) for name, value in manifest["versions"].items()]
    packages = manifest["image"]["package_versions"] or {}
    about += [(f"image: {name}", value) for name, value in manifest["image"].items() if name != "package_versions"]
    about += [(f"package {name}", value) for name, value in packages.items()]
    return {
        "times": [*(flat(rank) | name for name, rank, _ in ranks), flat(summary["run"]) | whole],
        "wall_clock": parts_of(summary["wall_clock"]),
        "bytes": [rank | name | {"sent_kernel_over_counted": excess(rank)} for name, rank, _ in ranks],
        "bandwidth": [summary["run"]["bandwidth"]] if summary["run"]["bandwidth"] else [],
        "links": [
            flat(rank["link"] | place["link"])
            | name
            | {"round_trip_seconds": place["link"]["round_trip"]["measured_seconds"]}
            for name, rank, place in ranks
            if place["link"]
        ],
        "scores": [
            party["epochs"][number] | {"epoch": epoch["epoch"] + 1} | name
            for number, epoch in enumerate(summary["run"]["epochs"])
            for name, party in [(whole, summary["run"]), *((name, rank) for name, rank, _ in ranks)]
            if number < len(party["epochs"])
        ],
        "usage": [
            (rank["usage"] or {}) | {"peak_memory_bytes": rank["peak_memory_bytes"]} | name for name, rank, _ in ranks
        ],
        "ranks": [place | name for name, _, place in ranks],
        "settings": [
            {"name": name, "value": value}
            for name, value in [*((name.upper(), value) for name, value in manifest["settings"].items()), *about]
        ],
    }


def parts_of(clock: Row | None) -> list[Row]:
    """Each part of the run's wall clock with its share of the whole."""
    names = ("start", "links", "training", "gaps between steps", "evaluation", "saving", "lost", "end", "whole run")
    fields = [*(f"{name.split()[0]}_seconds" for name in names[:-1]), "seconds"]
    return [
        {"part": name, "seconds": clock[field], "share": clock[field] / clock["seconds"]}
        for name, field in zip(names, fields, strict=True)
        if clock
    ]


def flat(tree: Row) -> Row:
    """`seconds_median` is the median among the seconds."""
    leaves: Row = {}
    for name, value in tree.items():
        leaves |= {f"{name}_{leaf}": each for leaf, each in flat(value).items()} if isinstance(value, dict) else {}
        leaves |= {} if isinstance(value, dict) else {name: value}
    return leaves


def excess(rank: Row) -> float | None:
    counted, seen = rank["bytes_sent_per_step"], rank["interface_bytes_sent_per_step"]
    return seen / counted - 1 if counted and seen is not None else None


TABLES = """
    return Object.fromEntries([...document.querySelectorAll("table[data-table]")].map(table => {
        const units = [...table.tHead.rows[0].cells].map(heading => heading.querySelector("small")?.textContent ?? "");
        return [table.dataset.table, [...table.tBodies[0].rows].map(row => [...row.cells].map((cell, place) =>
            [cell.dataset.name, cell.dataset.value ?? null, cell.textContent, units[place]]
        ))];
    }))
"""


# What a number is multiplied with where its heading says this.
UNITS = {"": 1, "s": 1, "ms": 1e3, "MB": 1e-6, "MB/s": 1e-6, "GB": 1e-9, "GB/s": 1e-9}


def check_tables(browser: Browser, folder: Path) -> None:
    """All numbers of the page and of the files beside it are those of summary.json and manifest.json, to the digit."""
    shown = browser.ask(TABLES)
    for name, rows in expected(folder).items():
        assert len(shown.get(name, [])) == len(rows), name
        written = list(csv.DictReader((folder / f"tables/{name}.csv").read_text().splitlines()))
        measured = {column for fields in written for column, value in fields.items() if value}
        for row, cells, fields in zip(rows, shown.get(name, []), written, strict=True):
            assert [column for column, *_ in cells] == [column for column in fields if column in measured]
            for column, value, words, unit in cells:
                check_cell(row.get(column), value, words, fields[column], UNITS[unit])


def check_cell(known: Any, value: str | None, words: str, field: str, unit: float) -> None:
    if known is None:
        assert (value, words, field) == (None, "-", "")
    elif isinstance(known, bool):
        assert (value, words, field) == (None, "yes" if known else "no", str(known))
    elif isinstance(known, str):
        assert field == known
        assert value is None
        assert words
        assert known.startswith(words)  # of a host, the beginning of its name will do
    else:
        assert value is not None
        assert json.loads(value) == json.loads(field) == known
        check_words(known * unit, words)


def check_words(known: float, words: str) -> None:
    """Rounded, but not to another number: two digits behind the point at least, or one of a percentage, or 0.5 %."""
    assert not re.search("[Ee][+]", words)
    if words.endswith("%"):
        assert float(words[:-1]) == pytest.approx(100 * known, abs=0.0501)
    else:
        assert float(words) == pytest.approx(known, rel=0.005, abs=0.00501)


# What is drawn

# Of each figure: what bears data, which is what is cut off at the axes and is no line of the grid; and its words.
DRAWN = """
    return Object.fromEntries([...document.querySelectorAll("figure[data-figure]:not(.missing)")].map(figure => {
        const drawing = [...figure.querySelectorAll("svg")].find(each => getComputedStyle(each).display != "none");
        const frame = drawing.getBoundingClientRect();
        const shapes = [...drawing.querySelectorAll("rect, path, circle")].map(shape => {
            const box = shape.getBoundingClientRect(), filled = !["none", null].includes(shape.getAttribute("fill"));
            return {
                width: box.width,
                colour: shape.getAttribute(filled ? "fill" : "stroke"),
                curve: !filled && (shape.getAttribute("d") ?? "").includes("l"),
                band: shape.getAttribute("opacity") === "0.22",
            };
        });
        const words = [...drawing.querySelectorAll("text")].map(text => {
            const box = text.getBoundingClientRect();
            return {
                text: text.textContent.slice((text.querySelector("title")?.textContent ?? "").length),
                size: parseFloat(getComputedStyle(text).fontSize) * frame.width / drawing.viewBox.baseVal.width,
                inside: box.left >= frame.left - 1 && box.right <= frame.right + 1
                    && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1,
            };
        });
        const marks = shapes.filter(each => !["var(--grid)", "var(--muted)", "var(--panel)"].includes(each.colour));
        return [figure.dataset.figure, {shapes: marks, words}];
    }))
"""
MISSING = """
    return Object.fromEntries([...document.querySelectorAll("figure[data-figure].missing")].map(
        figure => [figure.dataset.figure, figure.querySelector("figcaption").textContent]
    ))
"""


def check_figures(browser: Browser, folder: Path) -> dict[str, list[Shape]]:
    """Each figure shows something, with all its words within it, or says why there is nothing; what bears data."""
    drawn, missing = browser.ask(DRAWN), browser.ask(MISSING)
    assert {path.stem for path in (folder / "figures").iterdir()} == set(drawn)
    check_drawings(drawn)
    for name, why in missing.items():
        assert re.fullmatch(r"Not measured: \w.{10,}\.", why), name
    return {name: figure["shapes"] for name, figure in drawn.items()}


def check_drawings(drawn: dict[str, Any]) -> None:
    assert [name for name, figure in drawn.items() if not figure["shapes"] or not figure["words"]] == []
    cut = {name: [word["text"] for word in figure["words"] if not word["inside"]] for name, figure in drawn.items()}
    assert {name: words for name, words in cut.items() if words} == {}
    assert min(word["size"] for figure in drawn.values() for word in figure["words"]) >= LEAST_TEXT - 0.01


def coloured(shapes: list[Shape], role: str) -> list[Shape]:
    return [shape for shape in shapes if shape["colour"] == f"var(--{role})"]


# One finished run


def test_the_page_is_whole_in_itself_and_the_browser_has_nothing_to_say(run: Path, browser: Browser) -> None:
    browser.open(run / "report.html")
    assert browser.complaints() == []
    addresses = browser.ask(
        "return [...document.querySelectorAll('*')].flatMap(each => [...each.attributes])"
        ".filter(each => /^(xlink:)?(src|href)|^(srcset|data|action|poster)$/.test(each.name)).map(each => each.value)"
    )
    outward = [each for each in addresses if not each.startswith(("#", "data:"))]
    assert sorted(outward) == sorted(beside(run))  # files that a reader may fetch, and that the page does without
    assert browser.ask("return performance.getEntriesByType('resource').map(each => each.name)") == []
    assert browser.ask("return [...document.scripts].every(each => !each.src)")
    assert "url(http" not in (run / "report.html").read_text()
    named = browser.ask("return [...document.querySelectorAll('[id]')].map(each => each.id)")
    assert sorted({name for name in named if named.count(name) > 1}) == []  # a reference would find the wrong one


def beside(folder: Path) -> list[str]:
    """The files of tables with a row, and of all figures."""
    found = [path for kind in ("csv", "md", "tex") for path in (folder / "tables").glob(f"*.{kind}")]
    full = {path.stem for path in found if path.suffix == ".csv" and len(path.read_text().splitlines()) > 1}
    found = [path for path in found if path.stem in full] + list((folder / "figures").iterdir())
    return [str(path.relative_to(folder)) for path in found]


def test_all_that_the_summary_says_is_on_the_page(run: Path, browser: Browser) -> None:
    summary = content(run / "summary.json")
    browser.open(run / "report.html")
    text = browser.text()
    assert (
        browser.title
        == "Lockstep: " + {"pair": "LeNet-5, ddp, 2 ranks", "alone": "LeNet-5, all_reduce, 1 rank"}[run.name]
    )
    assert run.name in text
    assert "incomplete" not in text
    for sentence in [*summary["verdict"]["sentences"], *summary["warnings"]]:
        assert sentence.replace("`", "") in text


def test_every_number_is_the_one_that_was_measured(run: Path, browser: Browser) -> None:
    browser.open(run / "report.html")
    check_tables(browser, run)


def test_every_figure_shows_its_data(run: Path, browser: Browser) -> None:
    browser.open(run / "report.html")
    shapes = check_figures(browser, run)
    known = {figure.name for figure in drawings.of_run(Run(run))}
    assert {*shapes, *browser.ask(MISSING)} == known
    ranks = len(content(run / "summary.json")["ranks"])
    least = {"timeline": 5 * ranks, "steps": 1, "loss": 1, "cpu": 2 * ranks, "memory": ranks, "phases": 4 * ranks}
    least |= {"bytes": 2, "links": 2, "bandwidth": 3, "accuracy": 2} if ranks > 1 else {}
    assert {name: len(shapes[name]) >= count for name, count in least.items()} == dict.fromkeys(least, True)


def test_bars_are_as_long_as_their_phases_took(run: Path, browser: Browser) -> None:
    ranks = content(run / "summary.json")["ranks"]
    browser.open(run / "report.html")
    shapes = check_figures(browser, run)["phases"]
    longest = max(rank["backward_seconds"]["mean"] for rank in ranks)
    points = max(shape["width"] for shape in coloured(shapes, "backward")) / longest
    for phase in (*PHASES, "hidden_sync"):
        means = [(rank[f"{phase}_seconds"] or {"mean": 0})["mean"] * points for rank in ranks]
        widths = [shape["width"] for shape in coloured(shapes, "hidden" if phase == "hidden_sync" else phase)]
        assert alike(widths, means), phase
        assert alike(means, widths), phase


def alike(these: list[float], those: list[float]) -> bool:
    """Whether each of these has its like among those; what is as thin as a mark of the legend does not count."""
    return all(this < 14 or any(abs(this - that) < 0.3 for that in those) for this in these)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nobody_scrolls_sideways(run: Path, browser: Browser, width: int) -> None:
    browser.open(run / "report.html", width)
    check_width(browser, width)


def check_width(browser: Browser, width: int) -> None:
    """Wide tables and drawings scroll for themselves."""
    assert browser.ask("return window.innerWidth") == width
    assert browser.ask("return document.documentElement.scrollWidth") <= width


def test_in_the_dark_everything_turns_light(run: Path, browser: Browser) -> None:
    seen = []
    for dark in (False, True):
        browser.open(run / "report.html", dark=dark)
        page, panel, ink, muted = browser.ask(
            "const of = (name, what) => getComputedStyle(document.querySelector(name))[what];"
            "return [of('body', 'backgroundColor'), of('figure', 'backgroundColor'), of('body', 'color'),"
            " of('figcaption', 'color')]"
        )
        assert (brightness(page) < brightness(ink), brightness(panel) < brightness(muted)) == (dark, dark)
        seen.append({page, panel, ink, muted})
    assert not seen[0] & seen[1]


def brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)))


def test_every_figure_stands_alone_as_a_file(run: Path, browser: Browser) -> None:
    drawings = sorted((run / "figures").glob("*.svg"))
    assert drawings
    for path in drawings:
        assert "var(--" not in path.read_text()
        browser.open(path)
        assert browser.ask("return document.documentElement.tagName") == "svg"
        assert browser.ask("return document.querySelectorAll('parsererror').length") == 0
        assert browser.ask("return document.documentElement.getBBox().width") > 0
    assert browser.complaints() == []


@given(st.floats(1e-4, 1e9))
@example(999.7)
def test_a_rounded_number_is_still_the_same(value: float) -> None:
    check_words(value, digits(value))


# Names that are code


def test_names_are_shown_and_never_run(place: Path, browser: Browser, tmp_path: Path) -> None:
    folder = shutil.copytree(place / "results/pair", tmp_path / "run")
    browser.open(page.write(renamed(folder, HOSTILE)))
    check_harmless(browser)
    lines = browser.text()
    for where in ("{}", "name {}", "model {}", "warning {}"):
        assert where.format(HOSTILE) in lines


@pytest.mark.parametrize("name", [HOSTILE, "x" * 29, "x" * 99])  # 100 letters are the most that RUN_NAME may have
def test_names_in_drawings_find_room_and_are_no_code(
    name: str, place: Path, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [renamed(shutil.copytree(place / "results/pair", tmp_path / end), name + end) for end in ("1", "2")]
    browser.open(page.write_comparison(runs), NARROW)
    check_harmless(browser)
    drawn = browser.ask(DRAWN)
    check_drawings(drawn)
    check_width(browser, NARROW)
    assert sum(word["text"].startswith(name[:20]) for word in drawn["compared-loss"]["words"]) == 2


def renamed(folder: Path, name: str) -> Run:
    """A run that is called by this name, which stands wherever else somebody may put words."""
    manifest = content(folder / "manifest.json")
    manifest["settings"]["run_name"] = manifest["dataset"] = name
    manifest["ranks"][0] |= {"name": f"name {name}", "cpu_model": f"model {name}"}
    manifest["warnings"].append(f"warning {name}")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run = Run(folder)
    run.called = name
    return run


def check_harmless(browser: Browser) -> None:
    assert browser.complaints() == []
    assert browser.ask("return document.querySelectorAll('img, [onerror], body > * script').length") == 0
    assert browser.title != "bad"


# Runs that ended too early


def cut_in_a_line(folder: Path) -> None:
    """That of its sixth step."""
    path = journal.path_of(folder, 1)
    lines = path.read_text().splitlines(keepends=True)
    place = [number for number, line in enumerate(lines) if '"kind": "step"' in line][5]
    path.write_text("".join(lines[:place]) + lines[place][:100])


def lose_a_rank(folder: Path) -> None:
    """And with it what only both ranks' records together tell."""
    own = [
        replace(each, wait_seconds=None, sync_seconds=None) if isinstance(each, Step) else each
        for each in journal.read(folder, 0)
    ]
    journal.path_of(folder, 0).write_text("".join(map(records.as_line, own)))
    journal.path_of(folder, 1).unlink()


def lose_all_ranks(folder: Path) -> None:
    for rank in (0, 1):
        journal.path_of(folder, rank).unlink()


@pytest.mark.parametrize(
    ("die", "missing"),
    [
        (cut_in_a_line, {"network"}),
        (lose_a_rank, {"network", "links", "bandwidth", "timeline", "loss", "cores", "steps"}),
        (
            lose_all_ranks,
            {
                "phases",
                "timeline",
                "steps",
                "loss",
                "accuracy",
                "links",
                "bandwidth",
                "cpu",
                "cores",
                "network",
                "memory",
            },
        ),
    ],
)
def test_a_run_that_died_is_shown_as_far_as_it_came(
    die: Callable[[Path], None], missing: set[str], place: Path, browser: Browser, tmp_path: Path
) -> None:
    folder = shutil.copytree(place / "results/pair", tmp_path / "results/died")
    (folder / "summary.json").unlink()
    (folder / "report.html").unlink()
    die(folder)
    code, output = group.wait(group.start(f"report {folder}", tmp_path))
    assert (code, output) == (0, "Report: results/died/report.html\n")
    summary = content(folder / "summary.json")
    there = [len(rank.steps) for rank in run_records.read(folder).ranks]
    assert summary["complete"] is False
    assert [rank["steps"] for rank in summary["ranks"]] == there
    browser.open(folder / "report.html")
    assert browser.complaints() == []
    assert f"incomplete: {min(there)} of {summary['steps_planned']} steps" in browser.text()
    for sentence in [*summary["verdict"]["sentences"], *summary["warnings"]]:
        assert sentence.replace("`", "") in browser.text()
    check_tables(browser, folder)
    check_figures(browser, folder)
    reasons = browser.ask(MISSING)
    assert set(reasons) == missing
    if any(there):  # which no reason may deny
        assert not re.search(r"no step is there\.|nothing was sent", str(reasons))
    run, shares = summary["run"], summary["run"]["shares"] or {"sync": None, "wait": None}
    tiles = [run["seconds"], run["images_per_second"], shares["sync"], shares["wait"]]
    tiles.append(run["bytes_sent_per_step"])
    if content(folder / "manifest.json")["settings"]["evaluate"] != "never":
        tiles.append(run["accuracy"])
    shown = browser.ask("return [...document.querySelectorAll('.tile b')].map(each => each.textContent)")
    assert [words == "-" for words in shown] == [value is None for value in tiles]


# On the command line


@pytest.mark.parametrize(
    "command",
    ["report nonsense", "report pair nonsense", f"report {'nonsense' * 40}", "report pair --baseline nonsense"],
    ids=["report", "several", "longer than a file's name may be", "baseline"],
)
def test_of_what_is_no_run_the_known_runs_are_named(command: str, place: Path) -> None:
    code, output = group.wait(group.start(command, place))
    assert (code, output.count("\n")) == (2, 1), output
    assert f"error: [unknown-name] unknown run '{command.split()[-1][:120]}" in output
    assert "Runs in results/: alone, pair." in output


def test_without_a_run_there_is_nothing_to_report(tmp_path: Path) -> None:
    code, output = group.wait(group.start("report", tmp_path))
    assert code in (1, 2), output
    assert re.fullmatch("error: .*\n", output)


def test_the_present_run_needs_no_name(place: Path) -> None:
    code, output = group.wait(group.start("report", place))
    assert (code, output) == (0, "Report: results/alone/report.html\n")


def test_several_runs_get_one_page(place: Path, browser: Browser) -> None:
    code, output = group.wait(group.start("report pair alone", place))
    assert (code, output.splitlines()[-1]) == (0, "Report: results/comparisons/pair--alone/report.html")
    assert max(map(len, output.splitlines())) <= 80
    folder = place / "results/comparisons/pair--alone"
    browser.open(folder / "report.html")
    assert browser.complaints() == []
    text = browser.text()
    for name in RUNS:
        summary = content(place / "results" / name / "summary.json")
        assert f"{name}: {summary['verdict']['sentences'][0]}" in text
        for sentence in [*summary["verdict"]["sentences"], *summary["warnings"]]:
            assert sentence.replace("`", "") in text
    assert "SYNC_MODE: " not in text  # which is what they are compared by
    assert "MAX_STEPS: pair unset, alone 3" in text
    drawn = browser.ask(DRAWN)
    check_drawings(drawn)
    assert {"compared-phases", "compared-links", "compared-loss", "compared-bandwidth"} <= set(drawn)
    assert sum(shape["curve"] for shape in drawn["compared-loss"]["shapes"]) == 2
    named = browser.ask("return [...document.querySelectorAll('[id]')].map(each => each.id)")
    assert sorted({name for name in named if named.count(name) > 1}) == []
    rows = csv.DictReader((folder / "tables/compared.csv").read_text().splitlines())
    assert [row["run"] for row in rows] == by_speed(place)


def test_the_table_of_runs_sorts_by_any_heading(
    place: Path, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a click, or by the keyboard. What was not measured comes last in either order."""
    monkeypatch.chdir(tmp_path)
    browser.open(page.write_comparison([Run(place / "results" / name) for name in RUNS]))
    table = "document.querySelector('#table-compared table')"

    def shown() -> list[str]:
        return list(browser.ask(f"return [...{table}.tBodies[0].rows].map(row => row.cells[0].textContent)"))

    def sort_by(name: str) -> list[str]:
        cell = f"{table}.querySelector(`tbody [data-name='${{arguments[0]}}']`).cellIndex"
        browser.ask(f"{table}.tHead.rows[0].cells[{cell}].click()", name)
        return shown()

    assert shown() == by_speed(place)
    assert (sort_by("world_size"), sort_by("world_size")) == (["alone", "pair"], ["pair", "alone"])
    assert (sort_by("run"), sort_by("run")) == (["alone", "pair"], ["pair", "alone"])
    assert (sort_by("accuracy"), sort_by("accuracy")) == (["pair", "alone"], ["pair", "alone"])
    browser.ask(f"{table}.tHead.rows[0].cells[0].focus()")
    browser.press(" ")
    assert shown() == ["alone", "pair"]
    assert browser.ask(f"return {table}.tHead.rows[0].cells[0].ariaSort") == "ascending"


def test_on_the_terminal_the_fastest_comes_first(place: Path) -> None:
    code, output = group.wait(group.start("report alone pair", place))
    assert code == 0, output
    fast, slow = (content(place / "results" / name / "summary.json")["run"] for name in by_speed(place))
    rows = [line.split() for line in output.splitlines() if re.match(r"(alone|pair) +\d", line)]
    assert [row[0] for row in rows] == by_speed(place)
    ratio = fast["images_per_second"] / slow["images_per_second"]
    assert [row[2:4] for row in rows] == [["1.00", "x"], [f"{ratio:.2f}", "x"]]
    speeds = [float(row[1]) for row in rows]
    assert speeds == pytest.approx([each["images_per_second"] for each in (fast, slow)], rel=0.005)


def test_runs_are_compared_with_a_baseline_part_by_part(place: Path, browser: Browser) -> None:
    code, output = group.wait(group.start("report pair --baseline alone", place))
    assert (code, output.splitlines()[-1]) == (0, "Report: results/comparisons/pair--against-alone/report.html")
    folder = place / "results/comparisons/pair--against-alone"
    pair, alone = (content(place / "results" / name / "summary.json")["run"] for name in RUNS)
    browser.open(folder / "report.html", NARROW)
    assert browser.complaints() == []
    check_width(browser, NARROW)
    rows = list(csv.DictReader((folder / "tables/against.csv").read_text().splitlines()))
    assert [row["part"] for row in rows[:2]] == ["step", "data"]
    for row in rows:
        field = "seconds" if row["part"] == "step" else f"{row['part'].replace(' ', '_')}_seconds"
        own, base = (each[field]["mean"] if each[field] else None for each in (pair, alone))
        if base is None and row["part"] in ("wait", "sync", "hidden sync"):
            base = 0.0  # a single rank sends nothing
        assert row["difference"] == ("" if own is None or base is None else repr(own - base))
    said = "A step of pair takes "
    assert said in browser.text()
    assert said in output
    assert "variance" in output


def by_speed(place: Path) -> list[str]:
    speeds = {name: content(place / "results" / name / "summary.json")["run"]["images_per_second"] for name in RUNS}
    return sorted(speeds, key=lambda name: -speeds[name])


def test_nobody_waits_for_torch(place: Path) -> None:
    program = """if True:
        import sys
        from app.__main__ import main
        for sys.argv[1:] in (["report", "pair"], ["report", "pair", "alone"]):
            assert main() == 0
        assert "torch" not in sys.modules
    """
    environment = os.environ | {"PYTHONPATH": str(group.ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=place, env=environment, check=True)


# Long runs of many ranks


@pytest.mark.parametrize(("world_size", "steps"), [(4, 196), (8, 10_000)])
def test_a_page_stays_small_however_long_the_run(
    world_size: int, steps: int, place: Path, browser: Browser, tmp_path: Path
) -> None:
    lengthen(place / "results/pair", tmp_path, world_size, steps)
    began = time.monotonic()
    path = page.write(Run(tmp_path))
    print(f"{world_size} ranks, {steps} steps: {time.monotonic() - began:.1f} s, {path.stat().st_size / 1e6:.2f} MB")
    assert path.stat().st_size < MOST_BYTES
    browser.open(path)
    assert browser.complaints() == []
    shapes = check_figures(browser, tmp_path)
    assert browser.ask(MISSING) == {}
    assert ("neighbouring steps" in browser.text()) == (steps > MOST_POINTS)
    lines = {name: sum(shape["curve"] for shape in shapes[name]) for name in ("steps", "cpu", "network", "memory")}
    assert lines == {"steps": 1, "cpu": 2 * world_size, "network": 2 * world_size, "memory": world_size}
    bands = sum(shape["band"] for shape in shapes["steps"])
    assert bands == 1, "one line for all ranks hides none of them"
    assert len(shapes["bytes"]) == 3, "ranks that send the same are one bar"
    browser.ask("document.querySelectorAll('details').forEach(each => each.open = false)")
    assert browser.ask("return document.querySelector('details').getBoundingClientRect().top") < MOST_SCREENS * HEIGHT


def lengthen(source: Path, target: Path, world_size: int, steps: int) -> None:
    """A made-up run like a real one, with more ranks, each with an interface of its own, and more steps."""
    manifest = content(source / "manifest.json")
    manifest |= {
        "world_size": world_size,
        "ranks": [manifest["ranks"][0] | {"rank": each} for each in range(world_size)],
    }
    manifest["plan"] |= {"steps": steps}
    (target / "manifest.json").write_text(json.dumps(manifest))
    first = run_records.read(source).ranks[0]
    step = replace(first.steps[1], interface_bytes_sent=260_000, interface_bytes_received=260_000)
    usage = replace(first.usage[0], network_sent_bytes=260_000, network_received_bytes=260_000)
    own: list[Record] = [*first.clocks, *first.evaluations]
    lines = "".join(map(records.as_line, [*own, *like(step, usage, steps)]))
    for rank in range(world_size):
        journal.path_of(target, rank).write_text(lines.replace('"rank": 0', f'"rank": {rank}'))


def like(step: Step, usage: Usage, steps: int) -> Iterator[Record]:
    parts = ("seconds", "data_seconds", "forward_seconds", "backward_seconds", "exposed_sync_seconds")
    for number in range(steps):
        factor, at = 1.5 + sin(number), 2.0 * step.seconds * number
        scaled = {part: factor * getattr(step, part) for part in parts}
        ready = scaled["data_seconds"] + scaled["forward_seconds"] + scaled["backward_seconds"]
        ends = [ready * part for part in (0.7, 0.9, 1.0)]
        buckets = [OverlappedMessage(80_000, end - 0.2 * ready, end + 0.01 * ready) for end in ends]
        yield replace(
            step,
            step=number,
            epoch=number * 2 // steps,
            at_seconds=at,
            loss=2.0 + sin(number),
            wait_seconds=None,
            sync_seconds=None,
            hidden_sync_seconds=0.4 * ready,
            buckets=buckets,
            **scaled,
        )
        yield replace(usage, at_seconds=at, cpu_user_percent=50 + 50 * sin(number))
