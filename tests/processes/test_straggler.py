"""A rank that is slowed down on purpose: slower by the factor, seen by the others, and training the same."""

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from app.cluster.wire.communicator import Communicator
from app.records.journal import read
from app.records.lines import Step
from app.training.straggler import Slowed
from tests.processes import group
from tests.processes.group import Value

FACTOR = 6
SLOW = 1


def compute_seconds(step: Step) -> float:
    return step.forward_seconds + step.backward_seconds


def run(folder: Path, mode: str, **settings: Value) -> tuple[dict[str, Any], list[list[Step]]]:
    folder.mkdir()
    small: dict[str, Value] = {"SYNC_MODE": mode, "EPOCHS": 1, "EVALUATE": "never", "GLOBAL_BATCH_SIZE": 128}
    summary = group.run(folder, 2, **small, **settings)
    steps = [
        [record for record in read(folder / "results/latest", rank) if isinstance(record, Step)] for rank in (0, 1)
    ]
    return summary, [each[1:] for each in steps]


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])
def test_one_rank_computes_slower_and_the_training_is_the_same(tmp_path: Path, mode: str) -> None:
    usual, _ = run(tmp_path / "usual", mode)
    slowed, (others, own) = run(tmp_path / "slowed", mode, SLOW_RANK=SLOW, SLOW_FACTOR=FACTOR)
    assert slowed["losses"] == usual["losses"]
    assert [rank["parameters_sha256"] for rank in slowed["ranks"]] == [
        rank["parameters_sha256"] for rank in usual["ranks"]
    ]
    # The other rank waits, before the exchange or in it; how long is a matter of the machine.
    kept_waiting = [
        sum(step.communication_seconds if mode == "ddp" else step.wait_seconds or 0 for step in steps)
        for steps in (others, own)
    ]
    assert kept_waiting[0] > kept_waiting[1]
    assert sum(map(compute_seconds, own)) > sum(map(compute_seconds, others))
    assert any("rank 1 is slowed down on purpose" in warning for warning in slowed["warnings"])
    manifest = json.loads((tmp_path / "slowed/results/latest/manifest.json").read_text())
    assert (manifest["settings"]["slow_rank"], manifest["settings"]["slow_factor"]) == (SLOW, FACTOR)


def test_every_piece_of_work_is_followed_by_a_pause_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock whose times are given; what was spent on talking is not stretched."""
    now = 100.0
    pauses = []

    class Talk:
        class traffic:  # noqa: N801  # as the communicator has it
            seconds = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", pause)
    pace = Slowed(FACTOR, nn.Linear(1, 1), cast("Communicator", Talk))
    for worked, talked in ((0.5, 0.0), (0.25, 0.0), (1.0, 0.75), (0.5, 0.5)):
        now += worked
        Talk.traffic.seconds += talked
        pace.keep()
    assert pauses == [2.5, 1.25, 1.25, 0.0]


def test_gradients_become_ready_one_after_another_and_not_all_at_the_end() -> None:
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    images = torch.randn(512, 256)
    pauses: list[int] = []

    class Counted(Slowed):
        def keep(self) -> None:
            super().keep()
            pauses.append(sum(parameter.grad is not None for parameter in model.parameters()))

    pace = Counted(2.0, model, None)
    pace.begin()
    model(images).sum().backward()
    assert pauses == list(range(1, 9))
