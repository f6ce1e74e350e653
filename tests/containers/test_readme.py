"""Every command that the README shows is run, in a small version of itself."""

import re

import pytest

from tests.containers.cluster import ROOT, SMALL, Clone

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

# This test itself, and what test_experiment.py runs and looks at.
RUN_ELSEWHERE = ("scripts/test", "scripts/experiment ring --quick")
LEAVES_NO_RUN = ("scripts/doctor", "scripts/benchmark", "scripts/experiment")


def sequences() -> list[list[str]]:
    """Every command by itself; but those of a block that names runs belong together."""
    found = []
    for block in BLOCK.findall((ROOT / "README.md").read_text()):
        commands = [command for line in block.splitlines() if (command := line.partition("  #")[0].strip())]
        found += [commands] if "RUN_NAME=" in block else [[each] for each in commands if each not in RUN_ELSEWHERE]
    return found


@pytest.mark.parametrize("commands", sequences(), ids=" && ".join)
def test_commands(used_clone: Clone, commands: list[str]) -> None:
    """One after another in one clone, as a reader would."""
    latest = used_clone.folder / "results/latest"
    before = latest.readlink() if latest.is_symlink() else None
    small = {**SMALL, "MAX_STEPS": "2", "EVALUATE": "never"}
    for command in commands:
        shown = set(re.findall(r"\b([A-Z_]+)=", command))
        code, output = used_clone.run("bash", "-c", command, **{name: small[name] for name in small.keys() - shown})
        assert code == 0, output
    if not commands[0].startswith(LEAVES_NO_RUN):
        assert used_clone.summary()["complete"]
        assert latest.readlink() != before
