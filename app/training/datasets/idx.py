"""MNIST's files: a header, then one byte per pixel or label."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

PARTS = {"train": "train", "test": "t10k"}  # and how the names of their files begin
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
IMAGES_HEADER, LABELS_HEADER = 16, 8  # bytes
SIDE = 28  # pixels
PADDING = 2


def read(folder: Path, suffix: str = "") -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 1), padded with black, and labels of the training and the test part."""
    parts = {}
    for part, name in PARTS.items():
        pixels = _bytes_of(folder / f"{name}-{IMAGES}{suffix}", IMAGES_HEADER).reshape(-1, SIDE, SIDE)
        padded = np.pad(pixels, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        labels = _bytes_of(folder / f"{name}-{LABELS}{suffix}", LABELS_HEADER)
        parts[part] = (padded[..., np.newaxis], labels.astype(np.int64))
    return parts


def _bytes_of(path: Path, header: int) -> npt.NDArray[np.uint8]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return np.frombuffer(content, dtype=np.uint8, offset=header)
