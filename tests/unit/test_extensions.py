"""Files in extensions/: found by name alone, read without being run, and blamed by file and line."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from app.errors import ExtensionError, LockstepError, SettingError
from app.extensions import files, moved, reading
from app.extensions.loading import blamed, load
from app.machine.source import source_sha256
from app.settings import environment
from app.sync import ALL_REDUCE, Exchange, Size
from app.sync.modes import mode_class
from app.training import models
from tests.solutions import EXAMPLES, SCHEDULED, SOLUTIONS, on_the_page, solved

BOMB = "raise SystemExit('it was run')\n"
MODE = "from app.sync.contract import GradientSync\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an empty extensions/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "extensions").mkdir()
    return tmp_path / "extensions"


def problem(**given: str) -> str:
    return next(iter(environment.problems(given).values()), "")


def test_a_name_is_valid_if_there_is_such_a_file_which_is_not_opened(folder: Path) -> None:
    for name in ("my_mode", "my_model", "my_set"):
        (folder / f"{name}.py").write_text(BOMB)
    settings = environment.of({"SYNC_MODE": "my_mode", "MODEL": "my_model", "DATASET": "my_set"})
    assert settings.own == {"SYNC_MODE": "my_mode", "MODEL": "my_model", "DATASET": "my_set"}
    assert environment.of({"MODEL": "my_model"}).training.dataset == "fashion"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SYNC_MODE", "my_mod", "or the name of a file in extensions/. Did you mean my_mode?"),
        ("MODEL", "mymode", "Did you mean my_mode?"),
        ("SYNC_MODE", "../extensions/my_mode", "invalid SYNC_MODE '../extensions/my_mode'"),
        ("SYNC_MODE", "no-module", "invalid SYNC_MODE 'no-module'"),
        ("SYNC_MODE", "tree", "SYNC_MODE=tree: extensions/tree.py is shadowed by the built-in one"),
        ("DATASET", "nowhere", "invalid DATASET 'nowhere'"),
    ],
)
def test_other_names_are_refused_in_words(folder: Path, name: str, value: str, words: str) -> None:
    for each in ("my_mode", "no-module", "tree"):
        (folder / f"{each}.py").touch()
    assert words in problem(**{name: value})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class My(:\n", "line 1"),
        ("\0", "null bytes"),
        ("(" * 10_000, "parse"),
        ("", "line 1: found no subclass of GradientSync"),
        (MODE + "class My:\n    pass\n", "found no subclass of GradientSync"),
        (MODE + "class A(GradientSync): ...\nclass B(GradientSync): ...\n", "2 modes: A (line 2), B (line 3)"),
        ("x = 0\n" * 200_000, "1,000,000 bytes"),
    ],
    ids=["no class", "no text", "too deep", "empty", "no base", "two modes", "too long"],
)
def test_what_is_no_mode_is_refused_with_file_and_line_and_is_not_run(folder: Path, text: str, words: str) -> None:
    (folder / "my_mode.py").write_text(text + BOMB if words.startswith("found no subclass") else text)
    with pytest.raises(SettingError, match=r"extensions/my_mode\.py") as caught:
        reading.check_mode("my_mode")
    assert words in str(caught.value)
    assert (caught.value.exit_code, caught.value.name) == (2, "invalid-extension")


@pytest.mark.parametrize(
    "text",
    [
        *((EXAMPLES / f"{name}.py").read_text() for name in SOLUTIONS),
        *map(solved, SOLUTIONS),
        SCHEDULED,
        on_the_page()["my_mode"],
        MODE + "class A(GradientSync): ...\nclass B(A): ...\n",
        "from app.sync import exchange\nclass A(exchange.Exchange): ...\n",
        "from app.sync.modes.all_reduce import AllReduce as Base\nclass A(Base): ...\n",
        "import app.sync.contract\nclass A(app.sync.contract.GradientSync): ...\n",
    ],
    ids=range(12),
)
def test_modes_are_seen_however_they_are_written(folder: Path, text: str) -> None:
    (folder / "my_mode.py").write_text(text + BOMB)
    reading.check_mode("my_mode")


def test_models_and_sets_are_read_as_well(folder: Path) -> None:
    for name, text in on_the_page().items():
        (folder / f"{name}.py").write_text(text)
    reading.check_model("my_model")
    reading.check_dataset("my_set")
    assert reading.channels_of("my_model") == 3
    (folder / "grey.py").write_text("CHANNELS = 1\nclass build: ...\n")
    assert reading.channels_of("grey") == 1
    (folder / "odd.py").write_text("CHANNELS = 1 + 1\ndef build(batch_norm): ...\n")
    for check, name, words in (
        (reading.check_model, "my_set", "build"),
        (reading.check_dataset, "my_model", "SOURCE"),
        (reading.check_model, "odd", "line 1: CHANNELS .* 1 or 3"),
        (reading.check_model, "absent", "absent"),
    ):
        with pytest.raises(SettingError, match=words):
            check(name)


def test_a_loaded_file_has_one_mode_that_is_whole(folder: Path) -> None:
    (folder / "whole.py").write_text(SCHEDULED)
    assert mode_class("whole").__name__ == "Chain"
    (folder / "part.py").write_text(MODE + "class Part(GradientSync): ...\n")
    with pytest.raises(ExtensionError, match=r"extensions/part\.py: Part .*synchronise"):
        mode_class("part")


ONE_PARAMETER = """
import torch
def build(batch_norm):
    net = torch.nn.Module()
    net.odd = torch.nn.Parameter({})
    return net
"""


def test_a_parameter_whose_elements_overlap_or_have_gaps_is_refused(folder: Path) -> None:
    for number, tensor in enumerate(("zeros(1, 1).expand(3, 2)", "zeros(6, 1)[::2]", "zeros(4, 3)[:, :2]")):
        bad, good = f"bad_{number}", f"good_{number}"
        (folder / f"{bad}.py").write_text(ONE_PARAMETER.format(f"torch.{tensor}"))
        with pytest.raises(ExtensionError, match=rf"extensions/{bad}\.py: parameter odd .* strides"):
            models.build(bad, seed=1)
        (folder / f"{good}.py").write_text(ONE_PARAMETER.format(f"torch.{tensor}.clone().T"))
        models.build(good, seed=1)


def test_a_complex_tensor_is_refused(folder: Path) -> None:
    """PyTorch would keep the real part alone."""
    (folder / "imaginary.py").write_text(ONE_PARAMETER.format("torch.zeros(2, dtype=torch.complex64)"))
    with pytest.raises(ExtensionError, match=r"extensions/imaginary\.py: odd is torch\.complex64"):
        models.build("imaginary", seed=1)


def test_an_error_names_the_file_and_the_line_that_it_has_passed_through_last(folder: Path) -> None:
    (folder / "fails.py").write_text("def fail():\n    return {}['x']\n\ndef pass_on(error):\n    raise error\n")
    words = r"rank 1: extensions/fails\.py, line 2, in fail: KeyError: 'x'"
    with pytest.raises(ExtensionError, match=words), blamed("fails", who="rank 1: "):
        load("fails").fail()
    with pytest.raises(LockstepError, match=r"^a rank was lost$"), blamed("fails"):
        load("fails").pass_on(LockstepError("a rank was lost"))
    with pytest.raises(ZeroDivisionError), blamed("fails"):
        1 / 0  # noqa: B018  # the program's own
    (folder / "at_once.py").write_text("\n1 / 0\n")
    with pytest.raises(ExtensionError, match=r"extensions/at_once\.py, line 2: ZeroDivisionError"):
        load("at_once")


def test_the_sources_of_a_run_are_those_of_the_folder_if_it_uses_any(folder: Path) -> None:
    (folder / "my_mode.py").write_text(SCHEDULED)
    used = {"SYNC_MODE": "my_mode"}
    before = source_sha256(files.sources(used)), source_sha256(files.sources({}))
    (folder / "helper.py").write_text("")
    assert source_sha256(files.sources(used)) != before[0] != before[1]
    assert source_sha256(files.sources({})) == before[1]


OLD = """from app.costs import patterns
from app.costs.sizes import Size
from app import gradient_sync
import app.gradient_sync.contract
from app.gradient_sync.exchange import Exchange

class My(Exchange):
    cost = patterns.ALL_REDUCE
    size = Size
    bases = gradient_sync.contract.GradientSync, app.gradient_sync.contract.GradientSync
    def average(self, values): ...
"""


def test_files_that_import_by_old_names_are_the_same_modes_and_are_told_the_new_ones(folder: Path) -> None:
    path = folder / "older_mode.py"
    path.write_text(OLD)
    reading.check_mode("older_mode")
    mode = mode_class("older_mode")
    assert issubclass(mode, Exchange)
    assert (mode.cost, getattr(mode, "size", None)) == (ALL_REDUCE, Size)
    assert Exchange.__module__ == "app.sync.exchange"
    lines = list(moved.notices(path, path))
    assert [re.findall(r"line (\d)", line) for line in lines] == [["1"], ["2"], ["3"], ["4"], ["5"]]
    new = [line.partition("Write: ")[2] for line in lines]
    assert new == [
        "from app import sync as patterns",
        "from app.sync import Size",
        "from app import sync as gradient_sync",
        "import app.sync.contract",
        "from app.sync.exchange import Exchange",
    ]


def test_every_old_name_leads_to_a_module() -> None:
    for new in moved.MOVED.values():
        import_module(new)
