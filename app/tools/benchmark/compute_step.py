"""A rank's own training step with one choice made otherwise: forward, backward and the optimiser; nothing is sent.

`benchmark compute` starts it, in a process of its own, and orders its steps.
"""

import sys
from itertools import repeat
from typing import assert_never

from app.machine.quick_imports import quick_imports
from app.tools.benchmark.choice import Change
from app.tools.benchmark.turns import in_turns

with quick_imports():
    import torch
    from torch.nn.functional import cross_entropy

    from app.settings import environment
    from app.settings.training import TrainingSettings
    from app.training import convolution, models
    from app.training.datasets import CLASSES, SIDE
    from app.training.datasets.prepared import channels_of
    from app.training.numerics import Numerics


class TrainingStep:
    """As a run takes it, on the same random images every time."""

    def __init__(self, training: TrainingSettings, seed: int, images: int) -> None:
        self._numerics = Numerics.of(training)
        self._model = models.build(training.model, seed, self._numerics.dtype)
        convolution.arrange(self._model, self._numerics.layout)
        self._images = torch.rand(images, channels_of(training.model), SIDE, SIDE, dtype=self._numerics.dtype)
        self._labels = torch.arange(images) % CLASSES
        self._training = training
        self._optimise_by(fused=True)

    def change(self, change: Change) -> None:
        """Do otherwise what ours does."""
        match change:
            case Change.NONE:
                pass
            case Change.FOREACH_SGD:
                self._optimise_by(foreach=True)
            case Change.LOOP_SGD:
                self._optimise_by(foreach=False)
            case Change.NO_PRODUCTS:
                convolution.arrange(self._model, self._numerics.layout._replace(products=False))
            case Change.FLUSH_DENORMALS:
                torch.set_flush_denormal(True)
            case _:
                assert_never(change)

    def _optimise_by(self, **way: bool) -> None:
        self._sgd = torch.optim.SGD(
            self._model.parameters(),
            lr=self._training.learning_rate,
            momentum=self._training.momentum,
            weight_decay=self._training.weight_decay,
            **way,
        )

    def take(self) -> None:
        """Train once."""
        self._sgd.zero_grad()
        images = self._images.contiguous(memory_format=self._numerics.layout.large)
        loss: torch.Tensor = cross_entropy(self._numerics.forward(self._model, images), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self._sgd.step()


def main() -> None:
    """Train with this change, on as many images, as the command line says."""
    change, images = sys.argv[1:]
    settings = environment.load()
    torch.set_num_threads(settings.place.threads_per_rank or 1)
    step = TrainingStep(settings.training, settings.averaging.seed, int(images))
    step.change(Change(change))
    for _ in in_turns(repeat(None)):
        step.take()


if __name__ == "__main__":
    main()
