"""What is fitted to the runs of a calibration, and when nothing is: from records of runs that never were."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import LockstepError
from app.prediction import fitting
from app.prediction.observed import Observed
from app.records.lines import PhaseSeconds, Recorder
from app.summary.run import Run
from tests import runs
from tests.unit.test_records import STEP

RANKS = 2
USED = PhaseSeconds(data=0.0, forward=0.01, backward=0.02, wait=0.001, sync=0.01, optimiser=0.001)


def observed(folder: Path, mode: str) -> Observed:
    """A run of two ranks with that mode."""
    given = {"MODEL": "lenet5", "SYNC_MODE": mode, "WORKERS": str(RANKS - 1), "LINK_RATE": "1gbit"}
    content = runs.MANIFEST | {"run": mode, "ranks": [runs.participant(rank, speed=1.2e8) for rank in range(RANKS)]}
    place = folder / mode
    place.mkdir()
    (place / "manifest.json").write_text(json.dumps(content))
    step = replace(STEP, seconds=0.05, wait_seconds=0.001, sync_seconds=0.01, optimiser_seconds=0.001)
    for rank in range(RANKS):
        with Recorder(place, rank) as recorder:
            for number in range(3):
                recorder.write(replace(step, rank=rank, step=number, at_seconds=0.06 * number, cpu_seconds=USED))
    return Observed.of(Run(place), given)


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        ([], "no run of the calibration is finished"),
        (["none"], "no run of the calibration with exchanges is finished"),
        (["ring_all_reduce"], "with the backend's all-reduce and with the backend's gather and scatter is finished"),
        (["flat_all_reduce", "gather_scatter"], "no run of the calibration with rounds of messages is finished"),
    ],
)
def test_a_calibration_without_runs_of_each_kind_is_none(tmp_path: Path, modes: Sequence[str], words: str) -> None:
    with pytest.raises(LockstepError, match=words):
        fitting.fit("made", [observed(tmp_path, each) for each in modes])


def test_a_calibration_has_costs_of_each_kind_of_message(tmp_path: Path) -> None:
    modes = ("ring_all_reduce", "flat_all_reduce", "gather_scatter", "ddp")
    found = fitting.fit("made", [observed(tmp_path, each) for each in modes])
    assert set(found.passing) == {"rounds", "all_reduce", "star", "barrier"}
    assert [each.run for each in found.fits] == list(modes)
    assert found.computing["lenet5"].before.at(64) > 0
