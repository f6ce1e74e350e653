"""How fast a model's steps are in each memory layout."""

import time
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from app.settings.fields import MemoryFormat, Settings
from app.training import models
from app.training.convolution import arrange
from app.training.datasets import CLASSES, SIDE
from app.training.datasets.prepared import channels_of
from app.training.layout_choice import Seconds, candidates
from app.training.numerics import Numerics

IMAGES = 32
ROUNDS = 4
GAIN = 0.05  # for less, the usual layout stays: another measurement might choose otherwise


def measure(settings: Settings) -> Seconds:
    """Train a few steps in each layout, in turn, on one thread, by CPU time: other programs disturb that least."""
    torch.set_num_threads(1)
    steps = {name: _Step(settings, name) for name in candidates(settings)}
    seconds: Seconds = {name: [] for name in steps}
    for step in steps.values():
        step.take()
    for _ in range(ROUNDS):
        for name, step in steps.items():
            began = time.process_time()
            step.take()
            seconds[name].append(time.process_time() - began)
    return seconds


def fastest(seconds: Seconds) -> MemoryFormat:
    """The usual layout, which comes first, unless another one needs clearly less, by the median over the rounds."""
    usual = next(iter(seconds))
    ratios = {name: _ratio(each, seconds[usual]) for name, each in seconds.items()}
    best = min(ratios, key=ratios.__getitem__)
    return best if ratios[best] <= 1 - GAIN else usual


def _ratio(ones: list[float], others: list[float]) -> float:
    return median(one / other for one, other in zip(ones, others, strict=True))


class _Step:
    """Forward and backward of the model, on random images."""

    def __init__(self, settings: Settings, memory_format: MemoryFormat) -> None:
        self._numerics = Numerics.of(settings, memory_format)
        self._model = models.build(settings.model, settings.seed, self._numerics.dtype)
        arrange(self._model, self._numerics.layout)
        images = torch.rand(IMAGES, channels_of(settings.model), SIDE, SIDE, dtype=self._numerics.dtype)
        self._images = images.contiguous(memory_format=self._numerics.layout.large)
        self._labels = torch.arange(IMAGES) % CLASSES

    def take(self) -> None:
        self._model.zero_grad()
        loss = cross_entropy(self._numerics.forward(self._model, self._images), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
