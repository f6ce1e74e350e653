"""What measuring costs a training step, call by call, and as a ratio of whole steps. docs/measuring.md has a result.

Started by torchrun, which gives each process its rank. The accounts of traffic are part of every step, because the
communicator keeps them in any case. `scripts/benchmark sync` shows what the hook in DDP costs.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator, Traffic
from app.machine.say import say
from app.records.journal import Recorder
from app.records.lines import Record, Usage
from app.records.manifest import TrainingPlan
from app.settings import environment
from app.settings.settings import Settings
from app.tools.benchmark.contenders import noise
from app.training import batches
from app.training.loop import Steps, make_job
from app.training.meter import StepMeter
from app.training.usage import UsageSampler

PAIRS, WARM_UP = 12, 2
MARKS, RECORD = "counters and marks", "counters and record"
ACCOUNTS, BARRIER, USAGE = "accounts of traffic", "timed barrier", "usage"

Costs = dict[str, float]  # seconds of a step, by part
taken: defaultdict[str, list[float]] = defaultdict(list)  # the backend's threads append too, which is thread-safe


class NoMeter:
    """Only reports the step to the communicator, whose errors name it."""

    def __init__(self, communicator: Communicator) -> None:
        self.begin = communicator.begin_step

    def mark(self, phase: str) -> None: ...
    def wait_for_peers(self) -> None: ...


class TimedSampler(UsageSampler):
    samples, cpu_seconds = 0, 0.0

    def _sample(self) -> None:
        super()._sample()
        self.cpu_seconds = time.thread_time()  # since the thread began

    def _take(self) -> Usage:
        self.samples += 1
        return super()._take()


def timed[**Given, Result](part: str, call: Callable[Given, Result]) -> Callable[Given, Result]:
    def run(*given: Given.args, **named: Given.kwargs) -> Result:
        began = time.perf_counter()
        result = call(*given, **named)
        taken[part].append(time.perf_counter() - began)
        return result

    return run


def measure(settings: Settings, cluster: Cluster, pairs: int) -> tuple[list[float], list[float], list[list[Costs]]]:
    """Seconds of each step with and without measuring, in alternating order, and the parts' costs by rank."""
    batch, interval = settings.training.global_batch(cluster.world_size), settings.measuring.usage_interval
    job = make_job(settings, cluster, noise(settings.training, settings.averaging.seed, batch), lambda _: None)
    job = replace(job, plan=TrainingPlan(1, 2 * (WARM_UP + pairs), 2 * (WARM_UP + pairs), batch))
    clock = RunClock(cluster, Communicator(cluster, "while clocks were compared"))
    meter = StepMeter(cluster, clock, job.communicator, job.statistics, job.sync)
    no_meter = NoMeter(job.communicator)
    steps, gate, images = Steps(job), Communicator(cluster, "in the benchmark"), np.arange(batch)
    augmentation = batches.draw_augmentation(job.dataset, settings.averaging.seed, 0)

    def take(meter: StepMeter | NoMeter, write: Callable[[Record], None] | None = None) -> float:
        gate.wait_for_peers()
        began = time.monotonic()
        with job.communicator.watching(f"training with {settings.averaging.sync_mode}", waits=False):
            outcome = steps.take(len(with_measuring) + len(without), images, augmentation, meter)
        if isinstance(meter, StepMeter) and write:
            write(meter.record(0, outcome, job.sync.overlap()))
        gate.wait_for_peers()  # every rank takes the slowest one's time
        return time.monotonic() - began

    parts = (
        *((meter, name, MARKS) for name in ("begin", "mark")),
        (job.communicator, "wait_for_peers", BARRIER),
        (meter, "record", RECORD),
        *((Traffic, name, ACCOUNTS) for name in ("begin", "end")),
    )
    for owner, name, part in parts:
        setattr(owner, name, timed(part, getattr(owner, name)))
    with_measuring: list[float] = []
    without: list[float] = []
    costs: list[Costs] = []
    with TemporaryDirectory() as folder, Recorder(Path(folder), cluster.rank) as recorder:
        write = timed(RECORD, recorder.write)
        for number in range(WARM_UP + pairs):
            if number % 2 == 0:
                without.append(take(no_meter))
            taken.clear()
            with TimedSampler(cluster, clock, recorder, interval) as sampler:
                with_measuring.append(take(meter, write))
            usage = sampler.cpu_seconds / sampler.samples * with_measuring[-1] / interval
            costs.append({part: sum(seconds) for part, seconds in taken.items()} | {USAGE: usage})
            if number % 2 == 1:
                without.append(take(no_meter))
    return with_measuring[WARM_UP:], without[WARM_UP:], cluster.exchange("benchmark/overhead", costs[WARM_UP:])


def together(costs: list[list[Costs]]) -> Costs:
    """Of each part, the median over the steps on the rank where it costs most.

    At a barrier, a rank mostly waits for its peers, for which it would wait a moment later without one. The barrier's
    own cost is how long the last rank to arrive waits.
    """
    found = {part: max(median(step[part] for step in steps) for steps in costs) for part in costs[0][0]}
    if BARRIER in found:
        found[BARRIER] = median(min(step[BARRIER] for step in ranks) for ranks in zip(*costs, strict=True))
    return found


def main() -> None:
    settings = environment.load()
    cluster = join(settings, identify(settings.place), say, [])
    torch.set_num_threads(cluster.me.threads)
    with cluster.until_the_end():
        measured, unmeasured, costs = measure(settings, cluster, PAIRS)
        if cluster.rank == 0:
            step, parts = median(unmeasured), together(costs)
            print(f"{settings.training.model}, {settings.averaging.sync_mode}: {step:.4f} s without measuring")
            for part, seconds in (parts | {"all": sum(parts.values())}).items():
                print(f"{part:<22}{seconds * 1e3:>9.3f} ms {seconds / step:>9.3%}")
            ratios = [one / other for one, other in zip(measured, unmeasured, strict=True)]
            print(f"step with / without: {median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
