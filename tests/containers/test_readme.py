"""Every command that the README and the pages in docs/ show is run, in a small version of itself."""

import re

import pytest

from tests.containers import test_launchers, test_prediction
from tests.containers.cluster import ROOT, SMALL, Clone

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

PROOF = "scripts/up BATCH_NORM=synchronised PRECISION=fp64 GLOBAL_BATCH_SIZE=8 MAX_STEPS=6 WARMUP_STEPS=0"
DIGITS = "MODEL=lenet5 DATASET=digits"
NODES = " ".join(f"node{number}.EXPERIMENT.PROJECT.utah.cloudlab.us" for number in (0, 1))
RUN_ELSEWHERE = {  # by which file of container tests
    "scripts/test": "test_readme.py",
    "scripts/up": "test_up.py",
    "scripts/doctor": "test_doctor.py",
    "SYNC_MODE=all_reduce scripts/up": "test_modes.py",
    f"scripts/up --with-floor SYNC_MODE=ring_all_reduce LINK_RATE=100mbit {DIGITS} EPOCHS=10": "test_up.py",
    "scripts/up BACKEND=mpi MODEL=lenet5 MAX_STEPS=20": "test_mpi.py",
    "BACKEND=mpi scripts/up SYNC_MODE=all_reduce MAX_STEPS=5": "test_modes.py",
    "docker compose up": "test_full_epoch.py",
    "docker compose up --scale worker=5": "test_up.py",
    "MODEL=lenet5 docker compose up --detach rank0": "test_up.py",
    "docker compose logs rank0": "test_up.py",
    "docker compose down": "cluster.py",
    "scripts/up WORKERS=7 MODEL=lenet5": "test_up.py",
    f"scripts/up {DIGITS} EPOCHS=30 LEARNING_RATE=0.05": "test_up.py",
    f"{PROOF} SYNC_MODE=ring_all_reduce": "test_modes.py",
    f"{PROOF} WORKERS=0": "test_modes.py",
    "scripts/experiment ring --quick": "test_experiment.py",
    "scripts/faults --trials 2 --seed 297": "test_faults.py",
    "scripts/faults --kills 3 --seed 33 --modes ring_all_reduce": "test_faults.py",
    **dict.fromkeys(
        (
            "cp examples/part_2a.py extensions/my_mode.py",
            "scripts/conformance my_mode",
            "SYNC_MODE=my_mode scripts/up",
            "scripts/up SYNC_MODE=my_mode MODEL=my_model DATASET=my_set",
            "scripts/up DATASET=pets",
            "scripts/conformance --all submissions > table.csv",
        ),
        "test_extensions.py",
    ),
    **dict.fromkeys(
        ("scripts/calibrate", test_prediction.LISTS, "scripts/predict network", "scripts/verify cells --quick"),
        "test_prediction.py",
    ),
    **dict.fromkeys(test_launchers.COMMANDS, "test_launchers.py"),
    "PYTHONPATH=. torchrun --nproc-per-node 4 examples/plain_loop.py ring_all_reduce": "../processes/test_library.py",
    f"scripts/cloudlab {NODES}": "../nodes/test_cloudlab.py",
}
# These download archives, which no test does. Process tests train on small archives in the same layout.
NOT_RUN = {"DATASET=cifar10 scripts/up", "DATASET=mnist MODEL=lenet5 scripts/up"}
LEAVES_NO_RUN = ("scripts/schedule", "scripts/doctor", "scripts/benchmark", "scripts/experiment", "scripts/faults")


def blocks() -> list[list[str]]:
    """The commands of each block of shell code, on all pages."""
    return [
        [command for line in block.splitlines() if (command := line.partition("  #")[0].strip())]
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
    ]


def sequences() -> list[list[str]]:
    """Every command once and by itself; but the commands of a block that names runs belong together."""
    together = [commands for commands in blocks() if any("RUN_NAME=" in each for each in commands)]
    skipped = {*RUN_ELSEWHERE, *NOT_RUN, *(each for commands in together for each in commands)}
    shown = dict.fromkeys(each for commands in blocks() for each in commands)
    return [[each] for each in shown if each not in skipped] + together


def small(command: str) -> dict[str, str]:
    """Settings that shorten a command, where it leaves them open."""
    settings = {**SMALL, "MAX_STEPS": "2", "GLOBAL_BATCH_SIZE": "8", "EVALUATE": "never"}
    settings["WORKERS"] = "2" if re.search(r"=2=|_RANK=2", command) else "1"
    shown = set(re.findall(r"\b([A-Z_]+)=", command))
    if any(name.startswith("LINK_") for name in shown):
        shown.add("LINK_CHECK")
    return {name: settings[name] for name in settings.keys() - shown}


def test_what_is_left_to_other_tests_is_shown_on_a_page_and_the_tests_exist() -> None:
    assert {*RUN_ELSEWHERE, *NOT_RUN} <= {command for commands in blocks() for command in commands}
    assert all((ROOT / "tests/containers" / file).is_file() for file in RUN_ELSEWHERE.values())


@pytest.mark.parametrize("commands", sequences(), ids=" && ".join)
def test_commands(used_clone: Clone, commands: list[str]) -> None:
    """One after another in one clone, as a reader would."""
    latest = used_clone.folder / "results/latest"
    before = latest.readlink() if latest.is_symlink() else None
    for command in commands:
        code, output = used_clone.run("bash", "-c", command, **small(command))
        assert code == 0, output
    if not commands[0].startswith(LEAVES_NO_RUN):
        assert used_clone.summary()["complete"]
        assert latest.readlink() != before
