"""`digits`: the handwritten digits of scikit-learn, 8x8 pixels, scaled and padded to 32x32."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

# From Debian's python3-sklearn; the library itself is not needed. One line per digit: 64 pixels from 0 to 16, label.
FILE = Path("/usr/local/share/lockstep/digits.csv.gz")

SIDE = 8
SCALED_SIDE = 28  # within 32x32, as in MNIST
PADDING = 2
TRAINING_SHARE = 0.8
SHUFFLE_SEED = 0  # the file is ordered by writer


def make() -> dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Images (n, 32, 32, 1) and labels of the training and the test part."""
    with gzip.open(FILE, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    table = table[np.random.default_rng(SHUFFLE_SEED).permutation(len(table))]
    images, labels = enlarge(table[:, :-1].reshape(-1, SIDE, SIDE)), table[:, -1].astype(np.int64)
    cut = int(len(table) * TRAINING_SHARE)
    return {"train": (images[:cut], labels[:cut]), "test": (images[cut:], labels[cut:])}


def enlarge(images: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Scale pixels from 0..16 to 0..255 and the sides from 8 to 28 by linear interpolation; pad to 32 with black."""
    centres = (np.arange(SCALED_SIDE) + 0.5) * SIDE / SCALED_SIDE - 0.5
    weights = np.stack([np.interp(centres, np.arange(SIDE), column) for column in np.eye(SIDE)], axis=1)
    scaled = weights @ images @ weights.T * (255 / 16)
    around = ((0, 0), (PADDING, PADDING), (PADDING, PADDING))
    return np.pad(scaled.round().astype(np.uint8), around)[..., np.newaxis]
