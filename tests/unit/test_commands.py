"""The command line: each room adds the commands that the table expects, and parsing waits for nothing heavy."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from app.__main__ import ROOMS
from app.machine.command_line import CommandParser

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "pydantic", "matplotlib", "rich", "asyncssh"}
SCREEN_LINES = 45


@pytest.mark.parametrize(("room", "names"), ROOMS.items(), ids=list(ROOMS))
def test_a_room_adds_its_commands(room: str, names: tuple[str, ...]) -> None:
    commands = CommandParser().add_subparsers()
    import_module(f"app.{room}.commands").add_to(commands)
    assert tuple(commands.choices) == names


def test_every_room_with_commands_is_in_the_table() -> None:
    paths = {path.parent.relative_to(ROOT / "app") for path in (ROOT / "app").rglob("commands.py")}
    assert {".".join(path.parts) for path in paths} == ROOMS.keys()


def test_the_help_fits_a_screen_and_imports_nothing_heavy() -> None:
    program = f"""if True:
        import sys
        from app.__main__ import main
        sys.argv = ["app", "--help"]
        try:
            main()
        finally:
            assert sys.modules.keys().isdisjoint({HEAVY})
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) <= SCREEN_LINES
    for name in (name for names in ROOMS.values() for name in names):
        assert len([line for line in lines if line.startswith(f"    {name} ")]) == 1


@pytest.mark.parametrize("group", ["settings", "averaging"])
def test_help_on_a_group_lists_its_settings(group: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "--help", group], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "  SYNC_MODE " in done.stdout


@pytest.mark.parametrize(
    "words", ["report --no", "faults plan x --trials many", "benchmark step --rounds 0", "nonsense"]
)
def test_an_invalid_argument_is_refused_in_a_line_with_a_name(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", *words.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("error: [invalid-argument] ")


def test_a_defect_of_the_program_is_an_error_with_a_name() -> None:
    broken = (
        "import runpy, sys; from app.settings import environment; environment.load = lambda: 1 / 0; "
        "sys.argv = ['app', 'check-settings']; runpy.run_module('app', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", broken], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: [internal-error] ")
    assert "ZeroDivisionError" in done.stderr.splitlines()[-1]
