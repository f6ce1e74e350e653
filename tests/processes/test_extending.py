"""A mode, a model and a data set are added to a copy of the program as CONTRIBUTING.md says, and a run uses them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.processes.group import free_port
from tests.processes.program import ROOT, Value, start_as_typed, wait

MODE = '''"""`binary_tree`: each gradient summed up a binary tree of ranks, and its mean handed down again."""

from collections.abc import Sequence

import torch
from torch import nn

from app.costs.sizes import Cost, Size
from app.gradient_sync.contract import GradientSync, gradients_of


def children_of(rank: int, world_size: int) -> list[int]:
    """At most two."""
    return [child for child in (2 * rank + 1, 2 * rank + 2) if child < world_size]


def bytes_sent(size: Size, rank: int, world_size: int) -> float:
    """Once to the parent, and once to each child."""
    return float(size.bytes * (len(children_of(rank, world_size)) + (rank > 0)))


class BinaryTree(GradientSync):
    """A binary tree, with rank 0 at the root."""

    cost = Cost(bytes_sent)

    def synchronise(self, parameters: Sequence[nn.Parameter]) -> None:
        """Up, then down."""
        rank, world_size = self._communicator.rank, self._communicator.world_size
        children, parent = children_of(rank, world_size), (rank - 1) // 2
        for gradient in gradients_of(parameters):
            for child in children:
                arriving = torch.empty_like(gradient)
                self._communicator.start_receive(arriving, child).wait()
                gradient += arriving
            if rank:
                self._communicator.start_send(gradient, parent).wait()
                self._communicator.start_receive(gradient, parent).wait()
            else:
                gradient /= world_size
            for child in children:
                self._communicator.start_send(gradient, child).wait()
'''
MODEL = '''

def perceptron(batch_norm: BatchNorm) -> nn.Module:
    """One linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, CLASSES))


'''
DATA_SET = '''"""`stripes`: each class has a row of its own that is white."""

import numpy as np


def make():
    """Images and labels of both parts."""

    def part(samples):
        labels = np.arange(samples, dtype=np.int64) % 10
        images = np.zeros((samples, 32, 32, 3), np.uint8)
        images[np.arange(samples), 3 * labels] = 255
        return images, labels

    return {"train": part(96), "test": part(40)}
'''
SOURCE = """SOURCES: dict[DatasetName, Source] = {
    "stripes": Source(
        title="stripes",
        channels=3,
        mean=(8.0, 8.0, 8.0),
        deviation=(44.0, 44.0, 44.0),
        crop_and_flip=False,
        train_samples=96,
        test_samples=40,
        make=stripes.make,
    ),"""


def edit(path: Path, *changes: tuple[str, str]) -> None:
    """Put new texts in place of old ones, each of which stands there once."""
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1, (path, old)
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A copy of the program, with one more of each."""
    app = tmp_path / "app"
    shutil.copytree(ROOT / "app", app, ignore=shutil.ignore_patterns("__pycache__"))
    (app / "gradient_sync/binary_tree.py").write_text(MODE)
    edit(app / "modes.py", ("MODES = {", 'MODES = {\n    "binary_tree": "BinaryTree",'))
    edit(
        app / "training/models.py",
        ("\nMODELS: ", f"{MODEL.strip()}\n\n\nMODELS: "),
        ('"lenet5": LeNet5', '"perceptron": perceptron, "lenet5": LeNet5'),
    )
    (app / "datasets/stripes.py").write_text(DATA_SET)
    edit(
        app / "datasets/__init__.py",
        ("mnist, shapes", "mnist, shapes, stripes"),
        ("SOURCES: dict[DatasetName, Source] = {", SOURCE),
    )
    edit(app / "datasets/prepared.py", ('{"vgg11": 3,', '{"perceptron": 3, "vgg11": 3,'))
    edit(
        app / "settings/fields.py",
        ('Literal["vgg11", "lenet5"', 'Literal["perceptron", "vgg11", "lenet5"'),
        ('Literal["shapes", "digits"', 'Literal["stripes", "shapes", "digits"'),
        ('= {"vgg11": "shapes"', '= {"perceptron": "stripes", "vgg11": "shapes"'),
    )
    return tmp_path


def test_a_run_with_a_new_mode_a_new_model_and_a_new_data_set(extended: Path) -> None:
    settings: dict[str, Value] = {
        "SYNC_MODE": "binary_tree",
        "MODEL": "perceptron",
        "GLOBAL_BATCH_SIZE": 24,
        "EPOCHS": 2,
        "WARMUP_STEPS": 0,
        "LINK_CHECK": "off",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "WORLD_SIZE": 4,
    }
    # `python -m` takes the program from the working directory, where the extended copy is.
    code, output = wait(start_as_typed("prepare", extended, SYNC_MODE="binary_tree", MODEL="perceptron"))
    assert code == 0, output
    for process in [start_as_typed("train", extended, RANK=rank, **settings) for rank in range(4)]:
        code, output = wait(process)
        assert code == 0, output
    summary = json.loads((extended / "results/latest/summary.json").read_text())
    assert summary["replicas_identical"]
    assert (summary["model"], summary["dataset"], summary["sync_mode"]) == ("perceptron", "stripes", "binary_tree")
    for rank, times in zip(summary["ranks"], (2, 2, 1, 1), strict=True):
        assert rank["bytes_sent_per_step"] == rank["formula_bytes_sent_per_step"] == times * 4 * (3 * 32 * 32 * 10 + 10)
    assert summary["run"]["accuracy"] == 1
