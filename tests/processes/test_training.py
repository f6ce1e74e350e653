"""What a run trains on and how, on real groups: the images, the models and sets, the schedule, the precision."""

import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from PIL import Image

from app.analysis import run_records
from app.analysis.run import summarise
from app.cluster.members import Cluster
from app.machine.folders import DATA, PREPARED
from app.run.take_part import take_part
from app.settings.settings import Settings
from app.settings.training import DatasetName, ModelName
from app.training import batches
from app.training.convolution import LAYOUTS
from app.training.datasets import SOURCES, pictures, prepared, shapes
from tests import published
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.miniatures import few_images, narrow_vgg_11

# Every model, and every data set.
TRAINED: list[tuple[ModelName, DatasetName]] = [
    ("vgg11", "fashion"),
    ("vgg11", "cifar10"),
    ("resnet18", "shapes"),
    ("lenet5", "mnist"),
    ("lenet5", "digits"),
]

TrainOn = Callable[..., list["Records"]]
Batches = list[list[str]]  # for each step, a hash of each image as the model gets it, with its label
Records = list[dict[str, Any]]


def read_rank(folder: Path, rank: int) -> Records:
    """Its steps, evaluations and end."""
    found = [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]
    return [record for record in found if record["kind"] not in ("usage", "clock", "checkpoint")]


def train(cluster: Cluster, folder: Path, samples: int, values: dict[str, Any]) -> None:
    settings = Settings.of(**{"link_check": "off", **values})
    with narrow_vgg_11():
        take_part(settings, cluster, few_images(settings.training.model, samples), folder, lambda _: None)


def train_and_look(cluster: Cluster, folder: Path, samples: int, values: dict[str, Any]) -> Batches:
    """Train, and give what this rank's model was given."""
    seen: Batches = []

    def load(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = load_batch(*arguments)
        rows = zip(images.contiguous(), labels, strict=True)
        seen.append([hashlib.sha256(image.numpy().tobytes()).hexdigest() + f" {label}" for image, label in rows])
        return images, labels

    load_batch = batches.load_batch
    with patch.object(batches, "load_batch", load):
        train(cluster, folder, samples, values)
    return seen


@pytest.fixture
def train_on(group_of: GroupOf, tmp_path: Path) -> TrainOn:
    """Each rank's records of a run on a few images."""

    def run(world_size: int, **values: Any) -> list[Records]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        group_of(world_size).run(train, folder, 40, values)
        assert summarise(run_records.read(folder)).complete
        return [read_rank(folder, rank) for rank in range(world_size)]

    return run


def test_one_process_and_many_ranks_see_the_same_augmented_images_at_the_same_step(
    group_of: GroupOf, tmp_path: Path
) -> None:
    values = {"model": "vgg11", "sync_mode": "all_reduce", "epochs": 3, "global_batch_size": 8, "evaluate": "never"}
    (alone,) = group_of(1).run(train_and_look, tmp_path / "1", 20, values)
    parts = group_of(3).run(train_and_look, tmp_path / "3", 20, values)
    together = [[image for part in step for image in part] for step in zip(*parts, strict=True)]
    assert [len(step) for step in alone] == [8, 8, 4] * 3
    assert [sorted(step) for step in together] == [sorted(step) for step in alone]
    # Each epoch draws its crops and flips anew, so that all three together have more images than the set.
    assert len({image for step in alone for image in step}) > 50


@pytest.mark.parametrize(("shuffle", "alike"), [("once", True), ("every_epoch", False)])
def test_ranks_keep_their_samples_only_where_they_are_shuffled_once(
    group_of: GroupOf, tmp_path: Path, shuffle: str, alike: bool
) -> None:
    values = {"model": "lenet5", "epochs": 2, "global_batch_size": 16, "evaluate": "never", "shuffle": shuffle}
    for steps in group_of(2).run(train_and_look, tmp_path / "run", 40, values):
        assert len(steps) == 6
        assert (steps[:3] == steps[3:]) is alike
        assert (sorted(chain(*steps[:3])) == sorted(chain(*steps[3:]))) is alike


def test_no_model_and_no_set_is_left_out() -> None:
    assert {model for model, _ in TRAINED} == prepared.MODEL_CHANNELS.keys()
    assert {name for _, name in TRAINED} == SOURCES.keys()


@pytest.mark.parametrize(("model", "name"), TRAINED)
def test_every_model_trains_and_on_every_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: ModelName, name: DatasetName
) -> None:
    """Real sets from small archives in their own layout, made into arrays here, read by ranks of their own."""
    monkeypatch.chdir(tmp_path)
    if name == "shapes":  # the whole set would take longer to draw than to train on
        monkeypatch.setattr(shapes, "TRAIN", 60)
        monkeypatch.setattr(shapes, "TEST", 20)
    PREPARED.mkdir()
    published.put_cifar10(monkeypatch, DATA)
    published.put_mnist(monkeypatch, DATA)
    prepared.make(name, print, [])
    run = group.run(
        tmp_path, 2, MODEL=model, DATASET=name, GLOBAL_BATCH_SIZE=4, MAX_STEPS=2, TRAIN_SAMPLES=48, TEST_SAMPLES=10
    )
    assert run["complete"]
    assert run["replicas_identical"]
    assert (run["model"], run["dataset"], run["steps"]) == (model, name, 2)
    assert run["run"]["epochs"][0]["training_samples"] == 8
    manifest = json.loads((tmp_path / "results/latest/manifest.json").read_text())
    assert manifest["dataset"] == SOURCES[name].title
    assert (manifest["settings"]["train_samples"], manifest["settings"]["test_samples"]) == (48, 10)
    assert run["run"]["accuracy"] is not None


def test_ranks_train_on_pictures_that_they_do_not_see_in_as_many_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PREPARED.mkdir()
    for part, number, kind in product(("train", "test"), range(8), ("cat", "dog", "emu")):
        path = DATA / "pets" / part / kind / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 30), 10 * number).save(path)
    pictures.look.cache_clear()
    prepared.make("pets", print, [])
    shutil.rmtree(DATA)
    run = group.run(tmp_path, 2, MODEL="lenet5", DATASET="pets", GLOBAL_BATCH_SIZE=8, MAX_STEPS=2, TEST_SAMPLES=10)
    assert run["complete"]
    assert run["replicas_identical"]
    manifest = json.loads((tmp_path / "results/latest/manifest.json").read_text())
    assert manifest["dataset"] == "pets: pictures in data/pets, 24 + 24 in 3 classes"
    assert manifest["parameters"] == 61_706 - 7 * (84 + 1)


@pytest.mark.parametrize(("shape", "mode"), [("cosine", "ddp"), ("step", "all_reduce")])
def test_schedule_scaling_and_clipping_are_the_same_at_every_world_size(
    train_on: TrainOn, mode: str, shape: str
) -> None:
    values = {
        "model": "lenet5",
        "precision": "fp64",
        "learning_rate": 0.01,
        "learning_rate_scaling": "linear",
        "base_batch_size": 4,
        "warmup_steps": 2,
        "schedule": shape,
        "gradient_clip": 0.5,
        "global_batch_size": 10,
        "epochs": 2,
        "evaluate": "never",
    }

    def steps(world_size: int, sync_mode: str) -> list[Records]:
        return [rank[:-1] for rank in train_on(world_size, **values, sync_mode=sync_mode)]

    (alone,) = steps(1, "all_reduce")
    assert [step["learning_rate"] for step in alone[:3]] == pytest.approx([0.0125, 0.025, 0.025])
    assert alone[-1]["learning_rate"] < 0.02
    assert min(step["gradient_norm"] for step in alone) > 0.5  # so that clipping has something to do
    for rank in steps(3, mode):
        assert [step["learning_rate"] for step in rank] == [step["learning_rate"] for step in alone]
        assert [step["gradient_norm"] for step in rank] == pytest.approx([s["gradient_norm"] for s in alone], rel=1e-7)


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])
def test_bfloat16_averages_its_gradients_in_fp32(train_on: TrainOn, mode: str) -> None:
    """The payload is that of fp32, and the replicas stay the same."""
    values = {"model": "lenet5", "global_batch_size": 8, "max_steps": 2, "learning_rate": 0.01, "evaluate": "never"}
    ranks = {precision: train_on(3, **values, sync_mode=mode, precision=precision) for precision in ("fp32", "bf16")}
    for exact, rounded in zip(ranks["fp32"], ranks["bf16"], strict=True):
        assert [step["bytes_sent"] for step in rounded[:2]] == [step["bytes_sent"] for step in exact[:2]]
        assert rounded[0]["loss"] != exact[0]["loss"]
        assert rounded[0]["loss"] == pytest.approx(exact[0]["loss"], rel=0.05)
    assert len({rank[-1]["parameters_sha256"] for rank in ranks["bf16"]}) == 1


def test_bfloat16_with_synchronised_batch_normalisation_is_close_to_fp32(train_on: TrainOn) -> None:
    values = {
        "model": "vgg11",
        "batch_norm": "synchronised",
        "global_batch_size": 9,
        "max_steps": 2,
        "learning_rate": 0.001,
        "sync_mode": "all_reduce",
    }
    (exact, *_), (rounded, *_) = (train_on(3, **values, precision=precision) for precision in ("fp32", "bf16"))
    assert rounded[0]["batch_norm_bytes_sent"] == exact[0]["batch_norm_bytes_sent"]
    assert [step["loss"] for step in rounded[:2]] == pytest.approx([step["loss"] for step in exact[:2]], rel=0.05)


def test_layout_changes_rounding_and_nothing_else(train_on: TrainOn) -> None:
    values = {"model": "vgg11", "precision": "fp64", "global_batch_size": 4, "max_steps": 3, "evaluate": "never"}
    losses = [[step["loss"] for step in train_on(2, **values, memory_format=layout)[0][:-1]] for layout in LAYOUTS]
    for first, second in pairwise(losses):
        assert first == pytest.approx(second, rel=1e-9)
        assert first != second  # it is another layout


def test_training_scores_are_printed_and_recorded_for_each_rank_and_epoch(tmp_path: Path) -> None:
    group.prepare(tmp_path)
    ranks = group.Ranks(tmp_path, 2, EPOCHS=2, TRAIN_SAMPLES=100, EVALUATE="every_rank", LEARNING_RATE=0.05)
    ranks.start()
    outputs = ranks.wait()
    epochs = [rank["epochs"] for rank in ranks.summary()["ranks"]]
    for rank, (code, output) in outputs.items():
        assert code == 0, output
        for epoch in (0, 1):
            score = epochs[rank][epoch]
            correct = round(score["training_accuracy"] * 50)
            line = f"Training set: Average loss: {score['training_loss']:.4f}, Accuracy: {correct}/50 ("
            assert line in output
            assert score["accuracy"] is not None
