"""How long a run will take, before any was made: from the speed of this machine, tried for a moment."""

import time
from functools import cache

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from app import sync
from app.cluster.wire.bandwidth import LinkSpeed
from app.machine.cpus import look
from app.settings import environment
from app.settings.settings import Settings
from app.settings.training import ModelName
from app.sync.contract import size_of
from app.tools.experiment.plan.trials import FIRST_SEED, Trial
from app.training import models
from app.training.convolution import arrange
from app.training.datasets import SIDE, source_of
from app.training.datasets.prepared import channels_of
from app.training.loop import make_plan
from app.training.numerics import Numerics

TRIED_IMAGES = 16
FORWARD_SHARE = 1 / 3  # of forward and backward together, in work

# What a run takes before its first step and after its last one: imports, the join, the links' measurement, the report,
# and its part of starting containers. Read off this project's own runs; it is put right as soon as a run has ended.
START_CPU_SECONDS, START_SECONDS = 4.0, 2.0


def expected_seconds(trial: Trial) -> float:
    """The whole run."""
    asked = environment.of(trial.settings)
    training, place, ranks = asked.training, asked.place, asked.place.workers + 1
    source = source_of(training.dataset)
    plan = make_plan(training, training.train_samples or source.train_samples, ranks)
    cpus_of_a_rank = min(place.rank_cpus or float("inf"), place.threads_per_rank or float("inf"))
    cpus = min(len(look().cores), ranks * cpus_of_a_rank)  # of all together
    image = _image_cpu_seconds(training.model, source.classes, Numerics.of(training)) / cpus
    image *= max(1, place.slow_factor) if place.slow_rank is not None else 1
    tests = plan.epochs * (training.test_samples or source.test_samples)
    tests *= {"never": 0, "every_rank": ranks}.get(training.evaluate, 1)
    step = plan.global_batch_size * image + (_sync_seconds(asked, ranks) if ranks > 1 else 0.0)
    start = START_SECONDS + START_CPU_SECONDS * ranks / cpus
    return start + plan.steps * step + tests * image * FORWARD_SHARE


def _sync_seconds(asked: Settings, ranks: int) -> float:
    """The least time of a step's messages on shaped links, averaged over SYNC_EVERY steps."""
    if not (bits := asked.links.of_any_rank.bits_per_second):
        return 0.0
    classes = source_of(asked.training.dataset).classes
    parameters, rate = list(_model(asked.training.model, classes).parameters()), bits / 8
    cost, size = sync.cost_of(asked.averaging, parameters), size_of(parameters, asked.averaging.wire_precision)
    return cost.seconds_at_least(size, [LinkSpeed(rate, rate)] * ranks) / (asked.averaging.sync_every or 1)


@cache
def _model(name: ModelName, classes: int) -> nn.Module:
    return models.build(name, FIRST_SEED, classes=classes)


@cache
def _image_cpu_seconds(name: ModelName, classes: int, numerics: Numerics) -> float:
    """One image, forward and backward, on one CPU, in the run's own numbers: the quicker of two tries."""
    torch.set_num_threads(1)
    model = models.build(name, FIRST_SEED, numerics.dtype, classes=classes)
    arrange(model, numerics.layout)
    images = torch.randn(TRIED_IMAGES, channels_of(name), SIDE, SIDE, dtype=numerics.dtype)
    images = images.to(memory_format=numerics.layout.large)
    labels = torch.randint(classes, (TRIED_IMAGES,))
    tries = []
    for _ in range(2):
        began = time.perf_counter()
        cross_entropy(numerics.forward(model, images), labels).backward()  # type: ignore[no-untyped-call]
        tries.append(time.perf_counter() - began)
    return min(tries) / TRIED_IMAGES
