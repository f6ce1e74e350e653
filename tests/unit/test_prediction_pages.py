"""The pages of predictions and verifications: they have the numbers, say what nobody has verified, and are whole."""

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app import modes
from app.analysis.units import digits
from app.analysis.words import duration
from app.pages.chart import in_page
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan
from app.tools.prediction import calibration, cells, tables
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.names import RANKS, RATE, telling
from app.tools.prediction.pages import curves, errors, findings, phases, predicted, verified
from app.tools.prediction.pages.lines import axes_of, lines
from app.tools.prediction.pages.predicted import Predicted
from app.tools.prediction.pages.verified import Verified
from app.tools.prediction.verification import PREDICTIONS, Checked, Measured, score
from tests.runs import manifest

ROOT = Path(__file__).parents[2]
KNOWN = calibration.parse((ROOT / "tests/calibrations/known.json").read_bytes())
COMPRESSORS = set(modes.COMPRESSORS)
SEALED = "2026-01-01T00:00:00Z"

BY_RANKS = ("WORKERS=1,3,7,15,31", "SYNC_MODE=ring_all_reduce,all_reduce", "MODEL=lenet5", "LINK_RATE=100mbit")
BY_RATE = ("LINK_RATE=50mbit,100mbit,1gbit", "SYNC_MODE=ring_all_reduce,tree", "MODEL=lenet5", "WORKERS=3")
NEITHER = ("RANK_CPUS=0.25,0.5", "MODEL=lenet5", "LINK_RATE=100mbit")


class Page(HTMLParser):
    """Its text, and the elements that are still open at its end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text())
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """One that holds nothing."""

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        assert not self.open
        return " ".join(" ".join(self.words).split())


@cache
def forecasts(*words: str) -> list[Forecast]:
    return cells.forecasts(cells.asked(words), KNOWN, one_host=False)


def write(folder: Path, *words: str) -> Path:
    found = forecasts(*words)
    limits = ["ring_all_reduce, 100mbit: efficiency falls under a half at 5 ranks."]
    return predicted.write(Predicted(words, [], found, limits, [tables.predicted(found)]), folder)


@pytest.mark.parametrize(
    ("words", "figures"),
    [
        (BY_RANKS, ["efficiency", "phases-by-ranks", "seconds-by-ranks"]),
        (BY_RATE, ["phases-by-rate", "seconds-by-rate"]),
        (NEITHER, ["phases"]),
    ],
)
def test_a_page_is_whole_in_itself_and_has_the_figures_of_what_differs(
    words: tuple[str, ...], figures: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path, *words)
    page, text = Page(path), path.read_text()
    for each in forecasts(*words):
        assert f'data-value="{each.seconds}"' in text
        assert f'data-value="{each.interval[1]}"' in text
    assert re.findall(r'(?:src|href)="(?!tables/|figures/|data:,|#)[^"]*', text) == []
    assert not re.search(r"url\((?!#)|@import|<script .*src", text)
    assert sorted(re.findall(r'data-figure="([^"]*)"', text)) == figures
    assert sorted(each.stem for each in (tmp_path / "figures").glob("*.svg")) == figures
    for name in figures:
        Page(tmp_path / f"figures/{name}.svg")
    assert "Where more ranks stop paying" in page.text
    identifiers = re.findall(r' id="([^"]*)"', text)
    assert len(identifiers) == len(set(identifiers))


def test_the_same_predictions_make_the_same_page(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, *BY_RANKS).parent for name in "ab"]
    parts = [{each.name: each.read_bytes() for each in folder.rglob("*.*") if each.is_file()} for folder in folders]
    assert parts[0] == parts[1]


def test_what_nobody_has_verified_is_dashed_and_said(tmp_path: Path) -> None:
    said = "simulated, not verified beyond 8 ranks"
    assert Page(write(tmp_path, *BY_RANKS)).text.count(said) >= 4, "in the reading, and below each of three figures"
    assert said not in Page(write(tmp_path, *BY_RATE)).text
    plot, _ = curves.seconds(forecasts(*BY_RANKS), RANKS)
    for trace in plot.panels[0].traces:
        assert dict(zip(trace.x, trace.hollow, strict=True)) == {2: False, 4: False, 8: False, 16: True, 32: True}
    drawn = in_page(plot)
    assert drawn.count("stroke-dasharray") == 4, "a dashed part of both lines, at both widths"


def test_curves_have_the_values_of_their_cells_their_intervals_and_references() -> None:
    found = forecasts(*BY_RANKS)
    plot, caption = curves.seconds(found, RANKS)
    traces = {trace.name: trace for trace in plot.panels[0].traces}
    assert list(traces) == ["ring_all_reduce", "all_reduce"]
    for line in lines(found, RANKS):
        trace = traces[line.name]
        assert list(trace.y) == [each.seconds for each in line.cells]
        assert [*zip(trace.low, trace.high, strict=True)] == [each.interval for each in line.cells]
    assert (plot.x.title, plot.x.labels[-1], plot.y.title, plot.y.unit) == ("ranks", (32, "32"), "time per step", "s")
    assert "four of five measured steps" in caption
    plot, caption = curves.efficiency(found)
    assert [trace.y[0] for trace in plot.panels[0].traces] == [found[0].efficiency, found[1].efficiency]
    assert plot.panels[0].levels == [(0.5, "a half")]
    assert "Dotted: a half." in caption


def test_rates_are_named_as_they_are_set_and_those_of_the_calibration_are_shaded() -> None:
    plot, caption = curves.seconds(forecasts(*BY_RATE), RATE)
    assert plot.x.labels == [(50e6, "50mbit"), (100e6, "100mbit"), (1e9, "1gbit")]
    assert plot.x.log
    assert plot.panels[0].shaded == (KNOWN.domain.least_rate, KNOWN.domain.most_rate, "calibrated rates")
    assert caption.endswith("Grey: the rates of the calibration.")


def test_figures_of_phases_have_shares_along_an_axis_and_seconds_of_each_cell() -> None:
    plot, caption = phases.along(forecasts(*BY_RANKS), RANKS)
    assert [panel.title for panel in plot.panels] == ["ring_all_reduce", "all_reduce"]
    for panel in plot.panels:
        assert [trace.name for trace in panel.traces] == ["computing", "wait", "sync", "optimiser"]
        assert np.sum([trace.y for trace in panel.traces], axis=0) == pytest.approx(1.0)
    assert "Dashed: simulated" in caption
    found = forecasts(*NEITHER)
    bars, caption = phases.by_cell(found)
    assert [row.name for row in bars.rows] == ["RANK_CPUS=0.25", "RANK_CPUS=0.5"]
    for row, each in zip(bars.rows, found, strict=True):
        assert (row.value, row.low, row.high) == (each.seconds, *each.interval)
        assert row.spans[-1].end == pytest.approx(each.seconds)
        assert sum(span.end for span in row.below) == each.hidden
    assert "80 % interval" in caption


def test_of_more_than_a_figure_can_show_captions_count_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST_LINES", 1)
    monkeypatch.setattr(phases, "MOST_PANELS", 1)
    monkeypatch.setattr(phases, "MOST_ROWS", 1)
    plot, caption = curves.seconds(forecasts(*BY_RANKS), RANKS)
    fastest = min(lines(forecasts(*BY_RANKS), RANKS), key=lambda line: line.last.seconds)
    assert [trace.name for trace in plot.panels[0].traces] == [fastest.name]
    assert "Of 2 lines, the 1 that end fastest are drawn." in caption
    assert "The first 1 of 2 lines are drawn." in phases.along(forecasts(*BY_RANKS), RANKS)[1]
    assert "The first 1 of 2 cells are drawn." in phases.by_cell(forecasts(*NEITHER))[1]


def test_lines_are_cells_that_differ_in_nothing_but_the_axis() -> None:
    found = forecasts(*BY_RANKS)
    assert [each.name for each in lines(found, RANKS)] == ["ring_all_reduce", "all_reduce"]
    assert [[cell.setup.ranks for cell in each.cells] for each in lines(found, RANKS)] == [[2, 4, 8, 16, 32]] * 2
    assert (axes_of(found), axes_of(forecasts(*BY_RATE)), axes_of(forecasts(*NEITHER))) == ([RANKS], [RATE], [])


def test_a_setting_that_follows_from_another_names_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts/experiments")
    found = cells.forecasts(cells.of_grid(grid.read("cells")), KNOWN, one_host=True)[:63]  # the first two blocks
    assert telling(found, RANKS) == ["SYNC_MODE", "MODEL", "LINK_RATE"], "and not the steps and batches of each model"
    panels = curves.by_panel(found, RANKS)
    assert list(panels) == ["vgg11, 500mbit", "vgg11, 2gbit", "lenet5, 400mbit"]
    assert [len(each) for each in panels.values()] == [6, 6, 5]


def test_the_headline_has_the_finding_and_its_number() -> None:
    found = forecasts(*BY_RANKS)
    two = {each.setup.settings.averaging.sync_mode: each for each in found if each.setup.ranks == 8}
    one, other = two["ring_all_reduce"], two["all_reduce"]
    first = next(findings.reading(found))
    if one.seconds < other.seconds / 1.3:
        assert first.startswith(f"ring_all_reduce is the fastest with 8 ranks: {duration(one.seconds)} a step.")
        assert digits(other.seconds / one.seconds) in first
    alone = [each for each in found if each.setup.settings.averaging.sync_mode == "ring_all_reduce"]
    best = min(alone, key=lambda each: each.seconds)
    assert f"shortest with {best.setup.ranks} ranks: {duration(best.seconds)}" in next(findings.reading(alone))
    assert duration(alone[0].seconds) in next(findings.reading(alone[:1]))


def test_no_mode_is_called_faster_within_the_intervals() -> None:
    """A ring and its halves take the same time on links that alone cost time."""
    found = forecasts("SYNC_MODE=ring_all_reduce,halving_doubling", "LINK_RATE=100mbit", "MODEL=lenet5")
    assert next(findings.reading(found)).startswith("No way to synchronise is slower than another")


def test_what_synchronises_nothing_is_not_called_the_fastest() -> None:
    found = forecasts("SYNC_MODE=none,ring_all_reduce,tree", "LINK_RATE=100mbit", "MODEL=lenet5")
    assert list(findings.comparisons(found)[0].cells) == ["ring_all_reduce", "tree"]


def test_reasons_that_differ_in_a_number_alone_are_one() -> None:
    told = list(findings.outside(forecasts(*BY_RANKS)))
    assert "16 to 32 ranks: simulated, not verified beyond 8 (4 of 10 cells)" in told


# A verification: runs that are a tenth longer than predicted, but for one that is twice as long.


def checked() -> list[Checked]:
    found = []
    for number, each in enumerate(forecasts(*BY_RANKS)[:6]):
        slow = 2.0 if number == 5 else 1.1
        run = {phase: slow * seconds for phase, seconds in each.simulated.means.items()}
        found.append(Checked(each, Measured([run, run], [1.0, 1.0], [1.0, 1.0])))
    return found


def write_verification(folder: Path, sealed: float = 1.0, began: str = "2026-01-01T00:01:00Z") -> Path:
    found = checked()
    folder.mkdir(exist_ok=True)
    content = {"cells": [{"cell": each.forecast.name, "seconds": sealed * each.forecast.seconds} for each in found]}
    (folder / PREDICTIONS).write_text(json.dumps(content))
    os.utime(folder / PREDICTIONS, (1767225600, 1767225600))
    results: Any = SimpleNamespace(
        all_runs=[SimpleNamespace(manifest=manifest(started_at=began))], plan=ExperimentPlan(folder, [])
    )
    whole = score(found)
    verdict = list(tables.verdict(whole))
    return verified.write(
        Verified("cells", False, KNOWN, found, whole, verdict, [tables.verified(found)], results, []), folder
    )


def test_a_verification_says_its_verdict_its_errors_and_what_was_sealed(tmp_path: Path) -> None:
    path = write_verification(tmp_path)
    page, text, found = Page(path).text, path.read_text(), checked()
    whole = score(found)
    assert not whole.holds
    assert f"The predictions do not hold: over 6 cells they are {whole.median_error:.1%} off in the median" in page
    assert f"{whole.p90_error:.1%} at the 90th percentile" in page
    for each in found:
        assert f'data-value="{each.error}"' in text
    assert re.search(r"[0-9a-f]{64}", page)
    assert f"The file is of {SEALED}; the first run began at 2026-01-01T00:01:00Z" in page
    assert "Warnings" not in page
    assert sorted(re.findall(r'data-figure="([^"]*)"', text)) == ["errors", "scatter"]
    assert re.findall(r'(?:src|href)="(?!tables/|figures/|data:,|#)[^"]*', text) == []
    identifiers = re.findall(r' id="([^"]*)"', text)
    assert len(identifiers) == len(set(identifiers))


def test_predictions_that_are_not_the_sealed_ones_are_told_of(tmp_path: Path) -> None:
    assert "6 of 6 predictions on this page are others" in Page(write_verification(tmp_path, sealed=1.01)).text
    later = Page(write_verification(tmp_path, began="2025-12-31T00:00:00Z")).text
    assert "predictions.json is younger than the first run" in later


def test_errors_by_kind_stand_beside_the_number_of_cells() -> None:
    table = errors.by_kind(checked())
    rows = {str(row[0]): row for row in table.rows}
    places = {column.name: number for number, column in enumerate(table.columns)}
    assert list(rows) == ["all", "ring_all_reduce", "all_reduce", "2 ranks", "4 ranks", "8 ranks"]
    assert [row[places["cells"]] for row in table.rows] == [6, 3, 3, 2, 2, 2]
    assert rows["ring_all_reduce"][places["median_error"]] == pytest.approx(1 - 1 / 1.1)
    assert rows["all"][places["most_error"]] == pytest.approx(0.5)
    assert rows["all"][places["direction"]] == "short"


def test_each_cell_is_a_mark_with_its_error_in_both_figures() -> None:
    found = checked()
    plot, caption = errors.scatter(found)
    assert (plot.tolerances, plot.x.log, plot.y.log) == ((0.2, 0.1), True, True)
    (panel,) = plot.panels
    assert panel.title == "lenet5"
    assert [trace.name for trace in panel.traces] == ["ring_all_reduce", "all_reduce"]
    marks = {mark for trace in panel.traces for mark in zip(trace.x, trace.y, trace.low, trace.high, strict=True)}
    assert marks == {(each.corrected, each.forecast.seconds, *each.forecast.interval) for each in found}
    assert "up to 10% and 20% off" in caption
    plot, _ = errors.errors_by_kind(found)
    limit, dots, medians = plot.panels[0].traces
    assert (limit.name, min(limit.x), max(limit.x)) == ("20% off", -0.2, 0.2)
    rows = dict(plot.y.labels)
    by_row: dict[str, list[float]] = {}
    for error, height in zip(dots.x, dots.y, strict=True):
        by_row.setdefault(rows[height], []).append(error)
    assert by_row["all (6)"] == [each.error for each in found]
    assert by_row["8 ranks (2)"] == [each.error for each in found if each.forecast.setup.ranks == 8]
    assert {rows[height]: error for error, height in zip(medians.x, medians.y, strict=True)} == {
        name: pytest.approx(float(np.median(each))) for name, each in by_row.items()
    }
    assert list(rows.values())[-1] == "all (6)", "on top"
    assert f"{found[-1].forecast.name}: -50.0%, " in in_page(plot)


def test_calibrations_have_every_compressor_that_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts/calibration")
    settings = [cell.settings for cell in grid.read("runs").cells]
    assert {each["COMPRESSION"] for each in settings if "COMPRESSION" in each} == set(COMPRESSORS)
