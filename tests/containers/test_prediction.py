"""Predictions from the command line: without a calibration, from one that is known, and from one made here."""

import json
import os
import re
import shutil
import signal
from hashlib import sha256
from typing import Any

import pytest

from tests.containers.cluster import ROOT, Clone, docker, until

LISTS = "scripts/predict WORKERS=1,3,7,15 LINK_RATE=200mbit,1gbit SYNC_MODE=ring_all_reduce,ddp RANK_CPUS=0.5"

PHASES = ("computing", "wait", "sync", "optimiser")
LONG_SECONDS = 1800  # of a calibration, or a verification


def predicted(clone: Clone, name: str) -> list[dict[str, Any]]:
    found = json.loads((clone.folder / f"results/predictions/{name}/predictions.json").read_text())
    cells: list[dict[str, Any]] = found["cells"]
    return cells


def put_known(clone: Clone) -> None:
    folder = clone.folder / "results/calibrations/known"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests/calibrations/known.json", folder / "model.json")


def slow_its_links(clone: Clone) -> None:
    """Where links are slow, a search for the number of ranks that halves efficiency ends after two or three."""
    path = clone.folder / "scripts/experiments/network.toml"
    grid = path.read_text().replace('LINK_RATE = "10gbit"', 'LINK_RATE = "500mbit"')
    path.write_text(grid.replace('unshaped"\n', 'slower"\nLINK_RATE = "200mbit"\n', 1))


def test_a_prediction_needs_a_calibration_and_then_no_run(used_clone: Clone) -> None:
    code, output = used_clone.run("scripts/predict", "WORKERS=3")
    assert code == 2, output
    assert "[not-calibrated]" in output
    assert "Run scripts/calibrate" in output

    put_known(used_clone)
    code, output = used_clone.run("bash", "-c", LISTS)
    assert code == 0, output
    cells = predicted(used_clone, "settings")
    assert [each["world_size"] for each in cells] == [2] * 4 + [4] * 4 + [8] * 4 + [16] * 4
    for each in cells:
        assert each["seconds_low"] < each["seconds"] < each["seconds_high"]
        assert sum(each[f"{phase}_seconds"] for phase in PHASES) == pytest.approx(each["seconds"])
        assert ("16 ranks: simulated, not verified beyond 8" in each["outside"]) is (each["world_size"] == 16)
    slow_its_links(used_clone)
    code, output = used_clone.run("bash", "-c", "scripts/predict network")
    assert code == 0, output
    assert len(predicted(used_clone, "network")) == 20

    for wrong, words in (
        ("--calibrated known WORKERS=3", "Did you mean --calibration?"),
        ("COMPRESSION=top_k", "[not-calibrated]"),
        ("", "[missing-argument]"),
    ):
        code, output = used_clone.run("bash", "-c", f"scripts/predict {wrong}")
        assert code == 2, output
        assert words in output
    code, output = used_clone.run("scripts/verify", "cells", "--quick")
    assert code == 2, output
    assert "[not-calibrated]" in output


def test_ctrl_c_ends_a_prediction_that_takes_minutes(used_clone: Clone) -> None:
    put_known(used_clone)
    process = used_clone.start("scripts/predict", "WORKERS=899,949,999", "SYNC_MODE=ring_all_reduce,tree")
    at_work = ("ps", "--all", "--quiet", "--filter", f"name={used_clone.project}-grids")
    until(lambda: docker(*at_work), "the container that predicts")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Interrupted." in output
    assert not docker(*at_work)


def run_long(clone: Clone, command: str) -> tuple[int, str]:
    process = clone.start("bash", "-c", command)
    output, _ = process.communicate(timeout=LONG_SECONDS)
    return process.returncode, output


@pytest.mark.long
def test_a_calibration_explains_its_own_runs(used_clone: Clone) -> None:
    code, output = run_long(used_clone, "scripts/calibrate")
    assert code == 0, output
    model = json.loads((used_clone.folder / "results/calibrations/this-machine/model.json").read_text())
    assert len(model["fits"]) == 22
    assert set(model["passing"]) == {"rounds", "all_reduce", "star", "barrier"}
    assert set(model["computing"]) == {"vgg11", "lenet5"}
    assert all(
        len(each["ready"]) > 5 and each["ready"] == sorted(each["ready"]) for each in model["computing"].values()
    )
    code, output = used_clone.run("bash", "-c", f"{LISTS} MODEL=lenet5")
    assert code == 0, output
    assert len(predicted(used_clone, "settings")) == 16

    code, output = used_clone.run("bash", "-c", "scripts/predict MODEL=resnet18 WORKERS=3 LINK_RATE=1gbit")
    assert code == 0, output
    assert re.search("MODEL=resnet18 .*'this-machine': a step takes", output)
    (cell,) = predicted(used_clone, "settings")
    assert "MODEL=resnet18: measured on one rank; how ranks differ is another model's" in cell["outside"]
    code, output = used_clone.run("bash", "-c", "scripts/predict MODEL=resnet18 WORKERS=1")
    assert code == 0, output
    assert "Measuring it on one rank" not in output, "once is enough"

    code, output = run_long(used_clone, "scripts/verify cells --quick")
    assert code in (0, 1), output  # whether predictions hold is the machine's affair; that each was checked is ours
    verified = json.loads((used_clone.folder / "results/verifications/cells/verification.json").read_text())
    assert verified["cells"] == 6
    sealed = (used_clone.folder / "results/verifications/cells/predictions.json").read_bytes()
    assert verified["predictions_sha256"] == sha256(sealed).hexdigest()
    assert verified["predictions_sha256"] in output
    kept = json.loads((used_clone.folder / "results/calibrations/this-machine/model.json").read_text())["checks"]
    assert [(each["name"], each["cells"]) for each in kept] == [("cells", 6)]
