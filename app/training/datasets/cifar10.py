"""`cifar10`: the 60,000 colour photographs of ten classes that the course trains on, read by torchvision."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.training.datasets.archives import Archive


def archives() -> list[Archive]:
    """Names, checksums and URLs are those of torchvision."""
    from torchvision.datasets import CIFAR10  # here, because ranks do not need this slow import

    files = [*CIFAR10.train_list, *CIFAR10.test_list, (CIFAR10.meta["filename"], CIFAR10.meta["md5"])]
    contents = {f"{CIFAR10.base_folder}/{name}": md5 for name, md5 in files}
    return [Archive(CIFAR10.filename, (CIFAR10.url,), contents)]


def make(folder: Path) -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 3) and labels of the training and the test part, from the unpacked archive."""
    from torchvision.datasets import CIFAR10

    parts = {name: CIFAR10(folder, train=name == "train") for name in ("train", "test")}
    return {name: (np.asarray(part.data), np.array(part.targets)) for name, part in parts.items()}
