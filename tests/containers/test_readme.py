"""Every command that the README shows is run, in a small version of itself."""

import re

import pytest

from tests.containers.cluster import ROOT, SMALL, Clone

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

THIS_TEST = "scripts/test"
TRAINS_NOTHING = ("scripts/doctor", "scripts/benchmark")


def sequences() -> list[list[str]]:
    """Every command by itself; but those of a block that names runs belong together."""
    found = []
    for block in BLOCK.findall((ROOT / "README.md").read_text()):
        commands = [command for line in block.splitlines() if (command := line.partition("  #")[0].strip())]
        found += [commands] if "RUN_NAME=" in block else [[each] for each in commands if each != THIS_TEST]
    return found


@pytest.mark.parametrize("commands", sequences(), ids=" && ".join)
def test_commands(clone: Clone, commands: list[str]) -> None:
    small = {**SMALL, "MAX_STEPS": "2", "EVALUATE": "never"}
    for command in commands:
        shown = set(re.findall(r"\b([A-Z_]+)=", command))
        code, output = clone.run("bash", "-c", command, **{name: small[name] for name in small.keys() - shown})
        assert code == 0, output
    if not commands[0].startswith(TRAINS_NOTHING):
        assert clone.summary()["complete"]
