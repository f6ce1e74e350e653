"""Watching DDP from its hook changes nothing that it computes, and what is watched adds up."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from app.analysis.run_records import read
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.records.lines import Step
from app.settings.averaging import AveragingSettings
from app.sync.modes.ddp import Ddp
from app.training import models
from app.training.numerics import DTYPES
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.test_training import TrainOn, train_on  # noqa: F401  # a fixture

STEPS = 3
IMAGES_PER_RANK = 3

State = list[npt.NDArray[Any]]


def train(cluster: Cluster, replica: nn.Module, model: nn.Module) -> State:
    """A few steps on images of this rank's own; parameters and buffers afterwards."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(STEPS):
        torch.manual_seed(100 * cluster.rank + step)
        images, labels = torch.randn(IMAGES_PER_RANK, 3, 32, 32), torch.randint(10, (IMAGES_PER_RANK,))
        optimiser.zero_grad()
        cross_entropy(replica(images), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return [value.numpy().copy() for value in model.state_dict().values()]


def both(cluster: Cluster, bucket_bytes: int | None) -> tuple[State, State]:
    """What DDP as it comes makes of a model with batch normalisation, and what the watched one does."""
    plain = models.build("vgg11", 1, DTYPES["fp32"], nn.BatchNorm2d)
    watched = copy.deepcopy(plain)
    mebibytes = None if bucket_bytes is None else bucket_bytes / 2**20
    sync = Ddp(Communicator(cluster), AveragingSettings(bucket_bytes=bucket_bytes))
    return (
        train(cluster, DistributedDataParallel(plain, bucket_cap_mb=mebibytes), plain),
        train(cluster, sync.attach(watched), watched),
    )


@pytest.mark.parametrize(("world_size", "bucket_bytes"), [(1, None), (2, None), (2, 300_000), (4, None)])
def test_the_hook_changes_no_bit_where_a_division_is_exact(
    group_of: GroupOf, world_size: int, bucket_bytes: int | None
) -> None:
    for plain, watched in group_of(world_size).run(both, bucket_bytes):
        for one, other in zip(plain, watched, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("world_size", [3])
def test_elsewhere_it_changes_no_more_than_rounding(group_of: GroupOf, world_size: int) -> None:
    for plain, watched in group_of(world_size).run(both, None):
        for one, other in zip(plain, watched, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def phases(step: Step) -> list[float]:
    exposed = (step.wait_seconds or 0.0) + (step.sync_seconds or 0.0)
    return [step.data_seconds, step.forward_seconds, step.backward_seconds, exposed, step.optimiser_seconds]


@pytest.mark.parametrize(("mode", "bucket_bytes"), [("ddp", None), ("ddp", 100_000), ("bucketed_all_reduce", 100_000)])
def test_every_message_is_seen_and_the_phases_add_up(tmp_path: Path, mode: str, bucket_bytes: int | None) -> None:
    buckets = {} if bucket_bytes is None else {"BUCKET_BYTES": bucket_bytes}
    group.run(tmp_path, 3, SYNC_MODE=mode, MAX_STEPS=6, GLOBAL_BATCH_SIZE=96, **buckets)
    for rank in read(tmp_path / "results/latest").ranks:
        for step in rank.steps:
            assert step.buckets is not None
            assert sum(bucket.bytes for bucket in step.buckets) == 61_706 * 4
            ready = [bucket.ready_seconds for bucket in step.buckets]
            assert ready == sorted(ready)
            assert all(0 < bucket.ready_seconds < bucket.end_seconds <= step.seconds for bucket in step.buckets)
            assert sum(phases(step)) == pytest.approx(step.seconds, rel=0.01)
            assert min(phases(step)) >= 0
            assert step.wait_seconds is not None
            assert step.sync_seconds is not None
            assert step.wait_seconds >= 0
            assert step.sync_seconds >= -1e-9
            assert step.hidden_sync_seconds is not None
            assert 0 <= step.hidden_sync_seconds <= step.backward_seconds
        assert len(rank.steps[-1].buckets or []) > (1 if bucket_bytes else 0)


def test_buffers_are_seen_apart_from_gradients(train_on: TrainOn) -> None:  # noqa: F811
    """VGG-11 has two running statistics and a counter of 8 bytes in each of its 8 layers, here of 8 channels."""
    for rank in train_on(2, model="vgg11", sync_mode="ddp", global_batch_size=4, max_steps=3, evaluate="never"):
        for step in rank[:-1]:
            assert [buffer["bytes"] for buffer in step["buffers"]] == [4 * 2 * 64, 8 * 8]
            assert step["bytes_sent"] == 4 * 4530
