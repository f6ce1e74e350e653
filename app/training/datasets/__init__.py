"""The data sets, one file per set: its properties, and how its arrays are made."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.errors import ExtensionError
from app.extensions import files
from app.extensions.files import path_of
from app.extensions.loading import load
from app.machine.folders import PREPARED
from app.settings.training import DatasetName
from app.training.datasets import cifar10, digits, fashion, idx, mnist, pictures, shapes
from app.training.datasets.archives import Archive
from app.training.datasets.pictures import LEAST_CLASSES, MOST_CLASSES

SIDE = 32  # pixels, of every set's images
CLASSES = 10  # of every built-in set

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Parts = dict[str, tuple[Images, Labels]]  # "train" and "test": images (n, 32, 32, channels), labels from 0


@dataclass(frozen=True)
class Source:
    """One data set: how it is made, and how its images are prepared for the model."""

    title: str  # for users
    channels: int
    mean: tuple[float, ...]  # per channel, of pixels from 0 to 255
    deviation: tuple[float, ...]
    crop_and_flip: bool
    train_samples: int
    test_samples: int
    make: Callable[..., Parts]  # takes the folder of the unpacked archives, if the set has any
    archives: Callable[[], Sequence[Archive]] | None = None
    classes: int = CLASSES
    version: str | None = None  # of a folder of pictures; its make takes the name and a Say

    @property
    def fingerprint(self) -> str:
        """Changes with the code that makes the arrays, and with pictures, so that outdated arrays are never used."""
        if self.version:
            return self.version
        files = (Path(inspect.getfile(self.make)), Path(idx.__file__))
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


SOURCES: dict[DatasetName, Source] = {
    "fashion": Source(
        title="fashion: Fashion-MNIST, 60,000 + 10,000 grey pictures of ten kinds of clothing",
        channels=1,
        mean=(55.8,),
        deviation=(84.6,),
        crop_and_flip=False,  # as in the published result of VGG16
        train_samples=60_000,
        test_samples=10_000,
        make=fashion.make,
    ),
    "shapes": Source(
        title="shapes: embedded, drawn from a seed; 50,000 + 10,000 colour images of ten geometric classes",
        channels=3,
        mean=(125.3, 123.0, 113.9),
        deviation=(63.0, 62.1, 66.7),
        crop_and_flip=True,
        train_samples=50_000,
        test_samples=10_000,
        make=shapes.make,
    ),
    "digits": Source(
        title="digits: scikit-learn's 1,797 handwritten digits, 1,437 + 360",
        channels=1,
        mean=(59.6,),
        deviation=(79.6,),
        crop_and_flip=False,  # a mirrored digit is not that digit
        train_samples=1437,
        test_samples=360,
        make=digits.make,
    ),
    "cifar10": Source(
        title="cifar10: CIFAR-10, 50,000 + 10,000 colour photographs of ten classes",
        channels=3,
        mean=(125.3, 123.0, 113.9),
        deviation=(63.0, 62.1, 66.7),
        crop_and_flip=True,
        train_samples=50_000,
        test_samples=10_000,
        make=cifar10.make,
        archives=cifar10.archives,
    ),
    "mnist": Source(
        title="mnist: MNIST, 60,000 + 10,000 handwritten digits, padded to 32x32",
        channels=1,
        mean=(25.5,),
        deviation=(70.2,),
        crop_and_flip=False,
        train_samples=60_000,
        test_samples=10_000,
        make=mnist.make,
        archives=mnist.archives,
    ),
}


def source_of(name: DatasetName) -> Source:
    """A built-in data set, SOURCE in the user's file, or a folder of pictures."""
    if name in SOURCES:
        return SOURCES[name]
    if name in files.folders():
        version = pictures.version_of(name)
        description = asdict(pictures.describe(name, PREPARED / f"{name}-{version}"))
        return Source(**description, crop_and_flip=False, make=pictures.make, version=version)
    source = getattr(load(name), "SOURCE", None)
    if not isinstance(source, Source):
        raise ExtensionError(
            f"{path_of(name)}: SOURCE must be a Source of app.training.datasets. See docs/extensions.md.",
            "invalid-extension",
        )
    counts = (source.train_samples, source.test_samples)
    if any(type(each) is not int or each < 1 for each in counts) or source.channels not in (1, 3):
        raise ExtensionError(
            f"{path_of(name)}: SOURCE has {counts[0]!r} and {counts[1]!r} samples of {source.channels!r} channels. "
            "Give two whole numbers of at least 1, and 1 or 3 channels.",
            "invalid-extension",
        )
    if type(source.classes) is not int or not LEAST_CLASSES <= source.classes <= MOST_CLASSES:
        raise ExtensionError(
            f"{path_of(name)}: SOURCE has {source.classes!r} classes. "
            f"Give a whole number from {LEAST_CLASSES} to {MOST_CLASSES}.",
            "invalid-extension",
        )
    if not inspect.isfunction(source.make):
        raise ExtensionError(f"{path_of(name)}: SOURCE.make must be a function of that file.", "invalid-extension")
    return source
