"""MNIST's file format: a big-endian header, then one byte per pixel or label."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

PARTS = {"train": "train", "test": "t10k"}  # and how MNIST's file names begin
SIDE = 28  # pixels
PADDING = 2
IMAGES_HEADER, LABELS_HEADER = 16, 8  # bytes


def read(images: Path, labels: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (n, 32, 32, 1), padded with black, and their labels."""
    pixels = _bytes_of(images, IMAGES_HEADER).reshape(-1, SIDE, SIDE)
    padded = np.pad(pixels, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    return padded[..., np.newaxis], _bytes_of(labels, LABELS_HEADER).astype(np.int64)


def _bytes_of(path: Path, header: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)
