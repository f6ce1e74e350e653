"""The pages of predictions and verifications: they have the numbers, say what nobody has verified, and are whole."""

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean

import pytest

from app import modes
from app.analysis.units import digits
from app.analysis.words import duration
from app.pages.chart import in_page
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan, Trial
from app.tools.prediction import calibration, cells, findings, predicted, verified
from app.tools.prediction.findings import RANKS, RATE, lines
from app.tools.prediction.forecast import Forecast
from app.tools.prediction.limits import ranks_at_half
from app.tools.prediction.simulation import PHASES
from app.tools.prediction.verification import PREDICTIONS, Checked, score
from tests.runs import MANIFEST, participant

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
    return cells.forecasts(cells.asked(words)[1], KNOWN, one_host=False)


def write(folder: Path, *words: str) -> Path:
    found = forecasts(*words)
    limits = ["ring_all_reduce, 100mbit: efficiency falls under a half at 5 ranks."]
    return predicted.write("scripts/predict", found, limits, predicted.table(found), folder)


@pytest.mark.parametrize(
    ("words", "figures"),
    [
        (BY_RANKS, ["phases", "seconds-by-ranks"]),
        (BY_RATE, ["phases", "seconds-by-rate"]),
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
    assert "efficiency falls under a half at 5 ranks" in page.text
    assert f"{len(forecasts(*words))} cells, 0 with all ranks on one host" in page.text
    identifiers = re.findall(r' id="([^"]*)"', text)
    assert identifiers
    assert len(identifiers) == len(set(identifiers))


def test_the_same_predictions_make_the_same_page(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, *BY_RANKS).parent for name in "ab"]
    parts = [{each.name: each.read_bytes() for each in folder.rglob("*.*") if each.is_file()} for folder in folders]
    assert parts[0] == parts[1]


def test_what_nobody_has_verified_is_dashed_and_said(tmp_path: Path) -> None:
    assert Page(write(tmp_path, *BY_RANKS)).text.count("not verified") >= 3, "in reading, warnings, and a caption"
    assert "not verified" not in Page(write(tmp_path, *BY_RATE)).text
    plot, _ = predicted.seconds(forecasts(*BY_RANKS), RANKS)
    assert plot.panels[0].traces
    for trace in plot.panels[0].traces:
        assert dict(zip(trace.x, trace.hollow, strict=True)) == {2: False, 4: False, 8: False, 16: True, 32: True}
    drawn = in_page(plot)
    assert drawn.count("stroke-dasharray") == 4, "a dashed part of both lines, at both widths"


def test_curves_have_the_values_of_their_cells_and_their_intervals() -> None:
    found = forecasts(*BY_RANKS)
    plot, _ = predicted.seconds(found, RANKS)
    traces = {trace.name: trace for trace in plot.panels[0].traces}
    assert set(traces) == {"ring_all_reduce", "all_reduce"}
    for way, own in lines(found, RANKS)[""].items():
        trace = traces[way]
        assert list(trace.y) == [each.seconds for each in own]
        assert [*zip(trace.low, trace.high, strict=True)] == [each.interval for each in own]
    assert (plot.x.title, plot.x.labels[-1], plot.y.title, plot.y.unit) == ("ranks", (32, "32"), "time per step", "s")


def test_rates_are_named_as_they_are_set_and_those_of_the_calibration_are_shaded() -> None:
    plot, _ = predicted.seconds(forecasts(*BY_RATE), RATE)
    assert plot.x.labels == [(50e6, "50mbit"), (100e6, "100mbit"), (1e9, "1gbit")]
    assert plot.x.log
    assert plot.panels[0].shaded == (100e6, 1e9, "calibrated rates")


def test_bars_of_phases_add_up_to_the_step_of_each_cell() -> None:
    found = forecasts(*NEITHER)
    bars, _ = predicted.phases(found)
    assert [row.name for row in bars.rows] == ["RANK_CPUS=0.25", "RANK_CPUS=0.5"]
    for row, each in zip(bars.rows, found, strict=True):
        assert (row.value, row.low, row.high) == (each.seconds, *each.interval)
        assert [span.name for span in row.spans] == [phase for phase in PHASES if each.mean(phase)]
        assert row.spans[-1].end == pytest.approx(each.seconds)
        assert sum(span.end for span in row.below) == each.mean("hidden_sync")


def test_of_more_than_a_figure_can_show_captions_count_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted, "MOST_LINES", 1)
    monkeypatch.setattr(predicted, "MOST_ROWS", 1)
    plot, caption = predicted.seconds(forecasts(*BY_RANKS), RANKS)
    (ways,) = lines(forecasts(*BY_RANKS), RANKS).values()
    assert [trace.name for trace in plot.panels[0].traces] == [min(ways, key=lambda way: ways[way][-1].seconds)]
    assert "1 of 2 lines" in caption
    assert "1 of 2 cells" in predicted.phases(forecasts(*NEITHER))[1]


def test_lines_are_cells_that_differ_in_nothing_but_the_axis() -> None:
    found = forecasts(*BY_RANKS)
    (ways,) = lines(found[::-1], RANKS).values()
    assert [*ways] == ["all_reduce", "ring_all_reduce"]
    assert [[cell.ranks for cell in own] for own in ways.values()] == [[2, 4, 8, 16, 32]] * 2
    assert not lines(found, RATE)
    assert not lines(forecasts(*NEITHER), RANKS)


def test_lines_of_several_places_have_a_panel_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts/experiments")
    found = cells.forecasts(grid.read("cells").cells, KNOWN, one_host=True)[:63]  # the first two blocks
    places = lines(found, RANKS).values()
    assert [len(ways) for ways in places] == [6, 6, 5]
    assert {way for ways in places for way in ways} <= {*modes.MODES}


def test_the_headline_has_the_finding_and_its_number() -> None:
    """The star's links carry more with each rank, so the largest verified difference is that of 8 ranks."""
    found = forecasts(
        "WORKERS=1,3,7,15", "SYNC_MODE=ring_all_reduce,gather_scatter", "MODEL=lenet5", "LINK_RATE=10mbit"
    )
    ring, star = (each for each in found if each.setup.ranks == 8)
    first = next(findings.reading(found))
    assert first.startswith("ring_all_reduce is the fastest (8 ranks)")
    assert duration(ring.seconds) in first
    assert f"gather_scatter takes {digits(star.seconds / ring.seconds)} times" in first
    alone = [each for each in found if each.setup.settings.averaging.sync_mode == "ring_all_reduce"]
    fastest = min(alone, key=lambda each: each.seconds)
    assert next(findings.reading(alone)).startswith(f"{fastest.name} is the fastest of 4 cells")
    assert duration(fastest.seconds) in next(findings.reading(alone))
    assert duration(alone[0].seconds) in next(findings.reading(alone[:1]))


def test_no_mode_is_called_faster_within_the_intervals() -> None:
    """A ring and its halves take the same time on links that alone cost time."""
    found = forecasts("SYNC_MODE=ring_all_reduce,halving_doubling", "LINK_RATE=100mbit", "MODEL=lenet5")
    assert next(findings.reading(found)).startswith("No mode is slower")


def test_what_synchronises_nothing_is_not_called_the_fastest() -> None:
    found = forecasts("SYNC_MODE=none,ring_all_reduce,tree", "LINK_RATE=100mbit", "MODEL=lenet5")
    (compared,) = findings.comparisons(found).values()
    assert list(compared) == ["ring_all_reduce", "tree"]


def test_reasons_stand_beside_the_number_of_their_cells() -> None:
    found = dict.fromkeys(findings.outside(forecasts(*BY_RANKS)))
    assert [each for each in found if each.startswith("16 ranks: ") and each.endswith("(2 of 10 cells)")]


def test_lines_of_cells_with_the_same_limit_share_a_sentence() -> None:
    found = forecasts("SEED=1,2", "LINK_RATE=100mbit", "MODEL=lenet5")
    (sentence,) = findings.limits_of(found)
    assert "SEED=1; " in sentence
    assert "SEED=2: " in sentence
    assert f" {ranks_at_half(found[0]).ranks} ranks" in sentence


# A verification: runs that are a tenth longer than predicted, but for one that is twice as long.


def checked() -> list[Checked]:
    found = []
    for number, each in enumerate(forecasts(*BY_RANKS)[:6]):
        slow = 2.0 if number == 5 else 1.1
        run = {phase: slow * seconds for phase, seconds in each.simulated.means.items()}
        found.append(Checked(each, [run, run], [1.0, 1.0]))
    return found


def write_verification(folder: Path, began: str = "2026-01-01T00:01:00Z") -> Path:
    found, trial = checked(), Trial("run", "cell", 1, {})
    content = MANIFEST | {"world_size": 1, "ranks": [participant(0)], "started_at": began}
    (folder / trial.name).mkdir(parents=True)
    (folder / trial.name / "manifest.json").write_text(json.dumps(content))
    (folder / trial.name / "summary.json").write_text(json.dumps({"complete": True}))
    (folder / PREDICTIONS).write_text("{}")
    os.utime(folder / PREDICTIONS, (1767225600, 1767225600))
    return verified.write("cells", found, score(found), ExperimentPlan(folder, [trial]), folder, quick=False)


def test_a_verification_says_its_verdict_its_errors_and_what_was_sealed(tmp_path: Path) -> None:
    path = write_verification(tmp_path)
    page, text, found = Page(path).text, path.read_text(), checked()
    whole = score(found)
    assert not whole.holds
    for error in (whole.median_error, whole.p90_error, whole.median_raw_error):
        assert f"{error:.1%}" in page
    assert "scripts/verify cells --fresh" in page, "what to do about predictions that do not hold"
    for each in found:
        assert f'data-value="{each.error}"' in text
    assert re.search(r"[0-9a-f]{64}", page)
    assert f"The file is of {SEALED}; the first run began at 2026-01-01T00:01:00Z" in page
    assert "Warnings" not in page
    assert sorted(re.findall(r'data-figure="([^"]*)"', text)) == ["scatter"]
    assert re.findall(r'(?:src|href)="(?!tables/|figures/|data:,|#)[^"]*', text) == []
    identifiers = re.findall(r' id="([^"]*)"', text)
    assert identifiers
    assert len(identifiers) == len(set(identifiers))


def test_predictions_that_were_written_after_the_runs_are_told_of(tmp_path: Path) -> None:
    later = Page(write_verification(tmp_path, began="2025-12-31T00:00:00Z")).text
    assert "predictions.json is younger than the first run" in later


def test_errors_by_kind_stand_beside_the_number_of_cells() -> None:
    table = verified.by_kind(checked())
    rows = {str(row[0]): row for row in table.rows}
    places = {column.name: number for number, column in enumerate(table.columns)}
    assert list(rows) == ["all", "ring_all_reduce", "all_reduce", "2 ranks", "4 ranks", "8 ranks"]
    assert [row[places["cells"]] for row in table.rows] == [6, 3, 3, 2, 2, 2]
    assert rows["ring_all_reduce"][places["median_error"]] == pytest.approx(1 - 1 / 1.1)
    assert rows["all"][places["most_error"]] == pytest.approx(0.5)
    assert rows["all"][places["mean_error"]] == pytest.approx(mean(each.error for each in checked()))


def test_each_cell_is_a_mark_with_its_error() -> None:
    found = checked()
    plot, _ = verified.scatter(found)
    assert (plot.tolerances, plot.x.log, plot.y.log) == ((0.2, 0.1), True, True)
    (panel,) = plot.panels
    assert panel.title == "lenet5"
    assert [trace.name for trace in panel.traces] == ["ring_all_reduce", "all_reduce"]
    marks = {mark for trace in panel.traces for mark in zip(trace.x, trace.y, trace.low, trace.high, strict=True)}
    assert marks == {(each.corrected, each.forecast.seconds, *each.forecast.interval) for each in found}
    assert f"{found[-1].forecast.name}: -50.0%, " in in_page(plot)


def test_calibrations_have_every_compressor_that_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts/calibration")
    settings = [cell.settings for cell in grid.read("runs").cells]
    assert {each["COMPRESSION"] for each in settings if "COMPRESSION" in each} == set(COMPRESSORS)
