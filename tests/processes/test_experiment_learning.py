"""What experiments say about learning: figures against the runs' own records, and sentences about constructed runs."""

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from app.analysis import run_records
from app.analysis.run import summarise
from app.pages.section import Section
from app.tools.experiment import page
from app.tools.experiment.plan import grid as grids
from app.tools.experiment.plan.trials import ExperimentPlan, trials
from app.tools.experiment.results import Results
from app.tools.experiment.views import VIEWS
from tests.processes.experiments import carry_out, put_grid

GRID = """
title = "Learning"
question = "What is learned?"
repeats = 1
view = [
    { kind = "table", title = "Ranks", by = "rank", measure = [
        "test_loss", "accuracy", "training_loss", "training_accuracy", "training_seconds",
    ], published = [
        { source = "nobody", values = { one = [2.5], all_reduce = [2.25, 2.125] } },
        { source = "nobody", measure = "accuracy", values = { one = 0.25, all_reduce = 0.5 } },
        { source = "nobody", measure = "training_seconds", values = { ring_all_reduce = [1.25, 1.5] } },
    ] },
    { kind = "curve", title = "Losses", measure = "loss", every = 3, published = [
        { source = "nobody", values = { all_reduce = [2.5, 2.25] } },
    ] },
    { kind = "curve", title = "Epochs", by = "epoch", measure = [
        "training_loss", "training_accuracy", "test_loss", "accuracy",
    ] },
    { kind = "bar", title = "Accuracy", baseline = "one", measure = [
        "accuracy", "training_accuracy", "training_loss",
    ], published = [
        { source = "nobody", measure = "training_accuracy", values = { one = 0.75, all_reduce = 0.5 } },
    ] },
    { kind = "curve", title = "Distance", measure = "loss", reference = "one" },
]

[settings]
MODEL = "lenet5"
TRAIN_SAMPLES = 64
TEST_SAMPLES = 50
GLOBAL_BATCH_SIZE = 16
EPOCHS = 2
WARMUP_STEPS = 0
EVALUATE = "every_rank"
LINK_CHECK = "off"

[[grid]]
label = "one"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
label = "{SYNC_MODE}"
WORKERS = 1
SYNC_MODE = ["all_reduce", "ring_all_reduce"]
"""
RANKS = {"one": 1, "all_reduce": 2, "ring_all_reduce": 2}
COURSES = ("training_loss", "training_accuracy", "test_loss", "accuracy")

Rows = list[dict[str, Any]]
Change = Callable[[dict[str, Any]], dict[str, Any] | None]  # of a record; None takes it away


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an experiment of three runs was made."""
    place = tmp_path_factory.mktemp("learning")
    carry_out(place, "learning", GRID)
    return place


@pytest.fixture
def copy(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Experiment":
    """The same, to be changed."""
    shutil.copytree(place / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    put_grid(tmp_path, "learning", GRID)
    return Experiment(tmp_path)


class Experiment:
    """A copy whose runs can be changed, as if they had come out otherwise."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.runs = place / "results" / "experiments" / "learning" / "full"

    def repeat(self, rounds: int) -> None:
        """Give it more rounds, which are copies of the first."""
        put_grid(self.place, "learning", GRID.replace("repeats = 1", f"repeats = {rounds}"))
        for number in range(2, rounds + 1):
            for cell in RANKS:
                shutil.copytree(self.runs / f"{cell}-1", self.runs / f"{cell}-{number}")

    def change(self, run: str, rank: int, kind: str, change: Change) -> None:
        """Change a rank's records of a kind, and sum the run up again."""
        path = self.runs / run / f"rank-{rank}.jsonl"
        lines = []
        for record in map(json.loads, path.read_text().splitlines()):
            after = change(record) if record["kind"] == kind else record
            lines += [] if after is None else [json.dumps(after) + "\n"]
        path.write_text("".join(lines))
        summarise(run_records.read(self.runs / run)).write(self.runs / run)

    @property
    def results(self) -> Results:
        grid = grids.read("learning")
        return Results(grid, ExperimentPlan(self.runs, list(trials(grid))))

    def section(self, kind: str, measure: str | Sequence[str], **options: Any) -> Section:
        """Make one view of it."""
        given = {"kind": kind, "title": kind, "measure": measure, **options}
        return VIEWS[kind].model_validate(given).section(self.results, kind)

    def says(self, kind: str, measure: str | Sequence[str], **options: Any) -> str:
        return "\n".join(self.section(kind, measure, **options).sentences)


def rows_of(section: Section) -> Rows:
    names = [column.name for column in section.tables[0].columns]
    return [dict(zip(names, row, strict=True)) for row in section.tables[0].rows]


def table(place: Path, name: str) -> Rows:
    def value(text: str) -> float | str | None:
        return float(text) if text[-1:].isdigit() else text or None

    with (place / "results" / "experiments" / "learning" / "tables" / f"{name}.csv").open() as file:
        return [{key: value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def records(place: Path, cell: str, rank: int, kind: str, number: int = 1) -> list[dict[str, Any]]:
    path = place / "results" / "experiments" / "learning" / "full" / f"{cell}-{number}" / f"rank-{rank}.jsonl"
    return [record for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == kind]


def distances_of(place: Path, *cells: str, number: int = 1) -> list[float]:
    """Of every step: how far the first cell's loss, the mean over all samples, is from the second one's."""
    losses = []
    for cell in cells:
        together = zip(*(records(place, cell, rank, "step", number) for rank in range(RANKS[cell])), strict=True)
        sums = [(sum(s["loss"] * s["samples"] for s in steps), sum(s["samples"] for s in steps)) for steps in together]
        losses.append([loss / samples for loss, samples in sums])
    return [abs(one - other) / other for one, other in zip(*losses, strict=True)]


def scores(place: Path, cell: str, rank: int | None = None, epoch: int = 1) -> dict[str, float]:
    """Of a rank's images, or of those of all ranks; on the test set, the mean of their scores."""
    ranks = range(RANKS[cell]) if rank is None else [rank]
    steps = [step for each in ranks for step in records(place, cell, each, "step") if step["epoch"] == epoch]
    tests = [each for rank in ranks for each in records(place, cell, rank, "evaluation") if each["epoch"] == epoch]
    samples = sum(step["samples"] for step in steps)
    return {
        "training_loss": sum(step["loss"] * step["samples"] for step in steps) / samples,
        "training_accuracy": sum(step["correct"] for step in steps) / samples,
        "test_loss": mean(each["loss"] for each in tests),
        "accuracy": mean(each["accuracy"] for each in tests),
        "training_seconds": max(records(place, cell, each, "finished")[0]["seconds"] for each in ranks),
    }


def scored(accuracy: float) -> Change:
    """Evaluations that came to this accuracy."""
    return lambda record: record | {"accuracy": accuracy}


def test_scores_are_those_of_each_rank_and_of_all_in_every_epoch(place: Path) -> None:
    by_rank, accuracy = table(place, "table-test_loss"), table(place, "bar-accuracy")
    every = [("one", 0), *((cell, rank) for cell in [*RANKS][1:] for rank in (0, 1, "all"))]
    assert [(row["cell"], row["rank"]) for row in by_rank] == every
    assert [(row["cell"], row["world_size"], row["steps"]) for row in accuracy] == [(c, n, 7) for c, n in RANKS.items()]
    for row in (*by_rank, *accuracy):
        rank = row.get("rank", "all")
        own = scores(place, row["cell"], None if rank == "all" else int(rank))
        shown = {name: value for name, value in own.items() if name in row}
        assert len(shown) == (5 if "rank" in row else 3)
        assert {name: row[name] for name in shown} == pytest.approx(shown, rel=1e-12)
    for name in COURSES:
        rows = table(place, f"curve-training_loss-{name}")
        assert [row["epoch"] for row in rows] == [1, 2]
        for cell in RANKS:
            course = [scores(place, cell, epoch=epoch)[name] for epoch in (0, 1)]
            assert [row[f"{name}_{cell}"] for row in rows] == pytest.approx(course, rel=1e-12)
    less = [row["accuracy"] - accuracy[0]["accuracy"] for row in accuracy[1:]]
    assert [row["difference"] for row in accuracy] == [None, *(pytest.approx(each, abs=1e-12) for each in less)]
    assert {row["accuracy_low"] for row in accuracy} == {row["difference_high"] for row in accuracy} == {None}


def test_losses_are_rank_0s_every_so_many_steps(place: Path) -> None:
    rows = table(place, "curve-loss")
    assert [row["step"] for row in rows] == [0, 3, 6]
    for cell in RANKS:
        assert [row[f"loss_{cell}"] for row in rows] == [each["loss"] for each in records(place, cell, 0, "step")[::3]]


def test_published_figures_stand_beside_those_of_the_same_cell_and_rank(place: Path) -> None:
    for name, column, told in (
        ("table-test_loss", "test_loss", [2.5, 2.25, 2.125, 2.1875, None, None, None]),
        ("table-test_loss", "accuracy", [0.25, None, None, 0.5, None, None, None]),
        ("table-test_loss", "training_seconds", [None, None, None, None, 1.25, 1.5, 1.375]),
        ("curve-loss", "all_reduce", [2.5, 2.25, None]),
        ("bar-accuracy", "training_accuracy", [0.75, 0.5, None]),
    ):
        assert [row[f"published_{column}"] for row in table(place, name)] == told


def test_distances_are_those_of_the_global_batchs_losses(place: Path) -> None:
    rows = table(place, "curve-loss-2")
    assert [row["cell"] for row in rows] == [*RANKS][1:], "the reference has none from itself"
    for row in rows:
        distances = distances_of(place, row["cell"], "one")
        expected = [distances[0], distances[5], distances[-1], max(distances)]
        names = ("distance_first", "distance_after_5", "distance_last", "distance_largest")
        assert [row[name] for name in names] == pytest.approx(expected, rel=1e-6, abs=1e-15)
        assert row["replicas_identical"] == "True"


def test_the_page_says_first_of_each_view_what_was_found(place: Path) -> None:
    folder = place / "results" / "experiments" / "learning"
    reading = json.loads((folder / "experiment.json").read_text())["reading"]
    told = dict(each.split(". ", 1) for each in reading)
    assert list(told) == ["Ranks", "Losses", "Epochs", "Accuracy", "Distance"]
    assert told["Ranks"].startswith("The ranks of all_reduce and ring_all_reduce have the same test scores")
    assert told["Losses"].startswith("With a global batch of 16, the losses of one, all_reduce and ring_all_reduce lie")
    assert told["Distance"].startswith("Within rounding of one stay all_reduce and ring_all_reduce: ")
    assert all(f"({cell})" in told["Epochs"] for cell in RANKS)
    assert "Noise is unknown" in (folder / "report.html").read_text()
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert figures - {"curve-loss-2"} == {
        *("curve-loss", "bar-accuracy"),
        *(f"curve-training_loss-{name}" for name in COURSES),
    }, "the losses of curve-loss-2 may all be the same, which has no place on its axis"


def test_ranks_that_differ_are_told_apart_with_what_the_records_say_of_the_reason(copy: Experiment) -> None:
    copy.change(
        "all_reduce-1", 1, "evaluation", lambda r: r | {"loss": r["loss"] + 0.25, "accuracy": r["accuracy"] + 0.125}
    )
    differ, agree, same_parameters = copy.section("table", ["accuracy", "test_loss"], by="rank").sentences[:3]
    assert "The ranks of all_reduce differ" in differ
    assert "0.25 in loss and 12.5 percentage points" in differ
    assert agree.startswith("The ranks of ring_all_reduce have the same test scores to the last digit.")
    assert same_parameters.startswith("The parameters of all_reduce are the same on all ranks")


def test_cells_that_part_are_said_to_part_and_from_which_step_on(copy: Experiment) -> None:
    copy.repeat(2)
    copy.change("ring_all_reduce-2", 0, "step", lambda r: r | {"loss": r["loss"] * (1.5 if r["step"] >= 3 else 1)})
    section = copy.section("curve", "loss", reference="all_reduce")
    said = "\n".join(section.sentences)
    assert "Within rounding of all_reduce stays one: " in said
    assert "ring_all_reduce departs from all_reduce: " in said
    assert "at step 3 (round 2)" in said
    apart = distances_of(copy.place, "ring_all_reduce", "all_reduce", number=2)
    row = rows_of(section)[-1]
    assert (row["cell"], row["rounds"]) == ("ring_all_reduce", 2)
    assert [row["distance_last"], row["distance_largest"]] == pytest.approx([apart[-1], max(apart)])
    among: dict[str, Any] = {"reference": "all_reduce", "among": ["ring_all_reduce"]}
    assert len(rows_of(copy.section("curve", "loss", **among))) == 1
    assert "stays ring_all_reduce" in copy.says("curve", "loss", rounding=0.5, **among)
    assert "of the same round: in round 1, at step " in copy.says("curve", "loss"), "the first round that has both"


def test_a_published_figure_far_from_ours_is_laid_beside_the_other_cells(copy: Experiment) -> None:
    copy.change("one-1", 0, "step", lambda record: record | {"loss": 2 * record["loss"]})
    ours = {cell: scores(copy.place, cell)["training_loss"] for cell in RANKS}
    near = {"source": "nobody", "values": {"all_reduce": ours["one"] * 1.09, "ring_all_reduce": ours["one"] / 4}}
    beside, first, second = (
        each for each in copy.section("bar", "training_loss", published=near).sentences if "published" in each
    )
    assert all(f"({cell})" in beside for cell in near["values"])
    assert "of all_reduce: one (" in first
    assert "of ring_all_reduce; the nearest is one (" in second
    near["values"] = {"all_reduce": ours["all_reduce"] * 1.09}
    assert "Within" not in copy.says("bar", "training_loss", published=near), "it is near ours"


def test_a_difference_within_the_noise_is_called_none(copy: Experiment) -> None:
    copy.repeat(3)
    accuracies = {"one": (0.5, 0.52, 0.54), "all_reduce": (0.51, 0.51, 0.55), "ring_all_reduce": (0.2, 0.23, 0.24)}
    for cell, values in accuracies.items():
        for number, value in enumerate(values, 1):
            for rank in range(RANKS[cell]):
                copy.change(f"{cell}-{number}", rank, "evaluation", scored(value))
    section = copy.section("bar", "accuracy", baseline="one")
    said = "\n".join(section.sentences)
    assert "no difference beyond the noise for all_reduce" in said
    assert "ring_all_reduce -29.7 percentage points" in said
    assert "Repeats of a cell differ by 0.9 percentage points" in said
    rows, medians = rows_of(section), [median(values) for values in accuracies.values()]
    assert [row["accuracy"] for row in rows] == medians
    assert [row["difference"] for row in rows] == [None, pytest.approx(0.01 / 3), pytest.approx(-0.89 / 3)]
    assert all(row["accuracy_low"] < row["accuracy"] < row["accuracy_high"] for row in rows)
    assert [*rows_of(copy.section("curve", "accuracy", by="epoch"))[-1].values()][1:] == medians


def test_runs_that_never_evaluated_have_no_test_scores(copy: Experiment) -> None:
    for cell, ranks in RANKS.items():
        for rank in range(ranks):
            copy.change(f"{cell}-1", rank, "evaluation", lambda record: None)
    pair = ["accuracy", "training_accuracy"]
    assert copy.says("table", ["test_loss"], by="rank").startswith("No run has test scores")
    assert copy.says("bar", pair, baseline="one").count("in 0 of 1 runs") == len(RANKS)
    assert copy.says("bar", pair[::-1]).startswith("Training accuracy: ")
    assert "no cell has it" in copy.says("curve", "accuracy", by="epoch")
    for section in (copy.section("table", pair, by="rank"), copy.section("bar", pair, baseline="one")):
        assert {(row["accuracy"], row["training_accuracy"] is None) for row in rows_of(section)} == {(None, False)}
    (drawing,) = copy.section("curve", "accuracy", by="epoch").drawings
    assert drawing.chart is None


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (["one-1"], {"In 1 of 2 rounds only: one."}),
        (["all_reduce-1", "ring_all_reduce-2"], {"In 1 of 2 rounds only: all_reduce; ring_all_reduce."}),
        (["one-1", "one-2"], {"Not measured, because no run is finished: one."}),
    ],
)
def test_what_is_missing_is_said_and_the_page_is_made(copy: Experiment, lost: list[str], said: set[str]) -> None:
    copy.repeat(2)
    for run in lost:
        shutil.rmtree(copy.runs / run)
    results = copy.results
    assert page.write(results.grid, results.plan).is_file()
    for view in page.views_of(results.grid):
        assert said <= set(view.section(results, "view").sentences), view.title


def test_more_cells_than_a_figure_can_keep_apart_are_said_to_be_left_out(copy: Experiment) -> None:
    cells = "".join(f'[[grid]]\nlabel = "cell {number}"\nWORKERS = 0\nSYNC_MODE = "none"\n' for number in range(12))
    put_grid(Path(), "learning", GRID.partition("[[grid]]")[0] + cells)
    for number in range(12):
        shutil.copytree(copy.runs / "one-1", copy.runs / f"cell_{number}-1")
    for options in ({"measure": "loss"}, {"measure": "accuracy", "by": "epoch"}):
        (figure,) = copy.section("curve", **options).drawings
        assert ", cell 8 and cell 9 coincide." in figure.caption
        assert figure.caption.endswith("The first 10 of 12 cells are drawn.")
