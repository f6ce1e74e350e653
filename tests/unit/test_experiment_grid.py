"""Grid files: the cells that they stand for, and the line of whatever is wrong in them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import SettingError
from app.records import series
from app.records.series import EndedRun, PlannedRun
from app.settings import environment
from app.tools.experiment import manual
from app.tools.experiment.page import views_of
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ExperimentPlan, trials
from app.training.datasets import source_of
from app.training.loop import make_plan, too_few_epochs

ROOT = Path(__file__).parents[2]

SOUND = """\
title = "Modes"
question = "Which is the fastest?"
repeats = 3

[settings]
MODEL = "lenet5"
MAX_STEPS = 20

[[grid]]
label = "one node"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
label = "{SYNC_MODE} at {LINK_RATE}"
WORKERS = 3
SYNC_MODE = ["all_reduce", "ddp"]
LINK_RATE = [
    "100mbit",
    "1gbit",
]

[quick]
repeats = 2

[quick.settings]
MAX_STEPS = 5
LINK_RATE = "1gbit"

[[view]]
kind = "bar"
title = "Time"
measure = "seconds"
baseline = "one node"

[view.published]
source = "a report"
values = { "one node" = 1.5 }
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiments").mkdir()
    monkeypatch.chdir(tmp_path)


def read(text: str, *, quick: bool = False, **given: str) -> grid.Grid:
    Path("experiments/modes.toml").write_text(text)
    found = grid.read("modes", quick=quick, given=given)
    views_of(found)
    return found


def refused(text: str, **given: str) -> SettingError:
    with pytest.raises(SettingError) as caught:
        read(text, quick=False, **given)
    assert caught.value.exit_code == 2
    return caught.value


def refusal(text: str, **given: str) -> str:
    return str(refused(text, **given))


def test_cells_are_the_products_of_the_lists_of_each_block() -> None:
    cells = read(SOUND).cells
    assert [cell.name for cell in cells] == [
        "one node",
        "all_reduce at 100mbit",
        "all_reduce at 1gbit",
        "ddp at 100mbit",
        "ddp at 1gbit",
    ]
    assert cells[0].settings == {"MODEL": "lenet5", "MAX_STEPS": "20", "WORKERS": "0", "SYNC_MODE": "none"}
    assert cells[4].settings["LINK_RATE"] == "1gbit"
    assert cells[4].world_size == 4


def test_the_quick_version_takes_other_values_where_the_grid_has_some() -> None:
    small = read(SOUND, quick=True)
    assert small.repeats == 2
    assert [cell.name for cell in small.cells] == ["one node", "all_reduce at 1gbit", "ddp at 1gbit"]
    assert {cell.settings["MAX_STEPS"] for cell in small.cells} == {"5"}


def test_settings_given_beside_the_file_are_for_all_cells_and_win() -> None:
    found = read(SOUND, MAX_STEPS="7", DATASET="mnist")
    assert {(cell.settings["MAX_STEPS"], cell.settings["DATASET"]) for cell in found.cells} == {("7", "mnist")}
    assert {cell.settings["MAX_STEPS"] for cell in read(SOUND, quick=True, MAX_STEPS="7").cells} == {"7"}


def test_rounds_are_interleaved_and_each_has_a_seed_of_its_own() -> None:
    planned = list(trials(read(SOUND, quick=True, SEED="40")))
    assert [(trial.cell, trial.round) for trial in planned] == [
        (cell, number) for number in (1, 2) for cell in ("one node", "all_reduce at 1gbit", "ddp at 1gbit")
    ]
    assert [trial.settings["SEED"] for trial in planned] == ["40", "40", "40", "41", "41", "41"]
    assert len({trial.settings["RUN_NAME"] for trial in planned}) == len(planned)


def test_runs_share_containers_wherever_only_the_training_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = SOUND.replace('"all_reduce", "ddp"', '"all_reduce", "ddp", "tree"').replace(
        '"none"', '"none"\nBACKEND = "mpi"'
    )
    plan = ExperimentPlan.make(read(text), lambda _: 1.0, fresh=True)
    plan.write(fresh=True)
    together = []
    while found := plan.next():
        together.append([trial.cell for trial in found])
        assert len({tuple(trial.of_containers.items()) for trial in found}) == 1
        for trial in found:
            (plan.folder / trial.name).mkdir()
            (plan.folder / trial.name / "summary.json").write_text('{"complete": true}')
    modes = ("all_reduce", "ddp", "tree")
    assert together == 3 * [["one node"], *([f"{mode} at {rate}" for mode in modes] for rate in ("100mbit", "1gbit"))]
    unchanged = list(trials(replace(read(text), keeps_order=True)))
    assert [trial.cell for trial in unchanged[:7]] == [cell.name for cell in read(text).cells]


def test_runs_of_mpi_start_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ExperimentPlan.make(read(SOUND, BACKEND="mpi"), lambda _: 1.0, fresh=True)
    assert [trial.cell for trial in plan.next()] == ["one node"]


@pytest.mark.parametrize(
    ("told", "code", "noted"),
    [
        pytest.param([("a", 0, 3.0), ("b", 1, 3.0)], 1, {"a": 0, "b": 1}, id="one failed"),
        pytest.param([("a", 0, 3.0)], 137, {"a": 0, "b": 137}, id="rank 0 was killed"),
        pytest.param([("a", 2, 0.0)], 137, {"a": 2, "b": 137}, id="one could not start, and rank 0 was killed"),
        pytest.param([], 1, {"a": 1}, id="the containers did not start"),
    ],
)
def test_how_each_run_of_a_series_ended_is_noted_once(
    tmp_path: Path, told: list[tuple[str, int, float]], code: int, noted: dict[str, int]
) -> None:
    plan = ExperimentPlan(tmp_path, [])
    series.plan(tmp_path, [PlannedRun(name, name, {}) for name in ("a", "b", "c")])
    for each in told:
        series.end(tmp_path, EndedRun(*each))
    plan.note_series(code, 5.0)
    assert {each.run: each.exit_code for each in plan.outcomes()} == noted
    assert {*plan.attempts_made().values()} == {1}
    assert plan.note_series() == []


def test_a_block_can_be_left_out_of_the_quick_version() -> None:
    text = SOUND.replace('label = "one node"', 'label = "one node"\nquick = false')
    assert "one node" in [cell.name for cell in read(text).cells]
    assert "one node" not in [cell.name for cell in read(text, quick=True).cells]
    assert "quick version" in refusal(
        text.replace('SYNC_MODE} at {LINK_RATE}"', 'SYNC_MODE} at {LINK_RATE}"\nquick = false')
    )


WRONG = [
    ("WORKERS = 3", 'WORKERS = 3\nquick = "no"', "quick = no.* boolean"),
    ('MODEL = "lenet5"', 'MODEL = "lenet6"', "MODEL.*lenet6.* vgg11, lenet5, resnet18"),
    ("MAX_STEPS = 20", "MAX_STEP = 20", r"MAX_STEP\b.* MAX_STEPS"),
    ("MAX_STEPS = 20", "MAX_STEPS = 0", "MAX_STEPS.*0.* 1 to 1000000000"),
    ("MAX_STEPS = 20", "MAX_STEPS = true", "MAX_STEPS = True.* a text or a number"),
    ("MAX_STEPS = 20", 'RUN_NAME = "mine"', "RUN_NAME"),
    ("WORKERS = 3", "WORKERS = -1", "WORKERS.*-1.* 0 to 100"),
    ("WORKERS = 3", 'WORKERS = "many"', "WORKERS.*many"),
    ("WORKERS = 3", "WORKERS = 3\nRANK_CPUS = 1000", "RANK_CPUS.*1000"),
    ("WORKERS = 3", 'WORKERS = 3\nRANK_MEMORY = "lots"', "RANK_MEMORY.*lots"),
    ("WORKERS = 3", "WORKERS = 3\nSLOW_RANK = 4", "SLOW_RANK.*4.* 0 to 3"),
    ("WORKERS = 3", 'WORKERS = 3\nDATASET = "shapes"', "MODEL.*lenet5.*DATASET.*shapes"),
    ("WORKERS = 3", "WORKERS = 3\nTRAIN_SAMPLES = 60001", "TRAIN_SAMPLES.*60001.* 1 to "),
    ('["all_reduce", "ddp"]', '["all_reduce", "dpp"]', "SYNC_MODE.*dpp"),
    ('["all_reduce", "ddp"]', '["ddp", "ddp"]', "SYNC_MODE = .* each once"),
    ('["all_reduce", "ddp"]', "[]", r"SYNC_MODE = \[\].* each once"),
    ('LINK_RATE = "1gbit"', 'LINK_RATE = "1gbps"', "LINK_RATE.*1gbps"),
    ("repeats = 3", "repeats = 0", "repeats = 0.* greater than or equal to 1"),
    ("repeats = 2", 'repeats = "2"', "repeats = 2"),
    ("repeats = 2", "rounds = 2", "'rounds'.* repeats, settings"),
    ("question = ", "purpose = ", "'purpose'.* title, question, notes, repeats,"),
    ('question = "Which is the fastest?"', "", "'question' is missing"),
    ('title = "Modes"', 'title = ""', "title = .* at least 1 character"),
    ("repeats = 3", "repeats = 3\nnotes = [1]", "notes = 1.* string"),
    ('label = "{SYNC_MODE} at {LINK_RATE}"', 'label = "{MODE}"', r"\{MODE\}.* MODEL, MAX_STEPS, WORKERS"),
    ('label = "{SYNC_MODE} at {LINK_RATE}"', 'label = "{SYNC_MODE}"', "'all_reduce'.*'all_reduce'"),
    ('kind = "bar"', 'kind = "bars"', "'bars'.* bar"),
    ('measure = "seconds"', 'measure = "second"', "'second'.* seconds"),
    ('measure = "seconds"', "measure = 'seconds_to_loss(0)'", r"'seconds_to_loss\(0\)'"),
    ('measure = "seconds"', "measure = []", "measure"),
    ('measure = "seconds"', 'measure = "busiest_rank"', "number.*'busiest_rank'"),
    ("baseline = ", "base = ", "'base'.* title, measure,"),
    ('baseline = "one node"', 'baseline = "1 node"', "'1 node'.*one node"),
    ('baseline = "one node"', 'baseline = "one node"\nstacked = true', "two measures"),
    ('source = "a report"', 'origin = "a report"', "'origin'.* measure, ratio, source,"),
    ('source = "a report"', 'source = "a report"\nmeasure = "accuracy"', "'accuracy'"),
]


@pytest.mark.parametrize(("sound", "wrong", "message"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_what_is_wrong_is_refused_with_its_place_in_the_file(sound: str, wrong: str, message: str) -> None:
    assert sound in SOUND
    told = refusal(SOUND.replace(sound, wrong, 1))
    place, _, what = told.partition(": ")
    assert re.search(message, what)
    file, *tables = place.split(", ")
    assert file == "scripts/experiments/modes.toml"
    until = SOUND.replace(sound, wrong, 1)[: SOUND.index(sound) + len(wrong)]
    key = until.rpartition("\n")[2].partition(" = ")[0]
    # What is missing, or is wrong between two keys, has the place of its table.
    assert tables[-1] == (key or "question") or tables[-1].startswith(("[[grid]] ", "[[view]] 1"))
    assert not tables[0].startswith("[[grid]] ") or tables[0] == f"[[grid]] {until.count('[[grid]]')}"


@pytest.mark.parametrize(
    ("sound", "wrong", "name"),
    [
        ("MAX_STEPS = 20", "MAX_STEP = 20", "unknown-setting"),
        ("MAX_STEPS = 20", "MAX_STEPS = 0", "invalid-setting"),
        ("repeats = 3", "repeats = 0", "invalid-grid"),
        ('kind = "bar"', 'kind = "bars"', "unknown-name"),
        ('measure = "seconds"', 'measure = "second"', "unknown-name"),
    ],
)
def test_each_kind_of_mistake_has_its_name(sound: str, wrong: str, name: str) -> None:
    assert refused(SOUND.replace(sound, wrong, 1)).name == name


def test_no_toml_at_all_is_refused_with_its_line() -> None:
    error = refused(SOUND.replace("[[grid]]", "[[grid", 1))
    assert error.name == "invalid-grid"
    assert re.search("scripts/experiments/modes.toml.*line 9", str(error))


def test_a_wrong_setting_that_was_given_beside_the_file_is_not_put_down_to_it() -> None:
    for given, name, facts in (
        ({"MAX_STEPS": "many"}, "invalid-setting", "MAX_STEPS.*many"),
        ({"SYNC_MODE": "ddp"}, "conflicting-settings", "SYNC_MODE=ddp.*'modes'"),
        ({"MAX_STEP": "3"}, "unknown-setting", r"MAX_STEP\b.* MAX_STEPS"),
    ):
        error = refused(SOUND, **given)
        assert error.name == name
        assert re.search(facts, str(error))
        assert ".toml" not in str(error)


@pytest.mark.parametrize("name", ["absent", "../modes", "modes.toml", ""])
def test_an_experiment_that_there_is_not_is_answered_with_those_that_there_are(name: str) -> None:
    read(SOUND)
    with pytest.raises(SettingError, match=r": modes\.$") as caught:
        grid.read(name)
    assert caught.value.name == "unknown-name"


@pytest.mark.parametrize("path", sorted((ROOT / "scripts/experiments").glob("*.toml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("quick", [False, True])
def test_the_projects_own_grid_files_are_sound(path: Path, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"experiments/{path.name}").write_text(path.read_text())
    found = grid.read(path.stem, quick=quick)
    assert len(views_of(found)) == len(found.views) > 0
    names = [cell.name for cell in found.cells]
    assert len(set(names)) == len(names) > 1


@pytest.mark.parametrize("folder", ["experiments", "calibration"])
@pytest.mark.parametrize("quick", [False, True])
def test_the_projects_own_runs_have_as_many_steps_as_they_ask_for(
    folder: str, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run also ends with its last epoch: with few images, that is after a few steps, which measure little.

    A cell with TRAIN_SAMPLES means to end with them.
    """
    monkeypatch.setattr(grid, "GRIDS", ROOT / "scripts" / folder)
    short = {}
    for path in grid.GRIDS.glob("*.toml"):
        for cell in grid.read(path.stem, quick=quick).cells:
            asked = environment.of(cell.settings)
            plan = make_plan(asked.training, source_of(asked.training.dataset).train_samples, cell.world_size)
            if asked.training.train_samples is None and (warning := too_few_epochs(asked.training, plan)):
                short[f"{path.stem}: {cell.name}"] = warning
    assert short == {}


def test_a_view_of_some_cells_needs_at_least_one() -> None:
    plain = SOUND.replace('baseline = "one node"\n', "")[
        : SOUND.index("\n[view.published]") - len('baseline = "one node"\n')
    ]
    found = read(plain.replace('title = "Time"', 'title = "Time"\nwhere = { SYNC_MODE = "ddp" }'))
    assert [cell.name for cell in found.cells if cell.matches(views_of(found)[0].where)] == [
        "ddp at 100mbit",
        "ddp at 1gbit",
    ]
    told = refusal(SOUND.replace('title = "Time"', 'title = "Time"\nwhere = { SYNC_MODE = "tree" }'))
    assert "[[view]] 1: no cell" in told


@pytest.mark.parametrize(
    ("view", "told"),
    [
        ('kind = "line"\nmeasure = "seconds"\nby = "rate"\nseries = "mode"\nagainst = "dpp"', "'dpp'.* ddp"),
        ('kind = "line"\nmeasure = "seconds"\nby = "rate"\nseries = "mode"\nwatch = "dpp"', "'dpp'.* ddp"),
        ('kind = "line"\nmeasure = "seconds"\nby = "rate"\nagainst = "ddp"', "series"),
        ('kind = "line"\nmeasure = "seconds"\nby = "rates"', "'rates'.* LINK_RATE"),
        ('kind = "line"\nmeasure = "seconds"\nby = "rate"\nwhere = { LINK_RAT = "*" }', "'LINK_RAT'.* LINK_RATE"),
        ('kind = "bar"\nmeasure = "accuracy"\nbaseline = "one node"\ntimes_less = true', "share"),
        ('kind = "bar"\nmeasure = "seconds"\ntimes_less = true', "baseline"),
        ('kind = "bar"\nmeasure = ["seconds", "accuracy"]\nstacked = true', "unit"),
        ('kind = "curve"\nmeasure = "accuracy"', "'accuracy'"),
        ('kind = "curve"\nmeasure = "accuracy"\nby = "epoch"\nevery = 2', "every"),
        ('kind = "curve"\nmeasure = ["loss", "seconds"]\nreference = "one node"', "reference"),
        ('kind = "curve"\nmeasure = "loss"\npublished = { source = "a", values = { "one node" = 2.5 } }', "lists"),
        ('kind = "table"\nmeasure = "seconds"\nby = "step"', "by = step.*'cell' or 'rank'"),
        ('kind = "table"\nmeasure = ["first_step.seconds", "first_step_seconds"]', "'first_step"),
    ],
)
def test_options_that_no_page_could_follow_are_refused(view: str, told: str) -> None:
    error = refused(SOUND[: SOUND.index("[[view]]")] + f'[[view]]\ntitle = "T"\n{view}\n')
    assert re.search(told, str(error))


def test_the_grid_file_that_the_documents_show_loads() -> None:
    page = (ROOT / "docs/experiments.md").read_text()
    assert len(read(page.split("```toml\n")[1].split("```")[0]).cells) == 4


SCALING = """\
title = "Scaling"
question = "How far?"

[[grid]]
label = "one rank"
WORKERS = 0
SYNC_MODE = "none"

[[grid]]
label = "{SYNC_MODE}, {ranks} ranks"
WORKERS = [1, 2, 3, 7]
SYNC_MODE = ["all_reduce", "ddp"]
LINK_RATE = "1gbit"

[quick.settings]
WORKERS = [1, 3]
SYNC_MODE = ["ddp"]
LINK_RATE = "100mbit"
"""


def test_a_quick_list_narrows_lists_and_leaves_alone_what_makes_a_block() -> None:
    cells = {cell.name: cell.settings for cell in read(SCALING, quick=True).cells}
    assert list(cells) == ["one rank", "ddp, 2 ranks", "ddp, 4 ranks"]
    assert cells["one rank"] == {"WORKERS": "0", "SYNC_MODE": "none"}
    assert cells["ddp, 2 ranks"]["LINK_RATE"] == "100mbit"


def test_the_manual_of_grid_files_is_made_from_what_they_can_hold() -> None:
    assert (ROOT / "scripts/experiments/README.md").read_text() == manual.text(), "make it anew, see CONTRIBUTING.md"
