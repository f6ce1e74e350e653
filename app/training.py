"""The training loop, and the plan that it follows."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from app import data
from app.cluster import Cluster
from app.communicator import Communicator
from app.datasets.prepared import DataSet
from app.evaluation import EVALUATIONS
from app.gradient_sync.contract import GradientSync
from app.meter import StepMeter
from app.models import parameters_sha256
from app.records import Finished, Recorder, Step
from app.settings import Settings


@dataclass(frozen=True)
class Plan:
    """What a run will do, known before it starts."""

    epochs: int  # the last one may be cut short by MAX_STEPS
    steps: int
    steps_per_epoch: int
    global_batch_size: int


def make_plan(settings: Settings, samples: int, world_size: int) -> Plan:
    """Count the steps."""
    global_batch_size = settings.global_batch(world_size)
    steps_per_epoch = math.ceil(samples / global_batch_size)
    whole = settings.epochs * steps_per_epoch
    steps = min(whole, settings.max_steps or whole)
    return Plan(math.ceil(steps / steps_per_epoch), steps, steps_per_epoch, global_batch_size)


@dataclass(frozen=True)
class Job:
    """Everything that the loop works with."""

    settings: Settings
    plan: Plan
    cluster: Cluster
    communicator: Communicator
    statistics: Communicator | None  # what batch normalisation exchanges, where it is synchronised
    sync: GradientSync
    model: nn.Module
    dataset: DataSet
    recorder: Recorder
    say: Callable[[str], None]


def train(job: Job) -> Finished:
    """Train to the end of the plan, with an evaluation after each epoch."""
    settings, cluster, communicator, sync = job.settings, job.cluster, job.communicator, job.sync
    parameters = list(job.model.parameters())
    optimiser = torch.optim.SGD(
        parameters, lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    replica = sync.attach(job.model)
    dtype = parameters[0].dtype
    meter = StepMeter(cluster, communicator, job.statistics)
    loss_lines = LossLines(settings.log_every, job.say)
    began, step = time.monotonic(), 0

    for epoch in range(job.plan.epochs):
        augmentation = data.draw_augmentation(job.dataset, settings.seed, epoch)
        for global_batch in data.global_batches(job.dataset, job.plan.global_batch_size, settings.seed, epoch):
            meter.begin(step)

            samples = data.part_of(global_batch, cluster.rank, cluster.world_size)
            images, labels = data.load_batch(job.dataset, job.dataset.train, samples, augmentation, dtype)
            meter.mark("data")

            optimiser.zero_grad()
            replica.train()
            logits = replica(images)
            loss_sum = cross_entropy(logits, labels, reduction="sum")
            meter.mark("forward")

            # So weighted, the mean over the ranks is the mean over the global batch, however uneven the parts.
            (loss_sum * (cluster.world_size / len(global_batch))).backward()  # type: ignore[no-untyped-call]
            meter.mark("backward")

            if sync.explicit:
                communicator.wait_for_peers()
                meter.mark("wait")
                sync.synchronise(parameters)
                meter.mark("sync")

            optimiser.step()
            meter.mark("optimiser")

            correct = int((logits.argmax(1) == labels).sum())
            record = meter.record(epoch, len(samples), loss_sum.item(), correct)
            job.recorder.write(record)
            loss_lines.add(record)
            step += 1
            if step == job.plan.steps:
                break
        _evaluate(job, replica, epoch)
    return Finished(cluster.rank, step, time.monotonic() - began, parameters_sha256(job.model), restarts=0)


def _evaluate(job: Job, replica: nn.Module, epoch: int) -> None:
    if evaluate := EVALUATIONS[job.settings.evaluate]:
        evaluation = evaluate(replica, job.dataset, job.cluster, job.communicator, epoch)
        job.recorder.write(evaluation)
        job.say(
            f"Test set: Average loss: {evaluation.loss:.4f}, "
            f"Accuracy: {evaluation.correct}/{evaluation.samples} ({evaluation.accuracy:.0%})"
        )


class LossLines:
    """The lines that the course knows: step, this rank's loss, seconds per step since the line before."""

    def __init__(self, every: int, say: Callable[[str], None]) -> None:
        self._every, self._say = every, say
        self._seconds: list[float] = []

    def add(self, record: Step) -> None:
        """Take a step; print at every so many."""
        self._seconds.append(record.seconds)
        if record.step % self._every == 0:
            loss = "no sample" if record.loss is None else f"{record.loss:.4f}"
            self._say(f"{record.step} loss: {loss} elapsed time: {sum(self._seconds) / len(self._seconds):.3f}")
            self._seconds.clear()
