"""`mnist`: 70,000 handwritten digits, 28x28 pixels padded to 32x32."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.training.datasets import idx
from app.training.datasets.archives import Archive

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
SHA256 = {  # of the unpacked files, because archives of equal content differ in their headers
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def archives() -> list[Archive]:
    return [
        Archive(f"{name}.gz", tuple(f"{mirror}{name}.gz" for mirror in MIRRORS), {name: SHA256[name]})
        for name in SHA256
    ]


def make(folder: Path) -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 1) and labels of the training and the test part, from the unpacked files."""
    return idx.read(folder)
