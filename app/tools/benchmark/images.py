"""Random images for benchmarks, whose ranks have no prepared set."""

import numpy as np

from app.settings.training import DEFAULT_DATASETS, TrainingSettings
from app.training.datasets import CLASSES, SIDE, source_of
from app.training.datasets.prepared import DataSet, Split


def noise(training: TrainingSettings, seed: int, samples: int) -> DataSet:
    """Random images and labels, the same on all ranks, in the form of the model's usual set."""
    source, random = (
        source_of(DEFAULT_DATASETS.get(training.model, training.dataset_name)),
        np.random.default_rng(seed),
    )
    images = random.integers(0, 256, (samples, SIDE, SIDE, source.channels), dtype=np.uint8)
    part = Split(images, random.integers(0, CLASSES, samples))
    return DataSet(source, part, part)
