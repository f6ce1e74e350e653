"""An experiment from its grid file to its page, on real processes: what is run, what is not run again, what is said."""

import csv
import json
import re
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.browser import NARROW, WIDE, Browser
from tests.processes.experiments import carry_out, next_trial, put_grid, run_trial, step
from tests.solutions import on_the_page

HOSTILE = """<script>document.title="bad"</script>&"'"""

GRID = f"""\
title = "Two rings and none {HOSTILE.replace('"', chr(92) + '"')}"
question = "Are they alike?"
notes = ["Nobody has published this."]
repeats = 2

[settings]
MODEL = "lenet5"
DATASET = "digits"
MAX_STEPS = 8
EVALUATE = "never"
LINK_CHECK = "off"

[[grid]]
label = "alone"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
WORKERS = 1
SYNC_MODE = ["all_reduce", "ring_all_reduce"]

[quick]
repeats = 1

[[view]]
kind = "bar"
title = "Time per step"
measure = ["seconds", "first_step_seconds", "mean_seconds_to(4)", "mean_seconds_to(40)"]
baseline = "alone"

[view.published]
source = "a report"

[view.published.values]
alone = 2.0
all_reduce = 1.0
"""


OWN_MODE = """\
title = "A mode of mine"
question = "Is it as fast?"
settings = { MODEL = "lenet5", DATASET = "digits", MAX_STEPS = 3, WORKERS = 1, EVALUATE = "never", LINK_CHECK = "off" }
view = [{ kind = "bar", measure = "seconds", title = "Time per step" }]

[[grid]]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a finished experiment."""
    folder = tmp_path_factory.mktemp("experiments")
    carry_out(folder, "rings", GRID)
    return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    shutil.copytree(place, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


# What the rows of a table say from top to bottom, once its heading of the seconds per step is chosen.
SORTED_BY_SECONDS = """
    const table = document.querySelector("[data-table=bar-seconds]"), cell = table.querySelector("[data-name=seconds]");
    table.tHead.rows[0].cells[cell.cellIndex].click();
    const rows = [...table.tBodies[0].rows].map(row => [row.getBoundingClientRect().top, row.cells[cell.cellIndex]]);
    return rows.sort((one, other) => one[0] - other[0]).map(([_, seconds]) => Number(seconds.dataset.value));
"""


def page_of(place: Path) -> Path:
    return place / "results/experiments/rings"


def summaries(place: Path, cell: str) -> list[dict[str, Any]]:
    return [json.loads((page_of(place) / f"full/{cell}-{number}/summary.json").read_text()) for number in (1, 2)]


def rows(place: Path, table: str) -> dict[str, dict[str, str]]:
    with (page_of(place) / f"tables/{table}.csv").open() as file:
        return {row["cell"]: row for row in csv.DictReader(file)}


def test_each_cell_was_run_once_in_each_round_with_that_rounds_seed(place: Path) -> None:
    for cell, ranks in (("alone", 1), ("all_reduce", 2), ("ring_all_reduce", 2)):
        for number in (1, 2):
            manifest = json.loads((page_of(place) / f"full/{cell}-{number}/manifest.json").read_text())
            assert manifest["world_size"] == ranks
            assert manifest["settings"]["seed"] == number
            assert manifest["plan"]["steps"] == 6  # an epoch, which is less than was asked for


def test_the_table_is_what_the_records_say(place: Path) -> None:
    table = rows(place, "bar-seconds")
    assert list(table) == ["alone", "all_reduce", "ring_all_reduce"]
    for cell, row in table.items():
        medians = [each["run"]["seconds"]["median"] for each in summaries(place, cell)]
        assert float(row["seconds"]) == pytest.approx(statistics.median(medians))
        assert float(row["seconds_low"]) < float(row["seconds"]) < float(row["seconds_high"])
        firsts = [max(rank["first_step"]["seconds"] for rank in each["ranks"]) for each in summaries(place, cell)]
        assert float(row["first_step_seconds"]) == pytest.approx(statistics.median(firsts))
        means = []
        for number in (1, 2):
            counted = []
            for path in (page_of(place) / f"full/{cell}-{number}").glob("rank-*.jsonl"):
                records = [json.loads(line) for line in path.read_text().splitlines()]
                counted += [each["seconds"] for each in records if each["kind"] == "step" and 1 <= each["step"] < 4]
            means.append(statistics.mean(counted))
        assert float(row["mean_seconds_to_4"]) == pytest.approx(statistics.median(means))
        assert row["mean_seconds_to_40"] == ""  # there were not so many
        assert row["rounds"] == "2"
    ratio = [
        one["run"]["seconds"]["median"] / other["run"]["seconds"]["median"]
        for one, other in zip(summaries(place, "all_reduce"), summaries(place, "alone"), strict=True)
    ]
    assert float(table["all_reduce"]["ratio"]) == pytest.approx(statistics.geometric_mean(ratio))
    assert (table["all_reduce"]["published_seconds"], table["all_reduce"]["published_ratio"]) == ("1.0", "0.5")
    assert table["ring_all_reduce"]["published_seconds"] == ""


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_browser_shows_the_page_whole_and_without_a_complaint(place: Path, browser: Browser, width: int) -> None:
    browser.open(page_of(place) / "report.html", width)
    assert browser.complaints() == []
    assert browser.title == f"Lockstep: Two rings and none {HOSTILE}"
    text = browser.text()
    for part in (
        "Are they alike?",
        "Nobody has published this.",
        "6 runs",
        "Time per step",
        "Repeats of a cell differ by",
    ):
        assert part in text
    shown = "[...document.querySelectorAll('figure svg')].filter(each => each.checkVisibility())"
    assert browser.ask(f"return {shown}.length") == 1, "of its two widths, one is shown"
    assert browser.ask("return document.querySelectorAll('[data-table=bar-seconds] tbody tr').length") == 3
    assert browser.ask("return document.documentElement.scrollWidth <= window.innerWidth")
    seconds = browser.ask(SORTED_BY_SECONDS)
    assert seconds == sorted(seconds)
    links = browser.ask("return [...document.querySelectorAll('a')].map(each => each.getAttribute('href'))")
    files = ["figures/bar-seconds.svg", "runs.csv", *(f"tables/bar-seconds.{kind}" for kind in ("csv", "md", "tex"))]
    assert sorted(link for link in links if not link.endswith("/report.html")) == sorted(files)
    assert len(links) == 6 + len(files)
    assert all((page_of(place) / link).is_file() for link in links)


def test_the_index_leads_to_the_page_and_names_what_was_not_run(copy: Path, browser: Browser) -> None:
    put_grid(copy, "other", GRID)
    put_grid(copy, "wrong", GRID.replace("MAX_STEPS", "MAX_STEP"))
    assert step(copy, "page", "rings").returncode == 0
    browser.open(copy / "results/experiments/index.html")
    assert browser.complaints() == []
    assert browser.ask("return [...document.querySelectorAll('a')].map(each => each.getAttribute('href'))") == [
        "rings/report.html"
    ]
    assert "6 of 6 runs" in browser.text()
    assert "not run yet: scripts/experiment other" in browser.text()
    assert re.search(r"scripts/experiments/wrong\.toml, settings, MAX_STEP: .*MAX_STEPS", browser.text())


def test_figures_lie_beside_the_page_and_name_cells_and_unit(place: Path) -> None:
    words = re.findall(r">([^<]+)</text>", (page_of(place) / "figures/bar-seconds.svg").read_text())
    assert {"alone", "all_reduce", "ring_all_reduce"} <= {*words}
    assert {"time per step, alone is 1", "1.00", "published"} <= {*words}
    assert not [*page_of(place).rglob("*.png")]


def test_what_is_finished_is_not_run_again(copy: Path) -> None:
    planned = step(copy, "plan", "rings")
    assert "6 of 6 runs finished" in planned.stdout
    assert next_trial(copy, "rings") == {}


def test_a_run_that_was_interrupted_is_made_anew_and_counts_for_nothing_until_then(copy: Path) -> None:
    half = page_of(copy) / "full/ring_all_reduce-1"
    summary = json.loads((half / "summary.json").read_text())
    (half / "summary.json").write_text(json.dumps(summary | {"complete": False}))
    assert step(copy, "plan", "rings").returncode == 0
    made = step(copy, "page", "rings")
    assert made.returncode == 0
    assert "1 of 6 runs" in made.stdout
    assert rows(copy, "bar-seconds")["ring_all_reduce"]["rounds"] == "1"
    assert "incomplete: 5 of 6 runs" in (page_of(copy) / "report.html").read_text()
    settings = next_trial(copy, "rings")
    assert settings["RUN_NAME"] == "ring_all_reduce-1"
    assert not half.exists()
    run_trial(copy, "rings", settings)
    assert next_trial(copy, "rings", "--ended", "0", "3") == {}
    assert step(copy, "page", "rings").returncode == 0
    assert rows(copy, "bar-seconds")["ring_all_reduce"]["rounds"] == "2"


@pytest.mark.parametrize("rest", ['{"complete": tr', ""])
def test_a_summary_that_a_kill_cut_off_is_none(copy: Path, rest: str) -> None:
    (page_of(copy) / "full/alone-2/summary.json").write_text(rest)
    assert step(copy, "plan", "rings").returncode == 0
    assert next_trial(copy, "rings")["RUN_NAME"] == "alone-2"


def test_a_failed_run_is_told_and_the_rest_goes_on_and_the_next_attempt_tries_it_again(copy: Path) -> None:
    for name in ("alone-1", "all_reduce-2"):
        shutil.rmtree(page_of(copy) / "full" / name)
    assert step(copy, "plan", "rings").returncode == 0
    assert next_trial(copy, "rings")["RUN_NAME"] == "alone-1"
    assert next_trial(copy, "rings", "--ended", "1", "2.5")["RUN_NAME"] == "all_reduce-2"
    # Each is tried once more, after all others.
    assert next_trial(copy, "rings", "--ended", "137", "1")["RUN_NAME"] == "alone-1"
    assert next_trial(copy, "rings", "--ended", "1", "2.5")["RUN_NAME"] == "all_reduce-2"
    assert next_trial(copy, "rings", "--ended", "137", "1") == {}
    made = step(copy, "page", "rings")
    assert made.returncode == 1
    assert "alone-1 failed" in made.stdout
    assert "all_reduce-2 failed" in made.stdout
    assert "alone-1 (failed)" in (page_of(copy) / "report.html").read_text()
    assert step(copy, "plan", "rings").returncode == 0
    assert next_trial(copy, "rings")["RUN_NAME"] == "alone-1"


def test_a_failure_that_the_grid_allows_is_told_and_is_none(copy: Path) -> None:
    put_grid(copy, "rings", GRID.replace('label = "alone"', 'label = "alone"\nmay_fail = "nobody is ever alone"'))
    shutil.rmtree(page_of(copy) / "full/alone-1")
    assert step(copy, "plan", "rings").returncode == 0
    assert next_trial(copy, "rings")["RUN_NAME"] == "alone-1"
    assert next_trial(copy, "rings", "--ended", "1", "2.5") == {}
    made = step(copy, "page", "rings")
    assert made.returncode == 0
    assert re.search("alone-1 failed.*: nobody is ever alone", made.stdout)


def test_a_cell_without_any_run_is_missing_and_no_zero(copy: Path) -> None:
    for number in (1, 2):
        shutil.rmtree(page_of(copy) / f"full/alone-{number}")
    assert step(copy, "plan", "rings").returncode == 0
    assert step(copy, "page", "rings").returncode == 0
    table = rows(copy, "bar-seconds")
    assert "alone" not in table
    assert table["all_reduce"]["ratio"] == ""


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    put_grid(tmp_path, "rings", GRID)
    assert step(tmp_path, "plan", "rings").returncode == 0
    made = step(tmp_path, "page", "rings")
    assert "6 of 6 runs" in made.stdout
    assert "incomplete: 0 of 6 runs" in (page_of(tmp_path) / "report.html").read_text()


def test_other_settings_are_refused_as_long_as_finished_runs_have_the_old_ones(copy: Path) -> None:
    told = step(copy, "plan", "rings", "--set", "MAX_STEPS=4")
    assert told.returncode == 2
    assert re.search(r"\[cannot-resume\].*alone-1.* MAX_STEPS=8.* MAX_STEPS=4.* --fresh", told.stderr)
    assert (page_of(copy) / "full/alone-1/summary.json").is_file()
    assert step(copy, "plan", "rings", "--fresh", "--dry-run", "--set", "MAX_STEPS=4").returncode == 0
    assert (page_of(copy) / "full/alone-1/summary.json").is_file()
    assert step(copy, "plan", "rings", "--fresh", "--set", "MAX_STEPS=4").returncode == 0
    assert not (page_of(copy) / "full/alone-1").exists()
    assert next_trial(copy, "rings")["MAX_STEPS"] == "4"


def test_a_mode_of_ones_own_is_a_cell_and_its_runs_are_not_taken_for_those_of_another_file(tmp_path: Path) -> None:
    grid = f"{OWN_MODE}SYNC_MODE = ['mine', 'all_reduce']\n"
    own = put_own_mode(tmp_path, "Mine")
    page = carry_out(tmp_path, "own", grid)
    times = (page / "tables/bar-seconds.csv").read_text().splitlines()
    assert [row["cell"] for row in csv.DictReader(times)] == ["mine", "all_reduce"]
    assert "different versions of the program" not in (page / "report.html").read_text()
    assert step(tmp_path, "plan", "own").returncode == 0
    own.write_text(own.read_text().replace("Mine", "Changed"))
    told = step(tmp_path, "plan", "own")
    assert (told.returncode, "[cannot-resume]" in told.stderr) == (2, True), told.stderr
    assert step(tmp_path, "plan", "own", "--fresh").returncode == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("class Mine(:", "invalid-extension"),
        ("x = 1", "invalid-extension"),
        ("{mode}\n1 / 0", "extension-failed"),
        ("{mode}\nraise SystemExit(0)", "extension-failed"),
    ],
)
def test_a_broken_mode_of_ones_own_is_refused_before_any_run(text: str, error: str, tmp_path: Path) -> None:
    mode = put_own_mode(tmp_path, "Mine")
    mode.write_text(text.format(mode=mode.read_text()))
    put_grid(tmp_path, "own", f"{OWN_MODE}SYNC_MODE = 'mine'\nLINK_RATE = '1gbit'\n")
    told = step(tmp_path, "plan", "own")
    assert (told.returncode, f"[{error}]" in told.stderr) == (2, True), told.stderr
    assert "extensions/mine.py" in told.stderr
    assert not (tmp_path / "results/experiments").exists()


@pytest.mark.parametrize(
    ("build", "error"),
    [
        ("build = 3", "invalid-extension"),
        ("def build(): ...", "invalid-extension"),
        ("def build(batch_norm): 1 / 0", "extension-failed"),
        ("def build(batch_norm): raise SystemExit(0)", "extension-failed"),
    ],
)
def test_a_broken_model_of_ones_own_is_refused_before_any_run(build: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions/mine.py").write_text(f"{build}\n")
    put_grid(tmp_path, "own", OWN_MODE.replace("lenet5", "mine"))
    told = step(tmp_path, "plan", "own")
    assert (told.returncode, f"[{error}]" in told.stderr) == (2, True), told.stderr
    assert "extensions/mine.py" in told.stderr


def put_own_mode(place: Path, name: str) -> Path:
    path = place / "extensions/mine.py"
    path.parent.mkdir()
    path.write_text(on_the_page()["my_mode"].replace("MyMode", name))
    return path


def test_a_cell_that_was_left_out_for_a_while_is_not_taken_for_one_with_other_settings(copy: Path) -> None:
    others = (
        GRID.replace('label = "alone"', 'label = "lonely"')
        .replace('"alone"', '"lonely"')
        .replace("alone =", "lonely =")
    )
    put_grid(copy, "rings", others)
    assert step(copy, "plan", "rings").returncode == 0
    put_grid(copy, "rings", GRID.replace('label = "alone"', 'label = "alone"\nSEED = 5'))
    told = step(copy, "plan", "rings")
    assert told.returncode == 2
    assert re.search(r"\[cannot-resume\].*alone-1.* SEED=1.* SEED=5", told.stderr)


def test_a_version_that_was_never_run_has_no_page_and_takes_none_away(copy: Path) -> None:
    before = (page_of(copy) / "report.html").read_text()
    told = step(copy, "page", "rings", "--quick")
    assert told.returncode == 2
    assert "scripts/experiment rings" in told.stderr
    assert (page_of(copy) / "report.html").read_text() == before


def test_the_quick_version_keeps_its_runs_apart(copy: Path) -> None:
    planned = step(copy, "plan", "rings", "--quick")
    assert "rings (quick): " in planned.stdout
    assert "3 cells x 1 round, 0 of 3 runs finished" in planned.stdout
    assert next_trial(copy, "rings", "--quick")["RUN_NAME"] == "alone-1"
    assert (page_of(copy) / "full/alone-1/summary.json").is_file()


def test_a_dry_run_tells_every_run_and_its_time_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    put_grid(tmp_path, "rings", GRID)
    told = step(tmp_path, "plan", "rings", "--dry-run")
    assert told.returncode == 0
    lines = told.stdout.splitlines()
    assert len(lines) == 7
    assert all(": about " in line for line in lines[1:])
    assert "SYNC_MODE=ring_all_reduce" in lines[6]
    assert list((tmp_path / "results").iterdir()) == []


def test_runs_of_another_version_or_machine_are_warned_of(copy: Path) -> None:
    path = page_of(copy) / "full/alone-1/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["image"]["source_sha256"] = "another"
    manifest["ranks"][0]["host_boot_id"] = "another"
    path.write_text(json.dumps(manifest))
    assert step(copy, "page", "rings").returncode == 0
    page = (page_of(copy) / "report.html").read_text()
    assert "made by different versions of the program" in page
    assert "from different machines, or from before and after a reboot" in page
