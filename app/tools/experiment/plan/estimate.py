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
from app.settings.fields import ModelName, Settings
from app.settings.link_rates import read_rate
from app.sync.contract import size_of
from app.tools.experiment.plan.trials import FIRST_SEED, Trial
from app.training import models
from app.training.convolution import arrange
from app.training.datasets import CLASSES, SIDE, source_of
from app.training.datasets.prepared import channels_of
from app.training.loop import make_plan
from app.training.numerics import Numerics

TRIED_IMAGES = 16
FORWARD_SHARE = 1 / 3  # of forward and backward together, in work

# What a run takes before its first step and after its last one: containers, imports, the join, the links' measurement,
# the report. Read off this project's own runs; it is put right as soon as a run has ended.
START_CPU_SECONDS, START_SECONDS = 4.0, 8.0


def expected_seconds(trial: Trial) -> float:
    """The whole run, containers and all."""
    asked = environment.of(trial.settings)
    ranks = asked.workers + 1
    source = source_of(asked.dataset_name)
    plan = make_plan(asked, asked.train_samples or source.train_samples, ranks)
    cpus = _cpus(asked, ranks)
    image = _image_cpu_seconds(asked.model, Numerics.of(asked))
    if asked.slow_rank is not None:
        image *= max(1, asked.slow_factor)
    step = plan.global_batch_size * image / cpus + _sync_seconds(asked, ranks)
    tests = 0 if asked.evaluate == "never" else plan.epochs * (asked.test_samples or source.test_samples)
    tests *= ranks if asked.evaluate == "every_rank" else 1
    start = START_SECONDS + START_CPU_SECONDS * ranks / cpus
    return start + plan.steps * step + tests * image * FORWARD_SHARE / cpus


def _cpus(asked: Settings, ranks: int) -> float:
    """What all ranks together can use."""
    each = min(asked.rank_cpus or float("inf"), asked.threads_per_rank or float("inf"))
    return min(len(look().cores), ranks * each)


def _sync_seconds(asked: Settings, ranks: int) -> float:
    """Of a step: of what is sent in place of the gradients, and only after each SYNC_EVERY-th one."""
    if asked.link_rate is None or ranks == 1:
        return 0.0
    rate = read_rate(asked.link_rate) / 8
    parameters = list(_model(asked.model).parameters())
    cost, size = sync.cost_of(asked, parameters), size_of(parameters, asked.wire_precision)
    whole = cost.seconds_at_least(size, [LinkSpeed(rate, rate)] * ranks)
    return whole / (asked.sync_every or 1)


@cache
def _model(name: ModelName) -> nn.Module:
    return models.build(name, FIRST_SEED)


@cache
def _image_cpu_seconds(name: ModelName, numerics: Numerics) -> float:
    """One image, forward and backward, on one CPU, in the run's own numbers: the quicker of two tries."""
    torch.set_num_threads(1)
    model = models.build(name, FIRST_SEED).to(numerics.dtype)
    arrange(model, numerics.layout)
    images = torch.randn(TRIED_IMAGES, channels_of(name), SIDE, SIDE, dtype=numerics.dtype)
    images = images.to(memory_format=numerics.layout.large)
    labels = torch.randint(CLASSES, (TRIED_IMAGES,))
    tries = []
    for _ in range(2):
        began = time.perf_counter()
        cross_entropy(numerics.forward(model, images), labels).backward()  # type: ignore[no-untyped-call]
        tries.append(time.perf_counter() - began)
    return min(tries) / TRIED_IMAGES
