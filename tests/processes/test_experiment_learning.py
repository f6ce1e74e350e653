"""What experiments say about learning: figures against the runs' own records, and sentences about constructed runs."""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from app.analysis import run_records
from app.analysis.measures import TRAINING_LOSS
from app.analysis.run import summarise
from app.tools.experiment import page
from app.tools.experiment.plan import grid as grids
from app.tools.experiment.plan.trials import ExperimentPlan, trials
from app.tools.experiment.reading.results import Results
from app.tools.experiment.views import VIEWS
from app.tools.experiment.views.view import Section
from app.tools.experiment.views.words import missing_sentences
from tests.processes.experiments import carry_out, put_grid

GRID = """
title = "Learning"
question = "What is learned?"
repeats = 1

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

[[show]]
view = "scores"
title = "Scores"
[show.published_loss]
source = "nobody"
[show.published_loss.values]
one = [2.5]
all_reduce = [2.25, 2.125]
[show.published_accuracy]
source = "nobody"
[show.published_accuracy.values]
all_reduce = 0.5

[[show]]
view = "losses"
title = "Losses"
every = 3
[show.published]
source = "nobody"
[show.published.values]
all_reduce = [2.5, 2.25]

[[show]]
view = "curves"
title = "Curves"
together = ["all_reduce", "ring_all_reduce"]
[show.published_loss]
source = "nobody"
[show.published_loss.values]
all_reduce = 1.5
[show.published_seconds]
source = "nobody"
[show.published_seconds.values]
ring_all_reduce = [1.25, 1.5]

[[show]]
view = "accuracy"
title = "Accuracy"
baseline = "one"
[show.published_training]
source = "nobody"
[show.published_training.values]
one = 0.75
all_reduce = 0.5

[[show]]
view = "distance"
title = "Distance"
reference = "one"
"""
CELLS = ("one", "all_reduce", "ring_all_reduce")
OPTIONS: dict[str, dict[str, Any]] = {
    "scores": {},
    "losses": {},
    "curves": {"together": CELLS[1:]},
    "accuracy": {"baseline": "one"},
    "distance": {"reference": "one"},
}

Rows = list[dict[str, str]]
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
        self._place = place
        self._runs = place / "results" / "experiments" / "learning" / "full"

    def repeat(self, rounds: int) -> None:
        """Give it more rounds, which are copies of the first."""
        put_grid(self._place, "learning", GRID.replace("repeats = 1", f"repeats = {rounds}"))
        for number in range(2, rounds + 1):
            for cell in CELLS:
                shutil.copytree(self._runs / f"{cell}-1", self._runs / f"{cell}-{number}")

    def change(self, run: str, rank: int, kind: str, change: Change) -> None:
        """Change a rank's records of a kind, and sum the run up again."""
        path = self._runs / run / f"rank-{rank}.jsonl"
        lines = []
        for record in map(json.loads, path.read_text().splitlines()):
            after = change(record) if record["kind"] == kind else record
            lines += [] if after is None else [json.dumps(after) + "\n"]
        path.write_text("".join(lines))
        summarise(run_records.read(self._runs / run)).write(self._runs / run)

    def lose(self, run: str) -> None:
        """Take a run away."""
        shutil.rmtree(self._runs / run)

    @property
    def results(self) -> Results:
        grid = grids.read("learning")
        return Results(grid, ExperimentPlan(self._runs, list(trials(grid))))

    def section(self, view: str, **options: Any) -> Section:
        """Make one view of it."""
        return VIEWS[view](title=view, **options).section(self.results, view)

    def says(self, view: str, **options: Any) -> str:
        return "\n".join(self.section(view, **options).sentences)


def table(place: Path, name: str) -> Rows:
    with (place / "results" / "experiments" / "learning" / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def records(place: Path, cell: str, rank: int, kind: str) -> list[dict[str, Any]]:
    path = place / "results" / "experiments" / "learning" / "full" / f"{cell}-1" / f"rank-{rank}.jsonl"
    return [record for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == kind]


def scored(accuracy: float) -> Change:
    """Evaluations that came to this accuracy."""
    return lambda record: record | {"accuracy": accuracy}


def number(text: str) -> float | None:
    return float(text) if text else None


def ranks_of(cell: str) -> range:
    return range(1 if cell == "one" else 2)


def global_losses(place: Path, cell: str) -> list[float]:
    """Of every step: the mean over all of its samples."""
    together = zip(*(records(place, cell, rank, "step") for rank in ranks_of(cell)), strict=True)
    return [
        sum(step["loss"] * step["samples"] for step in steps) / sum(step["samples"] for step in steps)
        for steps in together
    ]


def last_epoch(place: Path, cell: str, ranks: Iterator[int] | range) -> tuple[float, float]:
    """Training loss and accuracy."""
    steps = [step for rank in ranks for step in records(place, cell, rank, "step") if step["epoch"] == 1]
    samples = sum(step["samples"] for step in steps)
    return (
        sum(step["loss"] * step["samples"] for step in steps) / samples,
        sum(step["correct"] for step in steps) / samples,
    )


def test_scores_are_those_of_each_ranks_last_evaluation_beside_the_published_ones(place: Path) -> None:
    rows = table(place, "scores")
    assert [(row["cell"], int(row["rank"])) for row in rows] == [
        (cell, rank) for cell in CELLS for rank in ranks_of(cell)
    ]
    for row in rows:
        last = records(place, row["cell"], int(row["rank"]), "evaluation")[-1]
        assert (float(row["test_loss"]), float(row["accuracy"])) == (last["loss"], last["accuracy"])
    assert [number(row["published_test_loss"]) for row in rows] == [2.5, 2.25, 2.125, None, None]
    assert [number(row["published_accuracy"]) for row in rows] == [None, 0.5, 0.5, None, None]


def test_losses_are_rank_0s_every_so_many_steps(place: Path) -> None:
    rows = table(place, "losses")
    assert [int(row["step"]) for row in rows] == [0, 3, 6]
    for cell in CELLS:
        losses = [step["loss"] for step in records(place, cell, 0, "step")]
        assert [float(row[f"loss_{cell}"]) for row in rows] == losses[::3]
    assert [number(row["published_all_reduce"]) for row in rows] == [2.5, 2.25, None]


def test_curves_end_with_the_last_epoch_of_each_rank_and_of_all(place: Path) -> None:
    rows = {(row["cell"], row["rank"]): row for row in table(place, "curves")}
    assert list(rows) == [
        (cell, rank) for cell in CELLS for rank in ("all", *(map(str, ranks_of(cell)) if cell != "one" else ()))
    ]
    for (cell, rank), row in rows.items():
        ranks = ranks_of(cell) if rank == "all" else range(int(rank), int(rank) + 1)
        loss, accuracy = last_epoch(place, cell, ranks)
        assert float(row["training_loss"]) == pytest.approx(loss, rel=1e-12)
        assert float(row["training_accuracy"]) == pytest.approx(accuracy, rel=1e-12)
        assert float(row["seconds"]) == max(records(place, cell, each, "finished")[0]["seconds"] for each in ranks)
    assert {
        key: number(row["published_training_loss"]) for key, row in rows.items() if row["published_training_loss"]
    } == {("all_reduce", "all"): 1.5}
    assert [number(rows["ring_all_reduce", rank]["published_seconds"]) for rank in ("all", "0", "1")] == [
        None,
        1.25,
        1.5,
    ]


def test_accuracy_is_that_of_the_last_epoch_less_the_baselines(place: Path) -> None:
    rows = {row["cell"]: row for row in table(place, "accuracy")}
    assert tuple(rows) == CELLS
    tests = {
        cell: sum(records(place, cell, rank, "evaluation")[-1]["accuracy"] for rank in ranks_of(cell))
        / len(ranks_of(cell))
        for cell in CELLS
    }
    for cell, row in rows.items():
        assert float(row["training_accuracy"]) == pytest.approx(last_epoch(place, cell, ranks_of(cell))[1])
        assert float(row["test_accuracy"]) == pytest.approx(tests[cell])
        assert row["test_accuracy_low"] == row["difference_high"] == ""  # one round tells no interval
    assert number(rows["one"]["difference"]) is None
    assert float(rows["all_reduce"]["difference"]) == pytest.approx(tests["all_reduce"] - tests["one"], abs=1e-12)
    assert [number(row["published_training_accuracy"]) for row in rows.values()] == [0.75, 0.5, None]


def test_distances_are_those_of_the_global_batchs_losses(place: Path) -> None:
    rows = {row["cell"]: row for row in table(place, "distance")}
    reference = global_losses(place, "one")
    assert (rows["one"]["distance_largest"], rows["one"]["replicas_identical"]) == ("", "")
    for cell in CELLS[1:]:
        distances = [abs(a - b) / b for a, b in zip(global_losses(place, cell), reference, strict=True)]
        expected = [distances[0], distances[5], distances[-1], max(distances)]
        names = ("distance_first", "distance_after_5", "distance_last", "distance_largest")
        assert [float(rows[cell][name]) for name in names] == pytest.approx(expected, rel=1e-6, abs=1e-15)
        assert rows[cell]["replicas_identical"] == "True"


def test_the_page_says_first_of_each_view_what_was_found(place: Path) -> None:
    folder = place / "results" / "experiments" / "learning"
    scores, losses, curves, accuracy, distance = json.loads((folder / "experiment.json").read_text())["reading"]
    assert scores == "The ranks of all_reduce and ring_all_reduce have the same test scores to the last digit."
    assert losses.startswith("With a global batch of 16, the losses of one, all_reduce and ring_all_reduce lie at most")
    assert curves.startswith("all_reduce and ring_all_reduce coincide: their losses ")
    assert "; one round does not tell whether that is noise." in accuracy
    assert distance.startswith("Within rounding of one stay all_reduce and ring_all_reduce: ")
    figures = {path.name for path in (folder / "figures").iterdir()}
    names = ("losses", "curves-loss", "curves-accuracy", "accuracy-epochs", "accuracy-ends", "distance")
    assert figures >= {f"{name}.svg" for name in names} - {"distance.svg"}


def test_ranks_that_differ_are_told_apart_with_what_the_records_say_of_the_reason(copy: Experiment) -> None:
    copy.change(
        "all_reduce-1", 1, "evaluation", lambda r: r | {"loss": r["loss"] + 0.25, "accuracy": r["accuracy"] + 0.125}
    )
    said = copy.says("scores")
    assert said.startswith(
        "The ranks of all_reduce differ in their test scores: by up to 0.25 in loss and 12.5 percentage points in "
        "accuracy.\nThe ranks of ring_all_reduce have the same test scores to the last digit.\n"
        "The parameters of all_reduce are the same on all ranks to the last bit."
    )


def test_cells_that_part_are_said_to_part_and_from_which_step_on(copy: Experiment) -> None:
    copy.repeat(2)
    copy.change("ring_all_reduce-2", 0, "step", lambda r: r | {"loss": r["loss"] * (1.5 if r["step"] >= 3 else 1)})
    said = copy.says("curves", together=["all_reduce", "ring_all_reduce"])
    assert said.startswith("all_reduce and ring_all_reduce part: at step 3 (round 2) their losses differ by 0.001")
    assert "over 2 epochs and 2 rounds" in said
    assert "coincide" in copy.says("curves", together=["all_reduce", "ring_all_reduce"], tolerance=0.5)
    distances = copy.says("distance", reference="all_reduce")
    assert "Within rounding of all_reduce stays one: " in distances
    assert "ring_all_reduce parts from all_reduce: its losses " in distances
    parted = copy.says("losses")
    assert "in round 1, at step " in parted, "curves are compared within the first round that has both"


def test_a_published_gap_is_laid_beside_the_other_cells(copy: Experiment) -> None:
    one = copy.results.cells[0].first.summary.run[TRAINING_LOSS]
    assert one is not None
    near = {"source": "nobody", "values": {"all_reduce": one * 1.09, "ring_all_reduce": one / 2}}
    said = copy.says("curves", published_loss=near, gap={"from": "all_reduce", "to": "ring_all_reduce"})
    assert f"Within 10 % of what is published as all_reduce, {one * 1.09:g}, ends one (" in said
    assert (
        f"No other cell ends within 10 % of what is published as ring_all_reduce, {one / 2:g}: the nearest is one"
        in said
    )


def test_a_gap_needs_published_losses(copy: Experiment) -> None:
    with pytest.raises(ValueError, match="both cells need a published_loss"):
        copy.section("curves", gap={"from": "one", "to": "all_reduce"})


def test_a_difference_within_the_noise_is_called_none(copy: Experiment) -> None:
    copy.repeat(3)
    accuracies = {"one": (0.5, 0.52, 0.54), "all_reduce": (0.51, 0.51, 0.55), "ring_all_reduce": (0.2, 0.23, 0.24)}
    for cell, values in accuracies.items():
        for place, value in enumerate(values, 1):
            for rank in ranks_of(cell):
                copy.change(f"{cell}-{place}", rank, "evaluation", scored(value))
    section = copy.section("accuracy", baseline="one")
    said = "\n".join(section.sentences)
    assert "all_reduce ends at 51.0 %" in said
    assert ": no difference from one beyond the noise, +0.3 percentage points (" in said
    assert "ring_all_reduce ends at 23.0 %" in said
    assert ": 29.7 percentage points below one (" in said
    assert "Repeats of a cell differ by 0.9 percentage points" in said
    columns = [column.name for column in section.tables[0].columns]
    medians = [row[columns.index("test_accuracy")] for row in section.tables[0].rows]
    assert medians == [median(values) for values in accuracies.values()]


def test_runs_that_never_evaluated_have_no_test_scores(copy: Experiment) -> None:
    for cell in CELLS:
        for rank in ranks_of(cell):
            copy.change(f"{cell}-1", rank, "evaluation", lambda record: None)
    assert copy.says("scores").startswith("No run has test scores")
    assert copy.says("accuracy", baseline="one").startswith("No run has a test accuracy.")
    assert "one itself ends at" in copy.says("accuracy", baseline="one", judged="training")
    for view, options in {"distance": {"reference": "one"}, "accuracy": {}, "scores": {}}.items():
        section = copy.section(view, **options)
        columns = [column.name for column in section.tables[0].columns]
        name = "test_accuracy" if "test_accuracy" in columns else "test_loss"
        assert {row[columns.index(name)] for row in section.tables[0].rows} == {None}


@pytest.mark.parametrize(
    "lost", [("one-1",), ("all_reduce-1", "ring_all_reduce-2"), ("one-1", "one-2", "all_reduce-1")]
)
def test_what_is_missing_is_said_and_the_page_is_made(copy: Experiment, lost: tuple[str, ...]) -> None:
    copy.repeat(2)
    for run in lost:
        copy.lose(run)
    results = copy.results
    made = page.write(results.grid, results.plan)
    assert made.is_file()
    assert missing_sentences(results, results.grid.cells)
    for view, options in OPTIONS.items():
        assert set(missing_sentences(results, results.grid.cells)) <= set(copy.section(view, **options).sentences), view


def test_more_cells_than_a_figure_can_keep_apart_are_said_to_be_left_out(copy: Experiment) -> None:
    lines = "".join(f'[[grid]]\nlabel = "cell {number}"\nWORKERS = 0\nSYNC_MODE = "none"\n' for number in range(12))
    head, _, rest = GRID.partition("[[grid]]")
    put_grid(Path(), "learning", head + lines + rest[rest.index("[[show]]") :].split("[[show]]")[0])
    runs = Path("results/experiments/learning/full")
    for number in range(12):
        shutil.copytree(runs / "one-1", runs / f"cell_{number}-1")
    (figure,) = copy.section("losses").drawings
    assert ", cell 8 and cell 9 coincide." in figure.caption
    assert figure.caption.endswith("The first 10 of 12 cells are drawn.")
