"""Every command that the README shows is run, in a small version of itself."""

import re

import pytest

from tests.containers.cluster import ROOT, SMALL, Clone

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

PROOF = "scripts/up BATCH_NORM=synchronised PRECISION=fp64 GLOBAL_BATCH_SIZE=8 MAX_STEPS=6 WARMUP_STEPS=0"
RUN_ELSEWHERE = {
    "scripts/test": "this test itself",
    "docker compose up": "test_full_epoch.py",
    "docker compose up --scale worker=5": "test_up.py",
    "scripts/up WORKERS=7 MODEL=lenet5": "test_up.py",
    "scripts/up MODEL=lenet5 DATASET=digits EPOCHS=60 LEARNING_RATE=0.05": "test_up.py",
    f"{PROOF} SYNC_MODE=ring_all_reduce": "test_modes.py",
    f"{PROOF} WORKERS=0": "test_modes.py",
    "scripts/experiment ring --quick": "test_experiment.py",
}
LEAVES_NO_RUN = ("scripts/doctor", "scripts/benchmark", "scripts/experiment")


def blocks() -> list[list[str]]:
    """The commands of each block of shell code."""
    found = BLOCK.findall((ROOT / "README.md").read_text())
    return [
        [command for line in block.splitlines() if (command := line.partition("  #")[0].strip())] for block in found
    ]


def sequences() -> list[list[str]]:
    """Every command by itself; but those of a block that names runs belong together."""
    found = []
    for commands in blocks():
        alone = [[each] for each in commands if each not in RUN_ELSEWHERE]
        found += [commands] if any("RUN_NAME=" in each for each in commands) else alone
    return found


def test_nothing_is_left_to_other_tests_that_the_readme_does_not_show() -> None:
    assert set(RUN_ELSEWHERE) <= {command for commands in blocks() for command in commands}


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
