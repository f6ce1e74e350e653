"""Divides an epoch into global batches and those into the ranks' parts, and augments their images."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from app.training.datasets import SIDE, Images
from app.training.datasets.prepared import DataSet, Split
from app.training.numerics import FP32, Numerics

PADDING = 4

Indices = npt.NDArray[np.int64]


def load_batch(
    dataset: DataSet,
    part: Split,
    samples: Indices,
    augmentation: "Augmentation | None" = None,
    numerics: Numerics = FP32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised images (n, channels, 32, 32) and the labels of these samples. Grey ones fill all channels."""
    dtype, memory_format = numerics.dtype, numerics.layout.large
    images = part.images[samples]
    if augmentation is not None:
        images = augmentation.apply(images, samples)
    channels = dataset.channels or images.shape[-1]
    if channels != images.shape[-1]:
        images = np.repeat(images, channels, axis=-1)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(dtype, memory_format=memory_format)
    source = dataset.source
    mean, deviation = (torch.tensor(each, dtype=dtype).view(1, -1, 1, 1) for each in (source.mean, source.deviation))
    return pixels.sub_(mean).div_(deviation), torch.from_numpy(part.labels[samples])


@dataclass(frozen=True)
class Augmentation:
    """An epoch's random crops and flips, drawn for every sample of the set.

    A sample's crop depends on (seed, epoch, sample) alone, and not on the rank that trains on the sample.
    """

    top: npt.NDArray[np.int8]
    left: npt.NDArray[np.int8]
    flip: npt.NDArray[np.bool_]

    def apply(self, images: Images, samples: Indices) -> Images:
        """Pad with 4 black pixels, crop to 32x32, and flip some images horizontally."""
        border = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
        offsets = np.arange(SIDE)
        rows = self.top[samples, np.newaxis] + offsets
        columns = self.left[samples, np.newaxis] + np.where(self.flip[samples, np.newaxis], offsets[::-1], offsets)
        which = np.arange(len(samples))[:, np.newaxis, np.newaxis]
        cropped: Images = np.pad(images, border)[which, rows[:, :, np.newaxis], columns[:, np.newaxis, :]]
        return cropped


def draw_augmentation(dataset: DataSet, seed: int, epoch: int) -> Augmentation | None:
    """Draw an epoch's augmentation, or return None for a data set that is used unchanged."""
    if not dataset.source.crop_and_flip:
        return None
    samples = len(dataset.train)
    random = np.random.default_rng((seed, epoch, 1))
    top, left = random.integers(0, 2 * PADDING + 1, size=(2, samples), dtype=np.int8)
    return Augmentation(top, left, random.random(samples) < 0.5)


def global_batches(dataset: DataSet, batch_size: int, seed: int, epoch: int) -> Iterator[Indices]:
    """Cut an epoch's permutation into global batches; the last one is smaller if the samples do not divide evenly."""
    samples = len(dataset.train)
    order = np.random.default_rng((seed, epoch, 0)).permutation(samples)
    return (order[start : start + batch_size] for start in range(0, samples, batch_size))


def part_of(global_batch: Indices, rank: int, world_size: int) -> Indices:
    """Every world-size-th sample of the batch. Each sample is in exactly one rank's part.

    Some parts are empty if the batch has fewer samples than there are ranks.
    """
    return global_batch[rank::world_size]
