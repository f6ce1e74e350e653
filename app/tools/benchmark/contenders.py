"""The contenders of `benchmark step`: Lockstep's training step, and the course script's in a process of its own."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from app.cluster.link.measured import speed_of
from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.errors import LockstepError
from app.records.journal import Recorder
from app.records.lines import Step
from app.records.manifest import Link, TrainingPlan
from app.settings.settings import Settings
from app.settings.training import TrainingSettings
from app.sync.contract import size_of
from app.tools.benchmark.child import Child, plain_environment
from app.tools.benchmark.setups import COURSE, TUNED, BenchmarkSetup
from app.training import batches
from app.training.datasets import CLASSES, SIDE, SOURCES
from app.training.datasets.prepared import DataSet, Split, channels_of
from app.training.loop import Job, Steps, make_job
from app.training.meter import StepMeter
from app.training.models import parameters_sha256
from app.training.usage import UsageSampler

SPARE_BATCHES = 8  # that the course script's workers load ahead: no epoch ends, and begins anew, within a round
COURSE_THREADS = 4

PHASES = ("data", "forward", "backward", "wait", "sync", "hidden_sync", "exposed_sync", "optimiser")


class Contender:
    """Trains when it is its turn. This one never does: it stands for the ranks that wait while rank 0 trains alone."""

    def wake(self) -> None: ...  # is not timed
    def run(self, steps: int) -> None: ...
    def end(self) -> None: ...

    def rest(self) -> float:
        """End a turn; returns the CPU seconds that it took."""
        return 0.0


@dataclass(frozen=True)
class SharedWork:
    """What all contenders train on."""

    dataset: DataSet
    folder: Path  # where the course script finds the same images
    global_batch: int


def noise(training: TrainingSettings, seed: int, samples: int) -> DataSet:
    """Random images and labels, the same on all ranks, with as many channels as the model takes."""
    source = SOURCES["shapes" if channels_of(training.model) == 3 else "digits"]
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (samples, SIDE, SIDE, source.channels), dtype=np.uint8)
    part = Split(images, random.integers(0, CLASSES, samples))
    return DataSet(source, part, part)


def prepare(settings: Settings, cluster: Cluster, steps: int, folder: Path) -> SharedWork:
    batch = settings.training.global_batch(cluster.world_size)
    dataset = noise(settings.training, settings.averaging.seed, (steps + SPARE_BATCHES) * batch)
    np.save(folder / "images.npy", dataset.train.images)
    np.save(folder / "labels.npy", dataset.train.labels)
    return SharedWork(dataset, folder, batch)


class House(Contender):
    """Lockstep's training step in this process, measured and recorded as in a run."""

    def __init__(self, job: Job, work: SharedWork, clock: RunClock, recorder: Recorder) -> None:
        self.job, self._clock, self._recorder = job, clock, recorder
        self.records: list[Step] = []
        self._meter = StepMeter(job.cluster, clock, job.communicator, job.statistics, job.sync)
        self._steps, self._number = Steps(job), 0
        self._batches = (
            indices
            for epoch in itertools.count()
            for indices in batches.global_batches(job.dataset, work.global_batch, job.settings.averaging.seed, epoch)
        )
        self._augmentation = batches.draw_augmentation(job.dataset, job.settings.averaging.seed, 0)

    def wake(self) -> None:
        self._cpu_seconds = time.process_time()
        interval = self.job.settings.measuring.usage_interval
        self._sampler = UsageSampler(self.job.cluster, self._clock, self._recorder, interval)
        self._sampler.__enter__()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            with self.job.communicator.watching(f"training with {self.job.settings.averaging.sync_mode}", waits=False):
                outcome = self._steps.take(self._number, next(self._batches), self._augmentation, self._meter)
            record = self._meter.record(0, outcome, self.job.sync.overlap())
            self._recorder.write(record)
            self.records.append(record)
            self._number += 1

    def rest(self) -> float:
        self._sampler.__exit__(None, None, None)
        return time.process_time() - self._cpu_seconds

    def figures(self, first: int) -> dict[str, Any]:
        """Means over the steps from `first` on. A phase that the steps lack is None."""
        records = self.records[first:]
        phases: dict[str, float | None] = {}
        for phase in PHASES:
            values = [getattr(record, f"{phase}_seconds") for record in records]
            phases[phase] = None if None in values else mean(values)
        return {
            "phases": phases,
            "bytes_sent": mean(record.bytes_sent for record in records),
            "parameters_sha256": parameters_sha256(self.job.model),
        }

    def wire_seconds(self, links: Sequence[Link] | None) -> float | None:
        """The least time of a step's messages on these links; None if they were not measured."""
        if not links:
            return None
        parameters = list(self.job.model.parameters())
        size = size_of(parameters, self.job.settings.averaging.wire_precision)
        return self.job.sync.cost_for(parameters).seconds_at_least(size, [speed_of(link) for link in links])


class Course(Contender):
    """The course script, in a process of its own with its own group."""

    def __init__(
        self, setup: BenchmarkSetup, settings: Settings, cluster: Cluster, work: SharedWork, port: int | None
    ) -> None:
        tuned, nodes = setup.name == TUNED, 1 if setup.alone else cluster.world_size
        arguments = {
            "mode": "one_node" if setup.alone else COURSE.get(setup.name, "ddp"),
            "model": settings.training.model,
            "data": work.folder,
            "batch-size": work.global_batch,
            "num-nodes": nodes,
            "rank": cluster.rank,
            "master-ip": cluster.members[0].address,
            **({} if port is None else {"port": port}),
            "threads": cluster.me.threads if tuned else COURSE_THREADS,
        }
        self._cluster, self._together = cluster, not setup.alone
        self._child = Child(
            f"rank {cluster.rank}: the course script {setup.name}",
            "app.tools.benchmark.tuned" if tuned else "app.tools.benchmark.course",
            [text for name, value in arguments.items() for text in (f"--{name}", str(value))],
            work.folder / f"{setup.name}.log",
            settings.place.peer_timeout,
            plain_environment(),
        )

    def wait_until_ready(self) -> None:
        """Stop it only once it is ready on all ranks: until then, rank 0's process answers those that still join."""
        self._listen(self._child.wait)
        if self._together:
            self._cluster.exchange("benchmark/ready", None)
        self._child.rest()

    def wake(self) -> None:
        self._cpu_seconds = self._child.cpu_seconds()
        self._child.wake()

    def run(self, steps: int) -> None:
        self._listen(lambda: self._child.run(steps))

    def rest(self) -> float:
        self._child.rest()
        return self._child.cpu_seconds() - self._cpu_seconds

    def end(self) -> None:
        self._child.end()

    def _listen(self, listen: Callable[[], None]) -> None:
        try:
            listen()
        except LockstepError:
            if not self._child.killed:  # it may have failed only because another rank's has gone
                verdict = self._cluster.detector.find_lost()
                if verdict.lost:
                    raise self._cluster.failure(verdict) from None
            raise


def job_of(setup: BenchmarkSetup, settings: Settings, cluster: Cluster, work: SharedWork, steps: int) -> Job:
    """A job as in a run, but on these images. All ranks must call this together."""
    plan = TrainingPlan(1, steps, steps, work.global_batch)
    job = replace(make_job(setup.settings(settings), cluster, work.dataset, lambda _: None), plan=plan)
    # Alone: a group of one, whose errors still name the others.
    return replace(job, cluster=replace(cluster, members=cluster.members[:1])) if setup.alone else job
