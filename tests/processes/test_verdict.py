"""A cause put in on purpose is what the verdict names: a slow rank is the straggler, and others wait for it."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from app.cluster.members import Cluster
from app.modes import MODES
from app.report.conclusion import conclude
from app.training.numerics import Numerics
from tests.processes.conftest import GroupOf
from tests.processes.test_training import train

SYNCHRONISING = [name for name in MODES if name != "none"]
SLEEP_SECONDS = 0.08
STEPS = 8


def train_sleepily(cluster: Cluster, folder: Path, sleeper: int | None, mode: str) -> None:
    """Train; one rank sleeps in its forward."""
    forward = Numerics.forward

    def slowly(numerics: Numerics, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        logits = forward(numerics, model, images)
        if cluster.rank == sleeper:
            time.sleep(SLEEP_SECONDS)
        return logits

    with patch.object(Numerics, "forward", slowly):
        train(cluster, folder, 36, {"model": "lenet5", "sync_mode": mode, "global_batch_size": 36, "epochs": STEPS})


def summary_of(group_of: GroupOf, folder: Path, mode: str, sleeper: int | None) -> dict[str, Any]:
    group_of(3).run(train_sleepily, folder, sleeper, mode)
    summary = conclude(folder)
    assert summary is not None
    return asdict(summary)


def median(summary: dict[str, Any], rank: int, figure: str) -> float:
    return float(summary["ranks"][rank][figure]["median"])


@pytest.mark.parametrize(("mode", "sleeper"), [*((mode, 2) for mode in SYNCHRONISING), ("all_reduce", 0), ("ddp", 0)])
def test_a_rank_that_sleeps_in_forward_is_the_straggler_and_the_others_wait(
    group_of: GroupOf, tmp_path: Path, mode: str, sleeper: int
) -> None:
    summary = summary_of(group_of, tmp_path, mode, sleeper)
    assert summary["run"]["straggler"]["rank"] == sleeper
    assert summary["verdict"]["bound"] in ("compute", "straggler")
    named = [sentence for sentence in summary["verdict"]["sentences"] if f"Rank {sleeper} is the straggler" in sentence]
    assert len(named) == 1
    for rank in {0, 1, 2} - {sleeper}:
        # All that it slept, less what the others' own work may have taken longer; none of it is their sync.
        assert median(summary, rank, "wait_seconds") > SLEEP_SECONDS / 2
        assert median(summary, rank, "sync_seconds") < SLEEP_SECONDS / 2
    assert median(summary, sleeper, "wait_seconds") < SLEEP_SECONDS / 2
    assert median(summary, sleeper, "forward_seconds") > SLEEP_SECONDS


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])
def test_where_nobody_sleeps_nobody_is_blamed(group_of: GroupOf, tmp_path: Path, mode: str) -> None:
    summary = summary_of(group_of, tmp_path, mode, None)
    waited = [median(summary, rank, "wait_seconds") for rank in range(3)]
    print(waited, summary["run"]["straggler"])
    assert max(waited) < SLEEP_SECONDS


def test_without_synchronisation_a_slow_rank_is_named_and_nobody_waits(group_of: GroupOf, tmp_path: Path) -> None:
    summary = summary_of(group_of, tmp_path, "none", 1)
    assert summary["run"]["straggler"]["rank"] == 1
    assert summary["run"]["wait_seconds"] is None
    assert any("no rank waits for another's gradients" in sentence for sentence in summary["verdict"]["sentences"])
