"""`mnist`: 70,000 handwritten digits, 28x28 pixels padded to 32x32, read by torchvision."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.training.datasets.archives import Archive

PADDING = 2


def archives() -> list[Archive]:
    """Names, checksums and URLs are those of torchvision."""
    from torchvision.datasets import MNIST  # here, because ranks do not need this slow import

    return [
        Archive(name, md5, tuple(mirror + name for mirror in reversed(MNIST.mirrors)), place="MNIST/raw")
        for name, md5 in MNIST.resources
    ]


def make(folder: Path) -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 1) and labels of the training and the test part, from the unpacked archives."""
    from torchvision.datasets import MNIST

    parts = {name: MNIST(folder, train=name == "train") for name in ("train", "test")}
    around = ((0, 0), (PADDING, PADDING), (PADDING, PADDING))
    return {
        name: (np.pad(part.data.numpy(), around)[..., np.newaxis], part.targets.numpy()) for name, part in parts.items()
    }
