"""Prepared data sets: plain arrays with checksums, made once and mapped read-only by every rank."""

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.errors import LockstepError, SettingError
from app.extensions import reading
from app.extensions.files import PARTS, PICTURES, path_of
from app.extensions.loading import blamed
from app.machine import folders
from app.machine.durable import sha256
from app.machine.folders import PREPARED, scratch_in
from app.machine.interrupt import CleanUps
from app.machine.say import Say, shown
from app.settings.training import DatasetName, ModelName, TrainingSettings
from app.training.datasets import CLASSES, SIDE, SOURCES, Images, Labels, Parts, Source, pictures, source_of
from app.training.datasets.archives import obtain

CHECKSUMS = "sha256.json"
MODEL_CHANNELS: dict[ModelName, int] = {"vgg11": 3, "lenet5": 1, "resnet18": 3}


@dataclass(frozen=True)
class Split:
    """Images (n, 32, 32, channels) and their labels."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A prepared data set, whose arrays are memory-mapped."""

    source: Source
    train: Split
    test: Split
    sha256: str | None = None  # of the whole prepared set
    channels: int | None = None  # that the model takes, if they are not those of the images


def channels_of(model: ModelName) -> int:
    """The channels of the images that a model takes."""
    return MODEL_CHANNELS[model] if model in MODEL_CHANNELS else reading.channels_of(model)


def check_fit(model: ModelName, name: DatasetName) -> None:
    """Refuse a model of one channel with a data set in colour. A grey image becomes three equal channels."""
    if channels_of(model) < source_of(name).channels:
        fitting = [other for other, source in SOURCES.items() if source.channels == channels_of(model)]
        raise SettingError(
            f"MODEL={model} with DATASET={name}: the model takes grey images, and the data set is in colour. "
            f"Choose DATASET from: {', '.join(fitting)}.",
            "conflicting-settings",
        )
    classes = source_of(name).classes
    if classes != CLASSES and model not in MODEL_CHANNELS and not reading.takes_classes(model):
        raise SettingError(needs_classes(model, classes), "conflicting-settings")


def needs_classes(model: ModelName, classes: int) -> str:
    return (
        f"{path_of(model)}: build(batch_norm) makes a model of {CLASSES} classes, and the data set has {classes:,}. "
        "Write build(batch_norm, classes), and give the last layer that many outputs."
    )


def folder_of(name: DatasetName) -> Path:
    """The folder of a data set's arrays, one for each version of the code that makes them."""
    return PREPARED / f"{name}-{source_of(name).fingerprint}"


def make(name: DatasetName, say: Say, clean_ups: CleanUps) -> bool:
    """Make the arrays unless intact ones exist, and return whether they were made."""
    with folders.alone_in(PREPARED, say):
        return not _intact(folder_of(name)) and _make(name, say, clean_ups)


def make_if_missing(name: DatasetName, say: Say, clean_ups: CleanUps) -> None:
    """Make the arrays if `prepare` has not, because ranks started without Compose make them themselves."""
    if not folder_of(name).is_dir():
        folders.check_writable(PREPARED)
        make(name, say, clean_ups)


def _make(name: DatasetName, say: Say, clean_ups: CleanUps) -> bool:
    source, folder = source_of(name), folder_of(name)
    with scratch_in(PREPARED, clean_ups) as scratch:
        for archive in source.archives() if source.archives else []:
            obtain(archive, scratch / "unpacked", say, clean_ups)
        for stale in PREPARED.glob(f"{name}-*"):
            shutil.rmtree(stale)
        with blamed(name):
            if source.version:
                parts = source.make(name, say)
            else:
                parts = source.make(scratch / "unpacked") if source.archives else source.make()
        _check(name, parts)
        arrays = scratch / "arrays"
        arrays.mkdir()
        for part, (images, labels) in parts.items():
            np.save(arrays / f"{part}_images.npy", images)
            np.save(arrays / f"{part}_labels.npy", labels)
        if source.version:
            (arrays / PICTURES).write_text(pictures.description(name, parts["train"][0]))
        (arrays / CHECKSUMS).write_text(json.dumps(_checksums(arrays)))
        arrays.rename(folder)
    return True


def _check(name: DatasetName, parts: Parts) -> None:
    """Refuse arrays that do not have the form of every data set, even if their archives are intact."""
    remedy, kind = "Put the published archives into data/.", "invalid-file"
    if name not in SOURCES:
        remedy, kind = f"Correct make() in {path_of(name)}.", "invalid-extension"
    if not _is_of_two_parts(parts):
        form = '{"train": (images, labels), "test": (images, labels)}'
        raise SettingError(f"{name}: make() must return the arrays {form}. {remedy}", kind)
    for part, (images, labels) in parts.items():
        expected = (len(labels), SIDE, SIDE, source_of(name).channels)
        if images.shape != expected or images.dtype != np.uint8:
            found_form = f"{images.dtype} {images.shape}"
            raise SettingError(f"{name}: {part} images are {found_form}, expected uint8 {expected}. {remedy}", kind)
        classes = source_of(name).classes
        found, expected_classes = {int(label) for label in np.unique(labels)}, set(range(classes))
        if found != expected_classes:
            missing, strange = sorted(expected_classes - found), sorted(found - expected_classes)
            raise SettingError(
                f"{name}: {part} labels must include the classes 0 to {classes - 1}. Missing: {missing}, "
                f"unknown: {strange}. {remedy}",
                kind,
            )


def _is_of_two_parts(parts: object) -> bool:
    return (
        isinstance(parts, dict)
        and parts.keys() == set(PARTS)
        and all(isinstance(each, tuple) and len(each) == 2 for each in parts.values())
        and all(isinstance(array, np.ndarray) for each in parts.values() for array in each)
        and all(labels.ndim == 1 and labels.dtype == np.int64 for _, labels in parts.values())
    )


def _intact(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / CHECKSUMS).read_bytes()) == _checksums(folder))
    except (OSError, ValueError, RecursionError):
        return False


def _checksums(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted([*folder.glob("*.npy"), *folder.glob(PICTURES)]):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def load_for(training: TrainingSettings) -> DataSet:
    """The images that a run uses: the whole data set, or the first TRAIN_SAMPLES and TEST_SAMPLES."""
    whole = load(training.dataset)
    return replace(
        whole,
        train=_first(whole.train, "TRAIN_SAMPLES", training.train_samples),
        test=_first(whole.test, "TEST_SAMPLES", training.test_samples),
        channels=channels_of(training.model),
    )


def _first(part: Split, name: str, samples: int | None) -> Split:
    if samples is not None and samples > len(part):
        raise SettingError(f"invalid {name} '{samples}'. Give 1 to {len(part)} for this data set.")
    return Split(part.images[:samples], part.labels[:samples])


def load(name: DatasetName) -> DataSet:
    """Memory-map the prepared arrays of a data set."""
    folder = folder_of(name)
    if not folder.is_dir():
        message = f"{folder} is missing. Run `python -m app prepare` with the same settings first."
        raise LockstepError(message, "missing-file")
    source = source_of(name)
    train, test = (_load_part(folder, part, source) for part in PARTS)
    return DataSet(source, train, test, sha256_of(name))


def sha256_of(name: DatasetName) -> str | None:
    """The checksum of a prepared data set, or None if it is not prepared."""
    path = folder_of(name) / CHECKSUMS
    return sha256(path.read_bytes()) if path.is_file() else None


def _load_part(folder: Path, part: str, source: Source) -> Split:
    images, labels = (_map(folder / f"{part}_{array}.npy") for array in ("images", "labels"))
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, source.channels):
        raise _damaged(folder, f"the {part} images are {images.dtype} {images.shape}")
    if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
        raise _damaged(folder, f"the {part} labels are {labels.dtype} {labels.shape}")
    if not 0 <= labels.min() <= labels.max() < source.classes:
        raise _damaged(folder, f"the {part} labels range from {labels.min()} to {labels.max()}")
    return Split(images, labels)


def _map(path: Path) -> npt.NDArray[Any]:
    """Memory-map a file's array, but never one of objects, because loading those can execute code."""
    try:
        array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # type: ignore[no-untyped-call]
        return array
    except Exception as error:  # numpy's reader raises many kinds
        raise _damaged(path, shown(str(error))) from None


def _damaged(path: Path, reason: str) -> LockstepError:
    return LockstepError(f"{path} is damaged: {reason}. To replace it, run `python -m app prepare`.", "damaged-file")
