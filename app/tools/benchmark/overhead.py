"""`benchmark overhead`: what measuring costs a training step, call by call, and as a ratio of whole steps.

The ratio leaves out the accounts of traffic, which the communicator keeps in any case. Both leave out what a hook of
DDP's costs besides its account: `benchmark sync` compares `ddp` with DDP as it comes.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from app.cluster.members import Cluster
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator, Traffic
from app.machine.say import Say
from app.records.journal import Recorder
from app.records.lines import Usage
from app.records.manifest import TrainingPlan
from app.settings.settings import Settings
from app.tools.benchmark import results
from app.tools.benchmark.images import noise
from app.tools.benchmark.ratios import Middle
from app.training import batches
from app.training.loop import Job, Steps, make_job
from app.training.meter import Meter, StepMeter, StepOutcome
from app.training.usage import UsageSampler

ROUNDS = 12
WARM_UP = 2

MARKS, ACCOUNTS, BARRIER = "counters and marks", "accounts of traffic", "timed barrier"
RECORD, USAGE = "counters and record", "usage"
PARTS = (MARKS, ACCOUNTS, BARRIER, RECORD, USAGE)

Costs = dict[str, float]  # seconds of a step by part; parts that the step did not have are missing


class Pair(NamedTuple):
    """A step with all measuring and one without any, in seconds."""

    measured: float
    unmeasured: float
    costs: Costs  # of measuring, on this rank


class NoMeter:
    """Measures nothing. The communicator still learns the step, because its errors name it."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def begin(self, step: int) -> None:
        """Count the wire's bytes from zero."""
        self._communicator.begin_step(step)

    def mark(self, phase: str) -> None:
        """Take no time."""

    def wait_for_peers(self) -> None:
        """Wait for nobody."""


class TimedTraffic(Traffic):
    """Accounts that time their own keeping."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[float] = []  # the backend's threads append too, which is thread-safe

    def begin(self, sent: float, received: float) -> None:
        """Count an operation that starts now."""
        began = time.perf_counter()
        super().begin(sent, received)
        self.taken.append(time.perf_counter() - began)

    def end(self) -> None:
        """Count an operation that ends now."""
        began = time.perf_counter()
        super().end()
        self.taken.append(time.perf_counter() - began)


class TimedMeter:
    """Passes everything on to a run's own meter, and times each call."""

    def __init__(self, job: Job, recorder: Recorder, clock: RunClock) -> None:
        self._job, self._recorder = job, recorder
        self._meter = StepMeter(job.cluster, clock, job.communicator, job.statistics, job.sync)

    def begin(self, step: int) -> None:
        """A step begins."""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._timed(MARKS, lambda: self._meter.begin(step))
        self._traffic = []
        for communicator in (self._job.communicator, self._job.statistics):
            if communicator is not None:
                communicator.traffic = traffic = TimedTraffic()
                self._traffic.append(traffic)

    def mark(self, phase: str) -> None:
        """A phase has ended."""
        self._timed(MARKS, lambda: self._meter.mark(phase))

    def wait_for_peers(self) -> None:
        """This rank's gradients are ready."""
        self._timed(BARRIER, self._meter.wait_for_peers)

    def write(self, outcome: StepOutcome) -> None:
        """The step's record, as the training loop writes it."""
        record = self._timed(RECORD, lambda: self._meter.record(0, outcome, self._job.sync.overlap()))
        self._timed(RECORD, lambda: self._recorder.write(record))

    def costs(self) -> Costs:
        """The costs of the step that was written last."""
        return {**self._seconds, ACCOUNTS: sum(sum(traffic.taken) for traffic in self._traffic)}

    def _timed[Result](self, part: str, call: Callable[[], Result]) -> Result:
        began = time.perf_counter()
        result = call()
        self._seconds[part] += time.perf_counter() - began
        return result


class TimedSampler(UsageSampler):
    """A sampler that says, after its end, how much CPU time its thread has used."""

    samples = 0
    cpu_seconds = 0.0

    def _sample(self) -> None:
        super()._sample()
        self.cpu_seconds = time.thread_time()  # since the thread began

    def _take(self) -> Usage:
        self.samples += 1
        return super()._take()

    def costs(self, interval: float, seconds: float) -> Costs:
        """The cost of sampling once per interval, over so many seconds."""
        return {USAGE: self.cpu_seconds / self.samples * seconds / interval}


class OverheadBench:
    """Trains on one batch over and over, with all measuring or with none."""

    def __init__(self, settings: Settings, cluster: Cluster, recorder: Recorder) -> None:
        self._job, self._recorder = _job(settings, cluster), recorder
        self._clock = RunClock(cluster, Communicator(cluster, "while clocks were compared"))
        self._steps, self._step = Steps(self._job), 0
        self._meter, self._no_meter = TimedMeter(self._job, recorder, self._clock), NoMeter(self._job.communicator)
        self._batch = np.arange(len(self._job.dataset.train))
        self._augmentation = batches.draw_augmentation(self._job.dataset, settings.averaging.seed, 0)
        self._gate = Communicator(cluster, "in the benchmark")

    def pair(self, measured_first: bool) -> Pair:
        """One step of each kind. The ranks wait for each other before and after each step."""
        if measured_first:
            measured, costs = self._measured()
            return Pair(measured, self._unmeasured(), costs)
        unmeasured = self._unmeasured()
        measured, costs = self._measured()
        return Pair(measured, unmeasured, costs)

    def _measured(self) -> tuple[float, Costs]:
        job, interval = self._job, self._job.settings.measuring.usage_interval
        with TimedSampler(job.cluster, self._clock, self._recorder, interval) as sampler:
            seconds = self._seconds(lambda: self._meter.write(self._take(self._meter)))
        return seconds, self._meter.costs() | sampler.costs(interval, seconds)

    def _unmeasured(self) -> float:
        return self._seconds(lambda: self._take(self._no_meter))

    def _seconds(self, run: Callable[[], object]) -> float:
        self._gate.wait_for_peers()
        began = time.monotonic()
        run()
        self._gate.wait_for_peers()  # every rank takes the slowest one's time
        return time.monotonic() - began

    def _take(self, meter: Meter) -> StepOutcome:
        self._step += 1
        with self._job.communicator.watching(f"training with {self._job.settings.averaging.sync_mode}", waits=False):
            return self._steps.take(self._step - 1, self._batch, self._augmentation, meter)


def compare_measuring(settings: Settings, cluster: Cluster, say: Say) -> None:
    """Time pair after pair, in alternating order, so that neither kind of step gets the better moments."""
    pairs = []
    with TemporaryDirectory() as folder, Recorder(Path(folder), cluster.rank) as recorder:
        bench = OverheadBench(settings, cluster, recorder)
        for number in range(WARM_UP + ROUNDS):
            pairs.append(bench.pair(measured_first=number % 2 == 1))
            if cluster.rank == 0:
                say(f"pair {number + 1} of {WARM_UP + ROUNDS}{', warm-up' if number < WARM_UP else ''}")
    pairs = pairs[WARM_UP:]
    costs = cluster.exchange("benchmark/overhead", [pair.costs for pair in pairs])
    if cluster.rank == 0:
        say(
            f"\n{settings.training.model}, {settings.averaging.sync_mode}, {cluster.world_size} ranks, "
            f"{settings.training.global_batch(cluster.world_size)} images: a step takes "
            f"{median(pair.unmeasured for pair in pairs):.4f} s without measuring (median of {ROUNDS})"
        )
        together = _together(costs)
        say(table(pairs, together, settings.measuring.usage_interval))
        ratio = Middle.of([pair.measured / pair.unmeasured for pair in pairs])
        outcome = {"pairs": [pair._asdict() for pair in pairs], "costs": together, "ratio": vars(ratio)}
        results.write("overhead", outcome, say, settings.values(), cluster)


def _together(costs: Sequence[Sequence[Costs]]) -> Costs:
    """A typical step's costs, from all ranks' steps: for each part, those of the rank where it costs most.

    At a barrier, a rank mostly waits for its peers; without one, it would wait for them a moment later. The barrier's
    own cost is how long the last rank to arrive waits, in each step.
    """
    parts = [part for part in PARTS if part in costs[0][0]]
    together = {part: max(median(step[part] for step in steps) for steps in costs) for part in parts}
    if BARRIER in parts:
        together[BARRIER] = median(min(step[BARRIER] for step in ranks) for ranks in zip(*costs, strict=True))
    return together


def table(pairs: Sequence[Pair], costs: Costs, interval: float) -> str:
    """The cost of each part of measuring; the median and the range of the pairs' ratios."""
    step = median(pair.unmeasured for pair in pairs)
    lines = [f"{'measuring':<24} {'ms/step':>9} {'of the step':>12}"]
    for part in PARTS:
        name = f"{part}, every {interval:g} s" if part == USAGE else part
        lines.append(_row(name, costs[part], step) if part in costs else f"{name:<24} {'-':>9} {'-':>12}")
    lines.append(_row("all", sum(costs.values()), step))
    ratios = [pair.measured / pair.unmeasured for pair in pairs]
    lines.append(
        f"step with measuring / step without: median {median(ratios):.3f} "
        f"({min(ratios):.2f} to {max(ratios):.2f} over {len(pairs)} pairs)"
    )
    return "\n".join(lines)


def _row(name: str, seconds: float, step: float) -> str:
    return f"{name:<24} {seconds * 1e3:>9.3f} {seconds / step:>12.3%}"


def _job(settings: Settings, cluster: Cluster) -> Job:
    """A job as in a run, but without a prepared set, which a benchmark's ranks do not have."""
    batch, steps = settings.training.global_batch(cluster.world_size), 2 * (WARM_UP + ROUNDS)
    job = make_job(settings, cluster, noise(settings.training, settings.averaging.seed, batch), lambda _: None)
    return replace(job, plan=TrainingPlan(1, steps, steps, batch))
