"""Grid files: the cells that they stand for, and the line of whatever is wrong in them."""

from pathlib import Path

import pytest

from app.errors import SettingError
from app.settings import environment
from app.tools.experiment import manual
from app.tools.experiment.page import views_of
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import trials
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

[[show]]
view = "times"
title = "Time"
baseline = "one node"

[show.published]
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


def refusal(text: str, **given: str) -> str:
    with pytest.raises(SettingError) as caught:
        read(text, quick=False, **given)
    assert caught.value.exit_code == 2
    return str(caught.value)


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
    assert cells[4].varied == {"WORKERS": "3", "SYNC_MODE": "ddp", "LINK_RATE": "1gbit"}


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


def test_a_block_can_be_left_out_of_the_quick_version() -> None:
    text = SOUND.replace('label = "one node"', 'label = "one node"\nquick = false')
    assert "one node" in [cell.name for cell in read(text).cells]
    assert "one node" not in [cell.name for cell in read(text, quick=True).cells]
    assert "no cell is left" in refusal(
        text.replace('SYNC_MODE} at {LINK_RATE}"', 'SYNC_MODE} at {LINK_RATE}"\nquick = false')
    )


WRONG = [
    ("WORKERS = 3", 'WORKERS = 3\nquick = "no"', "quick = no: not allowed. Allowed: true, false."),
    ('MODEL = "lenet5"', 'MODEL = "lenet6"', "MODEL=lenet6: not allowed. Allowed: vgg11, lenet5, resnet18, or the"),
    ("MAX_STEPS = 20", "MAX_STEP = 20", "MAX_STEP is not a setting. Did you mean MAX_STEPS?"),
    ("MAX_STEPS = 20", "MAX_STEPS = 0", "MAX_STEPS=0: not allowed. Allowed: a whole number, 1 to 1000000000."),
    ("MAX_STEPS = 20", "MAX_STEPS = true", "MAX_STEPS = True: not allowed. Allowed: a text or a number"),
    ("MAX_STEPS = 20", 'RUN_NAME = "mine"', "RUN_NAME is not for a grid"),
    ("WORKERS = 3", "WORKERS = -1", "WORKERS=-1: not allowed. Allowed: a whole number, 0 to 100."),
    ("WORKERS = 3", 'WORKERS = "many"', "WORKERS=many: not allowed."),
    ("WORKERS = 3", "WORKERS = 3\nRANK_CPUS = 1000", "RANK_CPUS=1000: not allowed. Allowed: at most "),
    ("WORKERS = 3", 'WORKERS = 3\nRANK_MEMORY = "lots"', "RANK_MEMORY=lots: not allowed."),
    ("WORKERS = 3", "WORKERS = 3\nSLOW_RANK = 4", "SLOW_RANK=4: there is no rank 4. Allowed with 4 rank(s): 0 to 3."),
    ("WORKERS = 3", 'WORKERS = 3\nDATASET = "shapes"', "MODEL=lenet5 with DATASET=shapes"),
    ("WORKERS = 3", "WORKERS = 3\nTRAIN_SAMPLES = 2000", "TRAIN_SAMPLES=2000: not allowed. Allowed with this data set"),
    ('["all_reduce", "ddp"]', '["all_reduce", "dpp"]', "SYNC_MODE=dpp: not allowed."),
    ('["all_reduce", "ddp"]', '["ddp", "ddp"]', "not allowed. Allowed: one value or more, each once."),
    ('["all_reduce", "ddp"]', "[]", "SYNC_MODE = []: not allowed. Allowed: one value or more, each once."),
    ('LINK_RATE = "1gbit"', 'LINK_RATE = "1gbps"', "LINK_RATE=1gbps: not allowed."),
    ("repeats = 3", "repeats = 0", "repeats = 0: not allowed. Allowed: a whole number, 1 to 100."),
    ("repeats = 2", 'repeats = "2"', "repeats = 2: not allowed."),
    ("repeats = 2", "rounds = 2", "'rounds' is no field. Allowed here: repeats, settings."),
    ("question = ", "purpose = ", "'purpose' is no field. Allowed here: title, question, notes, repeats,"),
    ('question = "Which is the fastest?"', "", "'question' is missing or is not a text."),
    ('title = "Modes"', 'title = ""', "'title' is missing or is not a text."),
    ("repeats = 3", "repeats = 3\nnotes = [1]", "notes = 1: not allowed. Allowed: a list of texts."),
    ("MAX_STEPS = 20", "MAX_STEP = true", "MAX_STEP is not a setting. Did you mean MAX_STEPS?"),
    ('label = "{SYNC_MODE} at {LINK_RATE}"', 'label = "{MODE}"', "Allowed in braces: MODEL, MAX_STEPS, WORKERS"),
    ('label = "{SYNC_MODE} at {LINK_RATE}"', 'label = "{SYNC_MODE}"', "two cells are called 'all_reduce' and"),
    ('view = "times"', 'view = "tims"', "'tims' is no view. Did you mean times?"),
    ("baseline = ", "base = ", "view 'times': base: Extra inputs are not permitted. Its options: title, note,"),
    ('baseline = "one node"', 'baseline = "1 node"', "view 'times': '1 node' is no cell of this grid."),
    ('source = "a report"', 'origin = "a report"', "view 'times': published.source: Field required."),
]


@pytest.mark.parametrize(("sound", "wrong", "message"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_what_is_wrong_is_refused_with_file_and_line(sound: str, wrong: str, message: str) -> None:
    assert sound in SOUND
    told = refusal(SOUND.replace(sound, wrong, 1))
    place, _, what = told.partition(": ")
    assert message in what
    file, _, line = place.partition(", line ")
    assert file == "scripts/experiments/modes.toml"
    lines = SOUND.replace(sound, wrong, 1).splitlines()
    wrong_line = (wrong.splitlines() or [sound])[-1]
    shown = lines[int(line) - 1]
    # What is missing, or wrong between two lines, has the line of the table that it belongs to.
    assert wrong_line in shown or shown in ("[[grid]]", "[[show]]", "[show.published]", 'title = "Modes"')


def test_no_toml_at_all_is_refused_with_its_line() -> None:
    assert refusal(SOUND.replace("[[grid]]", "[[grid", 1)).startswith("scripts/experiments/modes.toml is no TOML: ")
    assert "line 9" in refusal(SOUND.replace("[[grid]]", "[[grid", 1))


def test_a_wrong_setting_that_was_given_beside_the_file_is_not_put_down_to_it() -> None:
    assert refusal(SOUND, MAX_STEPS="many").startswith("MAX_STEPS=many: not allowed.")
    assert refusal(SOUND, SYNC_MODE="ddp") == "SYNC_MODE=ddp: the experiment 'modes' varies SYNC_MODE itself."
    assert refusal(SOUND, MAX_STEP="3") == "MAX_STEP is not a setting that experiments take. Did you mean MAX_STEPS?"


@pytest.mark.parametrize("name", ["absent", "../modes", "modes.toml", ""])
def test_an_experiment_that_there_is_not_is_answered_with_those_that_there_are(name: str) -> None:
    read(SOUND)
    with pytest.raises(SettingError, match=r"is no experiment: .* Known: modes\."):
        grid.read(name)


@pytest.mark.parametrize("path", sorted((ROOT / "scripts/experiments").glob("*.toml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("quick", [False, True])
def test_the_projects_own_grid_files_are_sound(path: Path, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"experiments/{path.name}").write_text(path.read_text())
    found = grid.read(path.stem, quick=quick)
    assert len(views_of(found)) == len(found.show) > 0
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
            plan = make_plan(asked.training, source_of(asked.training.dataset_name).train_samples, cell.world_size)
            if asked.training.train_samples is None and (warning := too_few_epochs(asked.training, plan)):
                short[f"{path.stem}: {cell.name}"] = warning
    assert short == {}


def test_a_view_of_some_cells_needs_at_least_one() -> None:
    found = read(SOUND.replace('title = "Time"', 'title = "Time"\nwhere = { SYNC_MODE = "ddp" }'))
    assert [cell.name for cell in found.cells if cell.has(views_of(found)[0].where)] == [
        "ddp at 100mbit",
        "ddp at 1gbit",
    ]
    told = refusal(SOUND.replace('title = "Time"', 'title = "Time"\nwhere = { SYNC_MODE = "tree" }'))
    assert "view 'times': no cell has all settings of its 'where'." in told


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
