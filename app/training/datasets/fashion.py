"""`fashion`: Fashion-MNIST, 70,000 grey pictures of clothing, 28x28 pixels padded to 32x32."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.training.datasets import idx

FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of Debian's package dataset-fashion-mnist


def make() -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 1) and labels of the training and the test part."""
    return idx.read(FOLDER, ".gz")
