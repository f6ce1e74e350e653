"""`cifar10`: the 60,000 colour photographs of ten classes that the course trains on, read by torchvision."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.training.datasets.archives import Archive


def archives() -> list[Archive]:
    """What has to be there; names, checksums and addresses are torchvision's."""
    from torchvision.datasets import CIFAR10  # here, because ranks need none of it and would wait for the import

    return [Archive(CIFAR10.filename, CIFAR10.tgz_md5, (CIFAR10.url,))]


def make(folder: Path) -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 3) and labels of the training and the test part, out of the unpacked archive."""
    from torchvision.datasets import CIFAR10

    parts = {name: CIFAR10(folder, train=name == "train") for name in ("train", "test")}
    return {name: (np.asarray(part.data), np.array(part.targets)) for name, part in parts.items()}
