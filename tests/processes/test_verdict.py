"""A cause put in on purpose is what the verdict names: a slow rank is the straggler, and others wait for it."""

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from app.analysis import run_records
from app.analysis.run import Run
from app.cluster.members import Cluster
from app.records.lines import Step
from app.training.numerics import Numerics
from tests.processes.conftest import GroupOf
from tests.processes.test_equivalence import DISTINCT
from tests.processes.test_training import train

SLEEP_SECONDS = 0.2  # at least, and three times what a step takes without it, however busy the machine is
SLEEP_IN_STEPS = 3.0
STEPS = 14


def awake(step: int) -> bool:
    """Whether nobody sleeps, as in every fourth step: what the machine does to the others, it does to these as well."""
    return step % 4 == 1


def train_sleepily(cluster: Cluster, folder: Path, sleeper: int, mode: str) -> None:
    """Train; one rank sleeps in its forward, in most of the steps."""
    forward = Numerics.forward
    began: list[float] = []

    def slowly(numerics: Numerics, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        began.append(time.monotonic())
        logits = forward(numerics, model, images)
        if cluster.rank == sleeper and not awake(len(began) - 1):
            usual = [end - start for step, (start, end) in enumerate(pairwise(began)) if awake(step)]
            time.sleep(max(SLEEP_SECONDS, *(SLEEP_IN_STEPS * seconds for seconds in usual), 0.0))
        return logits

    settings = {"model": "lenet5", "sync_mode": mode, "global_batch_size": 36, "epochs": STEPS, "evaluate": "never"}
    with patch.object(Numerics, "forward", slowly):
        train(cluster, folder, 36, settings)


def summary_of(folder: Path) -> dict[str, Any]:
    """What is written of a run that has ended."""
    Run(folder).summary.write(folder)
    content: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return content


def added_by_the_sleep(steps: Sequence[Step], phase: str) -> float:
    """How much longer a phase took in the steps of the sleep than in the others of the same run, by their medians."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for step in steps:
        seconds[awake(step.step)].append(getattr(step, phase))
    return median(seconds[False]) - median(seconds[True])


@pytest.mark.parametrize(("mode", "sleeper"), [*((mode, 2) for mode in DISTINCT), ("all_reduce", 0), ("ddp", 0)])
def test_a_rank_that_sleeps_in_forward_is_the_straggler_and_the_others_wait(
    group_of: GroupOf, tmp_path: Path, mode: str, sleeper: int
) -> None:
    group_of(3).run(train_sleepily, tmp_path, sleeper, mode)
    summary = summary_of(tmp_path)
    assert summary["run"]["straggler"]["rank"] == sleeper
    assert len([each for each in summary["verdict"]["sentences"] if f"Rank {sleeper} is the straggler" in each]) == 1
    ranks = run_records.read(tmp_path).ranks
    slept = min(step.forward_seconds for step in ranks[sleeper].warm if not awake(step.step))
    assert slept >= SLEEP_SECONDS
    for rank in ranks:
        phases = ("forward_seconds", "wait_seconds", "sync_seconds")
        forward, wait, sync = (added_by_the_sleep(rank.warm, phase) for phase in phases)
        print(f"rank {rank.rank}: forward {forward:+.3f}, wait {wait:+.3f}, sync {sync:+.3f}")
        # The sleep is the sleeper's forward and the others' waiting, and nobody's synchronisation.
        assert (forward > slept / 2) is (rank.rank == sleeper)
        assert (wait > slept / 2) is (rank.rank != sleeper)
        assert sync < slept / 2


def test_without_synchronisation_a_slow_rank_is_named_and_nobody_waits(group_of: GroupOf, tmp_path: Path) -> None:
    group_of(3).run(train_sleepily, tmp_path, 1, "none")
    summary = summary_of(tmp_path)
    assert summary["run"]["straggler"]["rank"] == 1
    assert summary["run"]["wait_seconds"] is None
    assert any("no rank waits for another's gradients" in sentence for sentence in summary["verdict"]["sentences"])
