"""Prepared data sets: plain arrays with checksums, made once and mapped read-only by every rank."""

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.datasets import SOURCES, Images, Labels, Source
from app.errors import LockstepError, SettingError
from app.folders import PREPARED
from app.settings import DatasetName, ModelName

PARTS = ("train", "test")
CHECKSUMS = "sha256.json"
MODEL_CHANNELS: dict[ModelName, int] = {"vgg11": 3, "lenet5": 1}


@dataclass(frozen=True)
class Part:
    """Images (n, 32, 32, channels) and their labels 0 to 9."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A prepared set, its arrays mapped and not read."""

    source: Source
    train: Part
    test: Part


def check_fit(model: ModelName, name: DatasetName) -> None:
    """Refuse a model and a data set that make no sense together."""
    if MODEL_CHANNELS[model] != SOURCES[name].channels:
        fitting = [other for other, source in SOURCES.items() if source.channels == MODEL_CHANNELS[model]]
        raise SettingError(
            f"MODEL={model} with DATASET={name}: the model takes images of {MODEL_CHANNELS[model]} channel(s), "
            f"the set has {SOURCES[name].channels}. Allowed with this model: {', '.join(fitting)}."
        )


def folder_of(name: DatasetName) -> Path:
    """Where a set's arrays lie; another version of the code that makes them has another folder."""
    return PREPARED / f"{name}-{SOURCES[name].fingerprint}"


def make(name: DatasetName) -> bool:
    """Make the set's arrays unless they are there, whole and unaltered. Say whether they were made."""
    folder = folder_of(name)
    if _intact(folder):
        return False
    for stale in PREPARED.glob(f"{name}-*"):
        shutil.rmtree(stale)
    scratch = Path(tempfile.mkdtemp(dir=PREPARED, prefix="."))
    try:
        for part, (images, labels) in SOURCES[name].make().items():
            np.save(scratch / f"{part}_images.npy", images)
            np.save(scratch / f"{part}_labels.npy", labels)
        (scratch / CHECKSUMS).write_text(json.dumps(_checksums(scratch)))
        scratch.chmod(0o755)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return True


def _intact(folder: Path) -> bool:
    listed = folder / CHECKSUMS
    return listed.is_file() and json.loads(listed.read_text()) == _checksums(folder)


def _checksums(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.glob("*.npy")):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def load(name: DatasetName) -> DataSet:
    """Map the prepared arrays of a set."""
    folder = folder_of(name)
    if not folder.is_dir():
        raise LockstepError(f"{folder} is missing. Run `python -m app prepare` with the same settings first.")
    parts = {
        part: Part(
            np.load(folder / f"{part}_images.npy", mmap_mode="r"), np.load(folder / f"{part}_labels.npy", mmap_mode="r")
        )
        for part in PARTS
    }
    return DataSet(SOURCES[name], parts["train"], parts["test"])
