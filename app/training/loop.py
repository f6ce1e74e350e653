"""The training loop, and the plan that it follows."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator
from app.machine.say import Say, reporting
from app.records.journal import Recorder
from app.records.lines import Finished, Step, training_score
from app.records.manifest import TrainingPlan
from app.settings.settings import Settings
from app.settings.training import MOST_EPOCHS, MemoryFormat, TrainingSettings
from app.sync import from_settings
from app.sync.contract import GradientSync
from app.sync.periodic import Periodic
from app.training import batches, models, state
from app.training.batch_norm import LocalBatchNorm2d, SynchronisedBatchNorm2d
from app.training.batches import Augmentation, Indices
from app.training.checkpoint.keeper import Found
from app.training.checkpoint.state import State
from app.training.convolution import arrange
from app.training.datasets.prepared import DataSet
from app.training.evaluation import EVALUATIONS
from app.training.mean_check import check_for
from app.training.meter import Meter, StepMeter, StepOutcome
from app.training.models import buffers_sha256, parameters_sha256
from app.training.numerics import Numerics
from app.training.optimiser import LearningRateSchedule, Optimiser
from app.training.saving import Saving
from app.training.straggler import Pace, pace_of


def make_plan(training: TrainingSettings, samples: int, world_size: int) -> TrainingPlan:
    global_batch_size = training.global_batch(world_size)
    steps_per_epoch = math.ceil(samples / global_batch_size)
    whole = training.epochs * steps_per_epoch
    steps = min(whole, training.max_steps or whole)
    return TrainingPlan(math.ceil(steps / steps_per_epoch), steps, steps_per_epoch, global_batch_size)


def too_few_epochs(training: TrainingSettings, plan: TrainingPlan) -> str | None:
    """A warning if a run ends before MAX_STEPS."""
    requested = training.max_steps
    if requested is None or requested <= plan.steps:
        return None
    enough = min(math.ceil(requested / plan.steps_per_epoch), MOST_EPOCHS)
    return (
        f"MAX_STEPS={requested} exceeds the run: EPOCHS={training.epochs} ends it after {plan.steps} steps, "
        f"{plan.steps_per_epoch} per epoch. For more, set EPOCHS={enough}."
    )


MEMORY_FORMAT, THREADS = "memory_format", "threads"  # values of a state that are needed before its model is built


@dataclass(frozen=True)
class ResumePoint:
    """The point at which a run resumes, by default its beginning."""

    found: Found | None = None  # None for a fresh start
    epoch_so_far: Sequence[Step] = ()  # this rank's records of the epoch's earlier steps


FRESH_START = ResumePoint()


@dataclass(frozen=True)
class Job:
    """The inputs of the training loop."""

    settings: Settings
    plan: TrainingPlan
    cluster: Cluster
    communicator: Communicator
    statistics: Communicator | None  # carries batch normalisation's statistics, if it is synchronised
    sync: GradientSync
    pace: Pace
    model: nn.Module
    numerics: Numerics
    dataset: DataSet
    say: Say


def make_job(
    settings: Settings, cluster: Cluster, dataset: DataSet, say: Say, memory_format: MemoryFormat | None = None
) -> Job:
    """Build the model and everything that trains it. All ranks call this together."""
    communicator = Communicator(cluster)
    statistics = communicator.apart() if settings.training.batch_norm == "synchronised" else None
    batch_norm = LocalBatchNorm2d if statistics is None else partial(SynchronisedBatchNorm2d, communicator=statistics)
    numerics = Numerics.of(settings.training, memory_format)
    classes = dataset.source.classes
    model = models.build(settings.training.model, settings.averaging.seed, numerics.dtype, batch_norm, classes)
    arrange(model, numerics.layout)
    return Job(
        settings,
        make_plan(settings.training, len(dataset.train), cluster.world_size),
        cluster,
        communicator,
        statistics,
        from_settings(settings.averaging, communicator),
        pace_of(settings.place, cluster.rank, model, statistics),
        model,
        numerics,
        dataset,
        say,
    )


def train(
    job: Job, recorder: Recorder, clock: RunClock, saving: Saving | None = None, resume_point: ResumePoint = FRESH_START
) -> Finished:
    """Train to the end of the plan, evaluate after each epoch, and save checkpoints."""
    if saving:
        state.check(job.model)
    plan = job.plan
    steps = Steps(job)
    meter = StepMeter(job.cluster, clock, job.communicator, job.statistics, job.sync)
    console = Console(job.settings.averaging.log_every, job.say, resume_point.epoch_so_far)
    if job.cluster.world_size > 1:
        job.say(_whose_losses(job))
    began, step = time.monotonic(), 0
    if resume_point.found:
        step = resume_point.found.step
        steps.restore(resume_point.found)

    while step < plan.steps:
        epoch, taken = divmod(step, plan.steps_per_epoch)
        last = min((epoch + 1) * plan.steps_per_epoch, plan.steps)
        augmentation = batches.draw_augmentation(job.dataset, job.settings.averaging.seed, epoch)
        for global_batch in islice(batches_of(job, epoch), taken, last - epoch * plan.steps_per_epoch):
            outcome = steps.take(step, global_batch, augmentation, meter)
            record = meter.record(epoch, outcome, job.sync.overlap())
            recorder.write(record)
            console.add(record)
            step += 1
            if saving and step < last:
                saving.between(step, steps.state)
        console.end_epoch()
        _evaluate(job, recorder, clock, steps.replica, epoch)
        if saving:
            saving.between(step, steps.state)
    return Finished(
        job.cluster.rank,
        step,
        time.monotonic() - began,
        parameters_sha256(job.model),
        restarts=0,
        buffers_sha256=buffers_sha256(job.model),
    )


def batches_of(job: Job, epoch: int) -> Iterator[Indices]:
    settings = job.settings
    order = settings.training.order_of(epoch)
    return batches.global_batches(job.dataset, job.plan.global_batch_size, settings.averaging.seed, order)


class Steps:
    """Executes training steps, and saves and restores their state."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._parameters = list(job.model.parameters())
        schedule = LearningRateSchedule.of(job.settings.training, job.plan.global_batch_size, job.plan.steps)
        self._optimiser = Optimiser(self._parameters, job.settings.training, schedule)
        # Before `attach`, because it must see each gradient before the mode does.
        self._check_mean = check_for(job.sync, job.settings.averaging, job.cluster, job.model)
        self.replica = job.sync.attach(job.model)

    def state(self) -> State:
        """The state on which the next step depends, including the memory format and the number of threads."""
        taken = state.take(self._job.model, self._optimiser, self._job.sync)
        own = {MEMORY_FORMAT: self._job.numerics.memory_format, THREADS: torch.get_num_threads()}
        return State(taken.tensors, {**taken.numbers, **own})

    def restore(self, found: Found) -> None:
        """Restore a state, after a warm-up step for a mode whose first step differs from all others."""
        if self._job.sync.settles and found.step > 0:
            self._warm_up()
        state.restore(found.state, self._job.model, self._optimiser, self._job.sync)

    def _warm_up(self) -> None:
        """Run forward and backward without an update, because the mode's first step differs from all others."""
        samples = next(batches_of(self._job, epoch=0))
        images, labels = batches.load_batch(
            self._job.dataset,
            self._job.dataset.train,
            batches.part_of(samples, self._job.cluster.rank, self._job.cluster.world_size),
            numerics=self._job.numerics,
        )
        self.replica.train()
        logits = self._job.numerics.forward(self.replica, images)
        cross_entropy(logits, labels, reduction="sum").backward()  # type: ignore[no-untyped-call]

    def take(self, step: int, global_batch: Indices, augmentation: Augmentation | None, meter: Meter) -> StepOutcome:
        """Train on this rank's part of the batch."""
        cluster, sync, pace, numerics = self._job.cluster, self._job.sync, self._job.pace, self._job.numerics
        dataset = self._job.dataset
        meter.begin(step)
        pace.begin()

        samples = batches.part_of(global_batch, cluster.rank, cluster.world_size)
        images, labels = batches.load_batch(dataset, dataset.train, samples, augmentation, numerics)
        pace.keep()
        meter.mark("data")

        self._optimiser.zero_grad()
        self.replica.train()
        logits = numerics.forward(self.replica, images)
        loss_sum = cross_entropy(logits, labels, reduction="sum")
        pace.keep()
        meter.mark("forward")

        # With this weight, the mean over the ranks is the mean over the global batch, however uneven the parts.
        (loss_sum * (cluster.world_size / len(global_batch))).backward()  # type: ignore[no-untyped-call]
        meter.mark("backward")

        if sync.explicit:
            meter.wait_for_peers()
            sync.synchronise(self._parameters)
            meter.mark("sync")
        self._check_mean()

        pace.begin()
        update = self._optimiser.step(step)
        pace.keep()
        meter.mark("optimiser")

        if isinstance(sync, Periodic):
            self._move_parameters(sync, sync.is_due(step, last=step + 1 == self._job.plan.steps), meter)
        return StepOutcome(len(samples), loss_sum.item(), int((logits.argmax(1) == labels).sum()), update)

    @staticmethod
    def _move_parameters(periodic: Periodic, due: bool, meter: Meter) -> None:
        """Mark both phases in every step, so that steps without averaging record a duration of zero."""
        if due:
            meter.wait_for_peers()
            periodic.move_parameters()
        else:
            meter.mark("wait")
        meter.mark("sync")


def _evaluate(job: Job, recorder: Recorder, clock: RunClock, replica: nn.Module, epoch: int) -> None:
    if evaluate := EVALUATIONS[job.settings.training.evaluate]:
        began = time.monotonic()
        with reporting("evaluating the test set", job.say) if job.cluster.rank == 0 else nullcontext():
            evaluation = evaluate(replica, job.numerics, job.dataset, job.cluster, job.communicator, epoch)
        taken = time.monotonic() - began
        recorder.write(replace(evaluation, at_seconds=clock.since(began), seconds=taken))
        job.say(_score_line("Test set", evaluation.loss, evaluation.correct, evaluation.samples))


class Console:
    """Prints this rank's console lines in the course's form: the loss every LOG_EVERY steps, the score per epoch."""

    def __init__(self, log_every: int, say: Say, epoch_so_far: Sequence[Step] = ()) -> None:
        self._log_every, self._say = log_every, say
        self._seconds: list[float] = []
        self._epoch = list(epoch_so_far)

    def add(self, record: Step) -> None:
        """Add a step. Every LOG_EVERY steps, print its number, its loss and the mean seconds since the last line."""
        self._seconds.append(record.seconds)
        self._epoch.append(record)
        if record.step % self._log_every == 0:
            loss = "no sample" if record.loss is None else f"{record.loss:.4f}"
            self._say(f"{record.step} loss: {loss} elapsed time: {sum(self._seconds) / len(self._seconds):.3f}")
            self._seconds.clear()

    def end_epoch(self) -> None:
        """Print the score on the epoch's training samples, each as classified at its step."""
        if score := training_score(self._epoch):
            self._say(_score_line("Training set", score.loss, score.correct, score.samples))
        self._epoch.clear()


def _whose_losses(job: Job) -> str:
    """The lines below have the course's form, which has no place for it."""
    cluster, whole = job.cluster, job.plan.global_batch_size
    part = len(range(cluster.rank, whole, cluster.world_size))
    rest = len(job.dataset.train) % whole
    shorter = f" The last batch of an epoch has {rest} samples." if rest else ""
    return (
        f"Losses and the training score below are of rank {cluster.rank}'s part of each batch: {part} of {whole} "
        f"samples.{shorter} The report has the loss of the global batch."
    )


def _score_line(part: str, loss: float, correct: int, samples: int) -> str:
    return f"{part}: Average loss: {loss:.4f}, Accuracy: {correct}/{samples} ({correct / samples:.0%})"
