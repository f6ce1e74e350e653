"""`prepare` as a process of its own, with a network that fails in the ways in which networks fail."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import group


def through(port: int) -> dict[str, str]:
    """All traffic to the web goes to this port of this machine."""
    return dict.fromkeys(("http_proxy", "https_proxy"), f"http://127.0.0.1:{port}")


def leftovers(folder: Path) -> list[str]:
    """What lies in data/ and prepared/."""
    return sorted(path.name for part in ("data", "prepared") for path in (folder / part).rglob("*"))


def test_an_interrupted_download_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(group.PATIENCE_SECONDS)
        process = group.start("prepare", tmp_path, DATASET="cifar10", **through(silent.getsockname()[1]))
        connection, _ = silent.accept()
        assert leftovers(tmp_path) != []  # the place for what would come
        process.send_signal(signal.SIGTERM)
        code, output = group.wait(process)
        connection.close()
    assert code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in output
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"MODEL": "lenet5", "DATASET": "cifar10"}, "MODEL=lenet5 with DATASET=cifar10"),
        ({"MODEL": "lenet5", "DATASET": "digits", "TRAIN_SAMPLES": 1438}, "TRAIN_SAMPLES.*1438.*1 to 1437"),
        ({"MODEL": "lenet5", "DATASET": "digits", "TEST_SAMPLES": 361}, "TEST_SAMPLES.*361.*1 to 360"),
    ],
)
def test_what_does_not_fit_ends_with_2_and_opens_no_run(
    tmp_path: Path, settings: dict[str, str | int], told: str
) -> None:
    code, output = group.wait(group.start("prepare", tmp_path, **settings))
    assert code == 2
    assert re.search(told, output), output
    assert not (tmp_path / "results/latest").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"SYNC_MODE": "none"}, "[conflicting-settings] SYNC_MODE=none "),
        ({"SYNC_MODE": "dpp"}, "Did you mean ddp?"),
        ({"RUN_NAME": "mine"}, "[run-exists] RUN_NAME=mine: results/mine "),
        ({"RUN_NAME": "other"}, "[run-exists] RUN_NAME=other-floor: results/other-floor "),
        ({"RUN_NAME": "x" * 95}, "at most 100 letters"),
        ({"MODEL": "lenet5", "DATASET": "cifar10"}, "MODEL=lenet5 with DATASET=cifar10"),
    ],
)
def test_a_run_that_cannot_follow_its_floor_is_refused_before_the_floor_is_made(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    for name in ("mine", "other-floor"):
        (tmp_path / "results" / name).mkdir(parents=True)
    code, output = group.wait(group.start("check --with-floor", tmp_path, **settings))
    assert code == 2
    assert told in output


def test_a_run_that_can_follow_its_floor_passes(tmp_path: Path) -> None:
    assert group.wait(group.start("check --with-floor", tmp_path, RUN_NAME="x" * 94)) == (0, "")


def test_no_start_waits_for_a_second_import_of_torch(tmp_path: Path) -> None:
    program = """if True:
        import sys
        from app.__main__ import main
        sys.argv[1:] = ["prepare"]
        assert main() == 0
        assert "torch" not in sys.modules
    """
    environment = os.environ | {"PYTHONPATH": str(group.ROOT), "MODEL": "lenet5", "DATASET": "digits"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
