"""Data and models that are quick to train, for laws in which their size plays no part."""

from contextlib import AbstractContextManager
from functools import cache
from unittest.mock import patch

from app.settings.training import ModelName
from app.training import models
from app.training.datasets import SOURCES, shapes
from app.training.datasets.prepared import DataSet, Split

CHANNELS = 8


@cache
def few_images(model: ModelName, samples: int) -> DataSet:
    """Of `shapes` for a model that takes colour images, else of `digits`."""
    if model != "lenet5":
        part = Split(*shapes.draw(samples, seed=3))
        return DataSet(SOURCES["shapes"], part, part)
    images, labels = SOURCES["digits"].make()["train"]
    part = Split(images[:samples], labels[:samples])
    return DataSet(SOURCES["digits"], part, part)


def narrow_vgg_11() -> AbstractContextManager[object]:
    """VGG-11 has all its layers, with few channels in each."""
    layers = tuple(CHANNELS if isinstance(each, int) else each for each in models.VGG11_LAYERS)
    return patch.object(models, "VGG11_LAYERS", layers)
