"""Whatever stands in a grid file is planned or refused with its place; nothing is run, and nothing fills the memory."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.errors import SettingError
from app.records.series import ENDED, PLANNED
from app.tools.experiment.page import views_of
from app.tools.experiment.plan import grid
from app.tools.experiment.plan.trials import ASKED, OUTCOMES, PLAN, ExperimentPlan, folder_of, trials
from tests.unit.test_experiment_grid import SOUND

LINES = SOUND.splitlines()
KEYS = [number for number, line in enumerate(LINES) if " = " in line]
LONGEST_LINE = 3000
LONG = '"' + "x" * 10_000 + '"'
LISTS = "\n".join(f"{name} = {list(range(1, 60))}" for name in ("EPOCHS", "SEED", "LOG_EVERY", "TRAIN_SAMPLES"))

VALUES = st.one_of(
    st.sampled_from(
        [
            "true",
            "[]",
            "{}",
            "[[]]",
            "[1, true]",
            "{ a = 1 }",
            "-1",
            "1e400",
            "nan",
            "[inf]",
            "1" * 5000,
            "0x" + "f" * 5000,
            "[0x" + "f" * 5000 + "]",
            "[" * 5000 + "]" * 5000,
            "{a=" * 2000 + "1" + "}" * 2000,
            "a." * 5000 + "b",
            "1979-05-27T07:32:00Z",
            "9999-99-99",
            '"""\n"""',
            '"{MODEL:>999999999999}"',
            '"{MODEL!r:{MAX_STEPS}}"',
            '"{MODEL.__class__.__mro__}"',
            '"{MODEL[0]}"',
            '"{}"',
            '"{"',
            r'"\u0000\u001b[2J"',
            LONG,
            str(list(range(2000))),
        ]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text().map(lambda text: f"'{text}'"),
    st.lists(st.integers(0, 9) | st.sampled_from(["lenet5", "ddp", "1gbit"])).map(str),
)
NAMES = st.sampled_from(["label", "may_fail", "quick", "repeats", "WORKERS", "EPOCHS", "grid", "show", "view", "title"])
any_example = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grids")
    (folder / "experiments").mkdir()
    return folder


def read(place: Path, content: bytes) -> str | None:
    """Plan it; the refusal, if there is one."""
    (place / "experiments/any.toml").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        try:
            for quick in (False, True):
                found = grid.read("any", quick=quick)
                views_of(found)
                assert len(list(trials(found))) == len(found.cells) * found.repeats
        except SettingError as error:
            told = str(error)
        else:
            return None
    assert "scripts/experiments/any.toml" in told[:50]
    assert told.isprintable()
    assert len(told) <= LONGEST_LINE
    return told


def _key(number: int) -> str:
    return LINES[number].partition(" = ")[0]


@any_example
@given(st.integers(0, len(SOUND)), st.integers(0, 9), st.binary(max_size=30))
@example(0, 10_000, b"")
@example(0, 0, b"\xff\xfe")
@example(0, 0, b"\n" * 2**19)
def test_any_bytes_are_others(place: Path, begin: int, length: int, other: bytes) -> None:
    whole = SOUND.encode()
    read(place, whole[:begin] + other + whole[begin + length :])


@pytest.mark.parametrize("number", KEYS)
def test_a_text_that_is_far_too_long_is_not_repeated_whole(place: Path, number: int) -> None:
    read(place, "\n".join([*LINES[:number], f"{_key(number)} = {LONG}", *LINES[number + 1 :]]).encode())


@any_example
@given(st.sampled_from(KEYS), VALUES)
def test_any_value_is_another(place: Path, number: int, value: str) -> None:
    changed = [*LINES[:number], f"{_key(number)} = {value}", *LINES[number + 1 :]]
    read(place, "\n".join(changed).encode(errors="surrogatepass"))


@any_example
@given(st.sampled_from(KEYS), NAMES | st.text(max_size=9).map(repr), VALUES)
def test_any_field_is_added(place: Path, number: int, name: str, value: str) -> None:
    added = [*LINES[:number], f"{name} = {value}", *LINES[number:]]
    read(place, "\n".join(added).encode(errors="surrogatepass"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff", ": 'utf-8' codec can't decode byte 0xff"),
        (b"a = " + b"[" * 5000, "parse"),
        (b"a = " + b"1" * 5000, ": Exceeds the limit"),
        (b"#" * (2**18 + 1), " 262,145 bytes.* 262,144"),
        (SOUND.replace("WORKERS = 3", LISTS).encode(), " 48469445 cells.* 1000"),
        (SOUND.replace("{SYNC_MODE} at", "{SYNC_MODE:>9999999999} at").encode(), "label.*SYNC_MODE:>9999999999} at"),
    ],
)
def test_what_no_machine_could_plan_is_refused_at_once(place: Path, content: bytes, told: str) -> None:
    assert re.search(told, read(place, content) or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
)
FOLDERS = st.text() | st.sampled_from([".", "..", "", "a/b", "../../outside", "/etc", "mine-1"])
TRIALS = st.builds(
    lambda name, given: {**given, "name": name},
    FOLDERS,
    st.dictionaries(st.sampled_from(["cell", "round", "settings", "attempts", "expected_seconds"]), JSON),
)


@any_example
@given(
    st.sampled_from([PLAN, OUTCOMES, ASKED, PLANNED, ENDED]),
    st.binary() | (JSON | st.lists(TRIALS, max_size=2)).map(lambda value: json.dumps(value).encode()),
)
@example(PLAN, b"[" * 100_000)
@example(PLAN, b'[{"name": "..", "cell": "a", "round": 1, "settings": {}}]')
def test_any_plan_is_read_or_counts_as_absent(place: Path, name: str, content: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        folder = folder_of("any", quick=True)
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder.parent / "kept"
        kept.touch()
        (place / "experiments/any.toml").write_text(SOUND)
        made = ExperimentPlan.make(grid.read("any", quick=True), lambda _: 1.0, fresh=True)
        made.write(fresh=True)
        (folder / name).write_bytes(content)
        found = ExperimentPlan.read("any", quick=True)
        assert found.seconds_left() >= 0
        assert {(folder / trial.name).parent for trial in found.next()} <= {folder}
        made.note("mine-1", 1, 2.0)
        made.write(fresh=False)
        assert kept.exists()
