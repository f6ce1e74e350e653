"""A user's own pictures, laid out as for torchvision's ImageFolder: data/NAME/train/CLASS/*.jpg, and so in test/."""

import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from app.errors import LockstepError, SettingError
from app.extensions.files import PARTS, PICTURES
from app.machine.folders import DATA, PREPARED
from app.machine.say import Say, escaped, shown
from app.settings.training import MOST_SAMPLES, DatasetName
from app.training.datasets import faults

if TYPE_CHECKING:
    from PIL.Image import Image

Parts = dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]

SIDE = 32
LEAST_CLASSES, MOST_CLASSES = 2, 1000
SUFFIXES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")  # other decoders of Pillow never see a file
GREY, COLOUR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # modes of Pillow with up to 8 bits
SHUFFLE_SEED = 0  # the files are ordered by class, and TRAIN_SAMPLES takes the first images
PROGRESS_SECONDS = 10.0
BILINEAR = 2  # of Pillow; with antialiasing where it makes an image smaller
CHUNK = 10_000  # images at once, to limit the memory of the statistics
MOST_NAMED = 5  # classes in a message


@dataclass(frozen=True)
class Description:
    """The properties of a set, kept beside its arrays for the ranks, which do not see data/."""

    title: str
    channels: int
    mean: tuple[float, ...]  # per channel; empty until the arrays are made
    deviation: tuple[float, ...]
    train_samples: int
    test_samples: int
    classes: int


@dataclass(frozen=True)
class Listing:
    """The pictures of a folder. A label is the position of its class among the sorted names."""

    name: DatasetName
    classes: int
    files: dict[str, list[tuple[Path, int]]]
    ignored: list[Path]
    version: str  # changes with the name, size and time of a file, and with this module

    @cached_property
    def channels(self) -> int:
        """One if all pictures are grey, according to their headers."""
        return 3 if any(_is_coloured(path) for part in PARTS for path, _ in self.files[part]) else 1

    def describe(self, mean: tuple[float, ...] = (), deviation: tuple[float, ...] = ()) -> Description:
        train, test = (len(self.files[part]) for part in PARTS)
        title = f"{self.name}: pictures in {DATA / self.name}, {train:,} + {test:,} in {self.classes:,} classes"
        return Description(title, self.channels, mean, deviation, train, test, self.classes)


def version_of(name: DatasetName) -> str:
    """The version of the folder in data/ or, where there is none, of its arrays. A newer version replaces an older."""
    if not os.path.lexists(DATA / name):
        for path in PREPARED.glob(f"{name}-*/{PICTURES}"):
            return path.parent.name.partition("-")[2]
    return look(name).version


def describe(name: DatasetName, arrays: Path) -> Description:
    """Read the description in the arrays' folder, or list the pictures if there is none."""
    try:
        return TypeAdapter(Description).validate_json((arrays / PICTURES).read_bytes())
    except (OSError, ValidationError):
        return look(name).describe()


@cache
def look(name: DatasetName) -> Listing:
    """List the pictures, once per process; refuse a folder of another form."""
    folder = DATA / name
    train, test = (_classes_in(folder, part) for part in PARTS)
    if train.keys() != test.keys():
        only = {"train": train.keys() - test.keys(), "test": test.keys() - train.keys()}
        found = "; ".join(f"only in {part}: {_some(names)}" for part, names in only.items() if names)
        raise _refused(f"{folder}/train and {folder}/test have different classes, {found}. Give both the same folders.")
    digest = hashlib.sha256(Path(__file__).read_bytes())
    files: dict[str, list[tuple[Path, int]]] = {}
    ignored: list[Path] = []
    for part, classes in zip(PARTS, (train, test), strict=True):
        files[part] = []
        for label, (class_name, place) in enumerate(classes.items()):
            found_here = [(path, label) for path in _pictures_in(place, digest, ignored)]
            if not found_here:
                raise _refused(
                    f"{_shown(place)} has no picture, a file that ends in {', '.join(SUFFIXES)}. Add some, or "
                    f"remove the class {shown(class_name)} from train and test."
                )
            files[part] += found_here
            if len(files[part]) > MOST_SAMPLES:
                raise _refused(f"{folder}/{part} has more than {MOST_SAMPLES:,} pictures. Remove some.")
    return Listing(name, len(train), files, ignored, digest.hexdigest()[:12])


def _classes_in(folder: Path, part: str) -> dict[str, Path]:
    """The folders of a part by name, in ImageFolder's order."""
    place = folder / part
    if part not in _folders_in(folder):
        raise _refused(
            f"{folder} has no folder {part}. Put the pictures to {part} on into {place}/CLASS/, one folder per class."
        )
    classes = _folders_in(place)
    if not LEAST_CLASSES <= len(classes) <= MOST_CLASSES:
        count = {0: "no class", 1: f"one class, {_some(classes)}"}.get(len(classes), f"{len(classes):,} classes")
        raise _refused(
            f"{place} has {count}. Give {LEAST_CLASSES} to {MOST_CLASSES:,} classes, each a folder of pictures."
        )
    return classes


def _folders_in(folder: Path) -> dict[str, Path]:
    return {path.name: path for path, found in _entries(folder) if stat.S_ISDIR(found.st_mode)}


def _pictures_in(place: Path, digest: Any, ignored: list[Path]) -> Iterator[Path]:
    for path, found in _entries(place):
        if not path.name.lower().endswith(SUFFIXES) or stat.S_ISDIR(found.st_mode):
            ignored.append(path)
        elif not stat.S_ISREG(found.st_mode):
            kind = faults.KINDS.get(stat.S_IFMT(found.st_mode), "something else")
            raise _refused(f"{_shown(path)} is {kind}, not a picture. Remove it.")
        else:
            digest.update(b"%s\0%d\0%d\0" % (os.fsencode(path), found.st_size, found.st_mtime_ns))
            yield path


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The entries of a folder by name, without hidden ones, such as those of macOS and Jupyter."""
    path = folder
    try:
        for each in sorted(folder.iterdir()):
            if not each.name.startswith("."):
                path = each
                yield path, path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None


def make(name: DatasetName, say: Say) -> Parts:
    """Images (n, 32, 32, channels) and labels of the training and the test part, each in an order of its own."""
    listing = look(name)
    if ignored := listing.ignored:
        say(f"ignored {len(ignored):,} entries that do not end in {', '.join(SUFFIXES)}, such as {_shown(ignored[0])}")
    total, done, said = sum(map(len, listing.files.values())), 0, time.monotonic()
    parts: Parts = {}
    for part, files in listing.files.items():
        order = np.random.default_rng(SHUFFLE_SEED).permutation(len(files))
        images = np.empty((len(files), SIDE, SIDE, listing.channels), np.uint8)
        for place, number in enumerate(order):
            images[place] = _pixels(files[number][0], listing.channels)
            done += 1
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"  {done:,} of {total:,} pictures")
        parts[part] = (images, np.array([files[number][1] for number in order], np.int64))
    return parts


def description(name: DatasetName, images: npt.NDArray[np.uint8]) -> str:
    """The text of the description, with mean and deviation of these training images."""
    levels = np.arange(256)
    means, deviations = [], []
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, np.int64)
        for start in range(0, len(images), CHUNK):
            counts += np.bincount(images[start : start + CHUNK, ..., channel].ravel(), minlength=256)
        mean = counts @ levels / counts.sum()
        means.append(round(float(mean), 1))
        deviation = float(np.sqrt(counts @ (levels - mean) ** 2 / counts.sum()))
        deviations.append(max(round(deviation, 1), 1.0))  # pixels are divided by it, even if all are equal
    return json.dumps(asdict(look(name).describe(tuple(means), tuple(deviations))))


def _is_coloured(path: Path) -> bool:
    with _opened(path) as picture:
        return picture.mode not in GREY


def _pixels(path: Path, channels: int) -> npt.NDArray[np.uint8]:
    with _opened(path) as picture:
        picture.draft(None, (2 * SIDE, 2 * SIDE))  # a large JPEG is decoded at a fraction of its size
        pixels = picture.convert("L" if channels == 1 else "RGB").resize((SIDE, SIDE), BILINEAR)
        return np.asarray(pixels).reshape(SIDE, SIDE, channels)


@contextmanager
def _opened(path: Path) -> Iterator["Image"]:
    """Open a picture; any failure to decode it within the body refuses the picture by name."""
    from PIL import Image, UnidentifiedImageError  # here, because ranks do not need this slow import

    try:
        with warnings.catch_warnings(action="ignore"):
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as picture:
                if picture.mode not in (*GREY, *COLOUR):
                    raise _refused(f"{_shown(path)} has more than 8 bits per channel. Save it with 8 bits.")
                yield picture
    except LockstepError:
        raise
    except UnidentifiedImageError:
        what = "is neither a PNG nor a JPEG picture" if path.stat().st_size else "is empty"
        raise _refused(f"{_shown(path)} {what}. Replace or remove it.") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        most = f"{Image.MAX_IMAGE_PIXELS:,} pixels"
        raise _refused(f"{_shown(path)} is too large: it has more than {most}. Scale it down, or remove it.") from None
    except Exception as error:  # Pillow's decoders raise many kinds
        if isinstance(error, OSError) and error.errno is not None:
            raise _unreadable(path, error) from None
        reason = shown(str(error) or type(error).__name__)
        raise _refused(f"{_shown(path)} is damaged: {reason}. Replace or remove it.") from None


def _unreadable(path: Path, error: OSError) -> SettingError:
    return _refused(faults.why_unreadable(path) or f"cannot read {_shown(path)}: {error.strerror}. Remove it.")


def _refused(message: str) -> SettingError:
    return SettingError(message, "invalid-file")


def _shown(path: Path) -> str:
    return escaped(str(path))


def _some(names: Collection[str]) -> str:
    """The first of these names of classes."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(shown, sorted(names)[:MOST_NAMED])) + more
