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
from app.extensions.files import path_of
from app.extensions.loading import blamed
from app.machine import folders
from app.machine.durable import sha256
from app.machine.folders import PREPARED, scratch_in
from app.machine.interrupt import CleanUps
from app.machine.say import Say, shown
from app.settings.training import DatasetName, ModelName, TrainingSettings
from app.training.datasets import CLASSES, SIDE, SOURCES, Images, Labels, Parts, Source, source_of
from app.training.datasets.archives import obtain, unpack

PARTS = ("train", "test")
CHECKSUMS = "sha256.json"
MODEL_CHANNELS: dict[ModelName, int] = {"vgg11": 3, "lenet5": 1, "resnet18": 3}


@dataclass(frozen=True)
class Split:
    """Images (n, 32, 32, channels) and their labels 0 to 9."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A prepared set; its arrays are mapped, not read."""

    source: Source
    train: Split
    test: Split
    sha256: str | None = None  # of the whole set, as it was prepared


def channels_of(model: ModelName) -> int:
    """Those of the images that a model takes."""
    return MODEL_CHANNELS[model] if model in MODEL_CHANNELS else reading.channels_of(model)


def check_fit(model: ModelName, name: DatasetName) -> None:
    """Refuse a model and a data set that do not fit together."""
    if channels_of(model) != source_of(name).channels:
        fitting = [other for other, source in SOURCES.items() if source.channels == channels_of(model)]
        raise SettingError(
            f"MODEL={model} with DATASET={name}: the model takes images of {channels_of(model)} channel(s), "
            f"the set has {source_of(name).channels}. Allowed with this model: {', '.join(fitting)}."
        )


def folder_of(name: DatasetName) -> Path:
    """The folder of a set's arrays; each version of the code that makes them has its own."""
    return PREPARED / f"{name}-{source_of(name).fingerprint}"


def make(name: DatasetName, say: Say, clean_ups: CleanUps) -> bool:
    """Make the set's arrays unless they exist, whole and unaltered; return whether they were made."""
    with folders.alone_in(PREPARED, say):
        return not _intact(folder_of(name)) and _make(name, say, clean_ups)


def make_if_missing(name: DatasetName, say: Say, clean_ups: CleanUps) -> None:
    """Make the set's arrays where `prepare` has not: ranks that something else than Compose starts do it themselves."""
    if not folder_of(name).is_dir():
        folders.check_writable(PREPARED)
        make(name, say, clean_ups)


def _make(name: DatasetName, say: Say, clean_ups: CleanUps) -> bool:
    source, folder = source_of(name), folder_of(name)
    published = source.archives() if source.archives else []
    archives = [(archive, obtain(archive, say, clean_ups)) for archive in published]
    for stale in PREPARED.glob(f"{name}-*"):
        shutil.rmtree(stale)
    with scratch_in(PREPARED, clean_ups) as scratch:
        for archive, path in archives:
            unpack(path, scratch / "unpacked" / archive.place)
        with blamed(name):
            parts = _read(name, scratch / "unpacked") if archives else source.make()
        _check(name, parts)
        arrays = scratch / "arrays"
        arrays.mkdir()
        for part, (images, labels) in parts.items():
            np.save(arrays / f"{part}_images.npy", images)
            np.save(arrays / f"{part}_labels.npy", labels)
        (arrays / CHECKSUMS).write_text(json.dumps(_checksums(arrays)))
        arrays.rename(folder)
    return True


def _read(name: DatasetName, folder: Path) -> Parts:
    try:
        return source_of(name).make(folder)
    except RuntimeError as error:
        raise SettingError(
            f"torchvision cannot read {name} from its archives: {error}. Put the published ones into data/."
        ) from None


def _check(name: DatasetName, parts: Parts) -> None:
    """Refuse arrays that do not have the form of every set, whatever their checksums say."""
    remedy = "Put the published archives into data/." if name in SOURCES else f"Correct make() in {path_of(name)}."
    if not _is_of_two_parts(parts):
        raise SettingError(
            f"{name}: make() returns no two parts of arrays. Expected: "
            f'{{"train": (images, labels), "test": (images, labels)}}. {remedy}'
        )
    for part, (images, labels) in parts.items():
        expected = (len(labels), SIDE, SIDE, source_of(name).channels)
        if images.shape != expected or images.dtype != np.uint8:
            raise SettingError(
                f"{name}: its {part} images are {images.dtype} {images.shape}, expected uint8 {expected}. {remedy}"
            )
        found, expected_classes = {int(label) for label in np.unique(labels)}, set(range(CLASSES))
        if found != expected_classes:
            missing, strange = sorted(expected_classes - found), sorted(found - expected_classes)
            raise SettingError(
                f"{name}: its {part} part must hold the classes 0 to {CLASSES - 1}; missing: {missing}, "
                f"unknown: {strange}. {remedy}"
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
    for path in sorted(folder.glob("*.npy")):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def load_for(training: TrainingSettings) -> DataSet:
    """The images that a run works with: its whole set, or the first TRAIN_SAMPLES and TEST_SAMPLES."""
    whole = load(training.dataset_name)
    return replace(
        whole,
        train=_first(whole.train, "TRAIN_SAMPLES", training.train_samples),
        test=_first(whole.test, "TEST_SAMPLES", training.test_samples),
    )


def _first(part: Split, name: str, samples: int | None) -> Split:
    if samples is not None and samples > len(part):
        raise SettingError(f"{name}={samples}: not allowed. Allowed with this data set: 1 to {len(part)}.")
    return Split(part.images[:samples], part.labels[:samples])


def load(name: DatasetName) -> DataSet:
    """Map the prepared arrays of a set."""
    folder = folder_of(name)
    if not folder.is_dir():
        raise LockstepError(f"{folder} is missing. Run `python -m app prepare` with the same settings first.")
    parts = {part: _load_part(folder, part, source_of(name).channels) for part in PARTS}
    return DataSet(source_of(name), parts["train"], parts["test"], sha256_of(name))


def sha256_of(name: DatasetName) -> str | None:
    """The checksum of a set that is prepared here; None if it is not."""
    path = folder_of(name) / CHECKSUMS
    return sha256(path.read_bytes()) if path.is_file() else None


def _load_part(folder: Path, part: str, channels: int) -> Split:
    images, labels = (_map(folder / f"{part}_{array}.npy") for array in ("images", "labels"))
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE, channels):
        raise _damaged(folder, f"the {part} images are {images.dtype} {images.shape}")
    if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
        raise _damaged(folder, f"the {part} labels are {labels.dtype} {labels.shape}")
    if not 0 <= labels.min() <= labels.max() < CLASSES:
        raise _damaged(folder, f"the {part} labels go from {labels.min()} to {labels.max()}")
    return Split(images, labels)


def _map(path: Path) -> npt.NDArray[Any]:
    """The array of a file; never one of objects, because to load those can run code."""
    try:
        array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # type: ignore[no-untyped-call]
        return array
    except Exception as error:  # numpy's reader raises many kinds
        raise _damaged(path, shown(str(error))) from None


def _damaged(path: Path, reason: str) -> LockstepError:
    return LockstepError(f"{path} was damaged: {reason}. Run `python -m app prepare`, which makes it again.")
