"""One training run is one mathematical object: every mode and world size trains what one process trains.

In fp64, because fp32 cannot show it: VGG-11 makes rounding grow to a percent within a few steps, whatever the mode.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from app.analysis import run_records
from app.analysis.run import summarise
from app.cluster.members import Cluster
from app.modes import MODES
from app.run.take_part import take_part
from app.settings.settings import Settings
from app.training import models
from app.training.batch_norm import BatchNorm
from tests.processes.conftest import GroupOf
from tests.processes.miniatures import few_images, narrow_vgg_11
from tests.processes.test_faults import AS_THE_RING

SYNCHRONISING = [name for name in MODES if name != "none"]
DISTINCT = [name for name in SYNCHRONISING if name not in AS_THE_RING]

# 9 images in batches of 8: in an epoch's last batch, of one image, all ranks but one have nothing. A step follows.
IMAGES = {"vgg11": 9, "lenet5": 500}
STEPS = 3
COMMON = {"link_check": "off", "warmup_steps": 0, "evaluate": "never", "checkpoint_every": 0}
VGG11 = COMMON | {
    "model": "vgg11",
    "batch_norm": "synchronised",
    "global_batch_size": 8,
    "epochs": 2,
    "max_steps": STEPS,
}

# 50 images in a batch do not divide by 3, 4 or 8.
LENET5 = COMMON | {"model": "lenet5", "global_batch_size": 50, "max_steps": 8, "learning_rate": 0.05}

Run = dict[str, Any]
RunOn = Callable[..., Run]


def train(cluster: Cluster, folder: Path, values: dict[str, Any]) -> None:
    settings = Settings.of(**values)
    model = settings.training.model
    take_part(settings, cluster, few_images(model, IMAGES[model]), folder, lambda _: None)


def strided(batch_norm: BatchNorm) -> nn.Module:
    """LeNet-5 with kernels in channels_last, and matrices that lie transposed in memory."""
    model = models.LeNet5(batch_norm)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in model.classifier:
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)
    return model


def train_strided(cluster: Cluster, folder: Path, values: dict[str, Any]) -> None:
    with patch.dict(models.MODELS, lenet5=strided):
        train(cluster, folder, values)


def train_narrow(cluster: Cluster, folder: Path, values: dict[str, Any]) -> None:
    with narrow_vgg_11():
        train(cluster, folder, values)


@pytest.fixture(scope="module")
def run_on(group_of: GroupOf, tmp_path_factory: pytest.TempPathFactory) -> RunOn:
    """The summary of a run on so many ranks; what was run before is not run again."""
    known: dict[tuple[object, ...], Run] = {}

    def run(
        world_size: int, base: dict[str, Any], again: int = 0, body: Callable[..., None] = train, **settings: object
    ) -> Run:
        values = {**base, **settings}
        key = (world_size, again, body, *sorted(values.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp("run")
            group_of(world_size).run(body, folder, values)
            known[key] = summarise(run_records.read(folder)).content()
            assert known[key]["complete"]
            assert known[key]["replicas_identical"]
        return known[key]

    return run


@pytest.mark.parametrize(
    ("world_size", "mode"),
    [*((3, mode) for mode in SYNCHRONISING), (8, "send_recv"), (8, "ddp")],
)
def test_lenet_5_in_fp64(run_on: RunOn, mode: str, world_size: int) -> None:
    """Schedules, which depend on the number of ranks: test_contract.py tries those on one to eight."""
    alone = run_on(1, LENET5, precision="fp64", sync_mode="all_reduce")
    run = run_on(world_size, LENET5, precision="fp64", sync_mode=mode)
    assert len(run["losses"]) == LENET5["max_steps"]
    assert run["losses"] == pytest.approx(alone["losses"], rel=1e-9)


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])
def test_parameters_of_any_layout_in_fp64(run_on: RunOn, mode: str) -> None:
    alone = run_on(1, LENET5, precision="fp64", sync_mode="all_reduce")
    run = run_on(2, LENET5, body=train_strided, precision="fp64", sync_mode=mode)
    assert run["losses"] == pytest.approx(alone["losses"], rel=1e-9)


@pytest.mark.parametrize("mode", DISTINCT)
def test_vgg_11_with_synchronised_batch_normalisation_in_fp64(run_on: RunOn, mode: str) -> None:
    """And the bytes of the run are those of the formula."""
    alone = run_on(1, VGG11, body=train_narrow, precision="fp64", sync_mode="all_reduce")
    run = run_on(4, VGG11, body=train_narrow, precision="fp64", sync_mode=mode)
    assert len(run["losses"]) == STEPS
    assert run["losses"] == pytest.approx(alone["losses"], rel=1e-9)
    for each in (run["run"], *run["ranks"]):
        assert each["bytes_sent_per_step"] == pytest.approx(each["formula_bytes_sent_per_step"], abs=1)
        assert each["batch_norm_bytes_sent_per_step"] > 0


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])
def test_lenet_5_in_fp32_and_the_same_run_twice(run_on: RunOn, mode: str) -> None:
    alone = run_on(1, LENET5, sync_mode="all_reduce")
    run, again = (run_on(4, LENET5, sync_mode=mode, again=number) for number in (0, 1))
    assert run["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    assert again["losses"] == run["losses"]
    assert run["buffers_identical"] is None  # it has none


@pytest.mark.parametrize(
    ("mode", "batch_norm", "evaluate", "alike"),
    [
        ("all_reduce", "local", "sharded", False),
        ("ddp", "local", "sharded", True),  # rank 0's, broadcast for the evaluation
        ("ddp", "local", "never", False),
        ("all_reduce", "synchronised", "never", True),
    ],
)
def test_replicas_have_the_same_parameters_but_the_same_buffers_only_if_they_share_them(
    run_on: RunOn, mode: str, batch_norm: str, evaluate: str, alike: bool
) -> None:
    settings = {"sync_mode": mode, "batch_norm": batch_norm, "evaluate": evaluate}
    assert run_on(2, VGG11, body=train_narrow, **settings)["buffers_identical"] is alike


def test_local_batch_normalisation_is_another_run_and_a_rank_without_images_does_not_harm_it(run_on: RunOn) -> None:
    alone = run_on(1, VGG11, body=train_narrow, precision="fp64", sync_mode="all_reduce")
    run = run_on(4, VGG11, body=train_narrow, precision="fp64", sync_mode="all_reduce", batch_norm="local")
    assert len(run["losses"]) == STEPS
    assert run["losses"][0] != pytest.approx(alone["losses"][0], rel=1e-4)
