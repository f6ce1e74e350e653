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
from app.errors import LockstepError
from app.evaluation import EVALUATIONS
from app.gradient_sync.contract import GradientSync
from app.models import parameters_sha256
from app.phases import PhaseClock
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
    loss_lines = LossLines(settings.log_every, job.say)
    began, step = time.monotonic(), 0

    for epoch in range(job.plan.epochs):
        augmentation = data.draw_augmentation(job.dataset, settings.seed, epoch)
        for global_batch in data.global_batches(job.dataset, job.plan.global_batch_size, settings.seed, epoch):
            communicator.begin_step(step)
            clock = PhaseClock()

            part = data.part_of(global_batch, cluster.rank, cluster.world_size)
            images, labels = data.load_batch(job.dataset, job.dataset.train, part.samples, augmentation)
            clock.mark("data")

            optimiser.zero_grad()
            replica.train(part.size > 0)  # a borrowed sample must leave the running statistics alone
            logits = replica(images)
            loss = cross_entropy(logits, labels)
            clock.mark("forward")

            (loss * part.weight).backward()  # type: ignore[no-untyped-call]
            clock.mark("backward")

            if sync.explicit:
                communicator.wait_for_peers()
                clock.mark("wait")
                sync.synchronise(parameters)
                clock.mark("sync")

            optimiser.step()
            clock.mark("optimiser")

            correct = int((logits.argmax(1) == labels).sum())
            record = _step_record(job, epoch, step, part, loss.item(), correct, clock)
            job.recorder.write(record)
            loss_lines.add(record)
            step += 1
            if step == job.plan.steps:
                break
        _evaluate(job, replica, epoch)
    return Finished(cluster.rank, step, time.monotonic() - began, parameters_sha256(job.model), restarts=0)


def _step_record(
    job: Job, epoch: int, step: int, part: data.RankPart, loss: float, correct: int, clock: PhaseClock
) -> Step:
    if not math.isfinite(loss):
        raise LockstepError(
            f"rank {job.cluster.rank}: the loss at step {step} is {loss}: the training has diverged. "
            f"Lower LEARNING_RATE, which is {job.settings.learning_rate:g}."
        )
    traffic = job.communicator.traffic
    return Step(
        rank=job.cluster.rank,
        epoch=epoch,
        step=step,
        samples=part.size,
        loss=loss if part.size else None,
        correct=correct if part.size else 0,
        seconds=clock.total,
        data_seconds=clock.seconds("data"),
        forward_seconds=clock.seconds("forward"),
        backward_seconds=clock.seconds("backward"),
        wait_seconds=clock.measured("wait"),
        sync_seconds=clock.measured("sync"),
        hidden_sync_seconds=None,
        optimiser_seconds=clock.seconds("optimiser"),
        bytes_sent=round(traffic.sent),
        bytes_received=round(traffic.received),
    )


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
