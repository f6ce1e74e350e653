"""Small archives in the layout of the real ones, and the checksums that make them count as those."""

import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from torchvision.datasets import CIFAR10

from app.training.datasets import mnist

TRAIN, TEST = 50, 20  # images, of which CIFAR-10's five batches have ten each

Labels = npt.NDArray[np.int64]


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def labels_of(samples: int) -> Labels:
    return np.arange(samples) % 10


def cifar10_files(monkeypatch: pytest.MonkeyPatch, test_labels: Labels | None = None) -> dict[str, bytes]:
    """What the archive holds, by path: five batches to train on, one to test with, the names of the classes."""
    random = np.random.default_rng(0)

    def batch(labels: Labels) -> bytes:
        images = random.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
        return pickle.dumps({"batch_label": "a batch", "labels": labels.tolist(), "data": images, "filenames": []})

    parts = np.split(labels_of(TRAIN), len(CIFAR10.train_list))
    train = {name: batch(part) for (name, _), part in zip(CIFAR10.train_list, parts, strict=True)}
    test = {"test_batch": batch(labels_of(TEST) if test_labels is None else test_labels)}
    meta = {CIFAR10.meta["filename"]: pickle.dumps({CIFAR10.meta["key"]: [f"class {number}" for number in range(10)]})}
    monkeypatch.setattr(CIFAR10, "train_list", [[name, md5(content)] for name, content in train.items()])
    monkeypatch.setattr(CIFAR10, "test_list", [[name, md5(content)] for name, content in test.items()])
    monkeypatch.setitem(CIFAR10.meta, "md5", md5(next(iter(meta.values()))))
    return {f"{CIFAR10.base_folder}/{name}": content for name, content in (train | test | meta).items()}


def tar_of(files: dict[str, bytes], *members: tarfile.TarInfo) -> bytes:
    """A compressed tar archive of files, and of further members that are no files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return packed.getvalue()


def put_cifar10(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A small CIFAR-10 that is taken for the published one."""
    archive = tar_of(cifar10_files(monkeypatch))
    folder.mkdir(exist_ok=True)
    path = folder / str(CIFAR10.filename)
    path.write_bytes(archive)
    return path


def mnist_files(train_labels: Labels | None = None) -> dict[str, bytes]:
    """The four files, unpacked: a header with the type, the number of dimensions and their sizes, then the bytes."""

    def idx(array: npt.NDArray[np.uint8]) -> bytes:
        return (
            bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()
        )

    random = np.random.default_rng(0)
    contents = []
    for labels in (labels_of(TRAIN) if train_labels is None else train_labels, labels_of(TEST)):
        contents += [idx(random.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8)), idx(labels.astype(np.uint8))]
    return dict(zip(mnist.SHA256, contents, strict=True))


def put_mnist(monkeypatch: pytest.MonkeyPatch, folder: Path, files: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Put a small MNIST, packed, in place of the published one. Returns its unpacked files."""
    files = files or mnist_files()
    monkeypatch.setattr(mnist, "SHA256", {name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return files
