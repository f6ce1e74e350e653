"""`benchmark step`: whole training steps of each configuration, Lockstep's and the course script's, interleaved."""

import socket
import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from app.cluster.members import Cluster
from app.cluster.wire.bandwidth import CENTRE
from app.cluster.wire.clock import RunClock
from app.cluster.wire.communicator import Communicator
from app.machine.cpus import fair_share
from app.machine.folders import scratch_in
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.records.journal import Recorder
from app.records.manifest import Link
from app.settings.settings import Settings
from app.tools.benchmark import table
from app.tools.benchmark.bounds import MatrixProduct, flops_per_image
from app.tools.benchmark.choice import StepChoice
from app.tools.benchmark.contenders import Contender, Course, House, job_of, prepare
from app.tools.benchmark.ratios import Middle
from app.tools.benchmark.setups import BenchmarkSetup, usual

WARM_UP = 1  # rounds


class StepBench:
    """All configurations, and the barrier at which the ranks meet before and after each turn."""

    def __init__(
        self, settings: Settings, cluster: Cluster, choice: StepChoice, folder: Path, say: Say, clean_ups: CleanUps
    ) -> None:
        self.settings, self.cluster, self.choice, self.say = settings, cluster, choice, say
        bfloat16 = all(member.machine.bfloat16 for member in cluster.members)
        self.setups = [BenchmarkSetup(name) for name in dict.fromkeys(choice.only)] or usual(bfloat16)
        self._gate = Communicator(cluster, "in the benchmark")
        self._clock = RunClock(cluster, Communicator(cluster, "while clocks were compared"))
        self._steps = (WARM_UP + choice.rounds) * choice.steps
        self._clean_ups = clean_ups
        self._work = prepare(settings, cluster, self._steps, folder)
        ours = [each for each in self.setups if each.of_the_house]
        precisions = dict.fromkeys(each.settings(settings).training.precision for each in ours)
        self._products = {precision: MatrixProduct(precision) for precision in precisions}
        self.rates: dict[str, list[float]] = {precision: [] for precision in precisions}
        self.contenders: dict[BenchmarkSetup, Contender] = {}
        self.seconds: dict[BenchmarkSetup, list[float]] = {setup: [] for setup in self.setups}  # per step, by round
        self.cpu_seconds: dict[BenchmarkSetup, list[float]] = {setup: [] for setup in self.setups}  # of all ranks

    def start(self, recorder: Recorder) -> None:
        for setup in self.setups:
            began = time.monotonic()
            self.contenders[setup] = self._contender(setup, recorder)
            self._gate.wait_for_peers()
            self.say(f"{setup.name} is ready after {time.monotonic() - began:.1f} s")

    def take_round(self, number: int) -> None:
        """One turn each. Every second round has the reverse order, so that neighbours change places."""
        for setup in self.setups if number % 2 == 0 else reversed(self.setups):
            self._take_turn(setup)
        for precision, product in self._products.items():
            self._gate.wait_for_peers()
            self.rates[precision].append(min(self.cluster.exchange("benchmark/rate", product.flops_per_cpu_second())))

    def _take_turn(self, setup: BenchmarkSetup) -> None:
        contender, steps = self.contenders[setup], self.choice.steps
        contender.wake()
        self._gate.wait_for_peers()
        began = time.monotonic()
        contender.run(steps)
        self._gate.wait_for_peers()  # every rank takes the slowest one's time
        seconds = time.monotonic() - began
        used = self.cluster.exchange("benchmark/cpu", contender.rest())
        self.seconds[setup].append(seconds / steps)
        self.cpu_seconds[setup].append(sum(used) / steps)

    def end(self) -> None:
        for contender in self.contenders.values():
            contender.end()

    def _contender(self, setup: BenchmarkSetup, recorder: Recorder) -> Contender:
        settings, cluster, work = self.settings, self.cluster, self._work
        job = job_of(setup, settings, cluster, work, self._steps) if setup.of_the_house else None
        if setup.alone and cluster.rank != CENTRE:
            return Contender()
        if job:
            return House(job, work, self._clock, recorder)
        port = None if setup.alone else cluster.exchange("benchmark/port", _free_port(cluster.me.address))[CENTRE]
        course = Course(setup, settings, cluster, work, port)
        self._clean_ups.append(course.end)
        self.contenders[setup] = course  # so that it is ended, if it never becomes ready
        course.wait_until_ready()
        return course

    def outcome(self, links: list[Link] | None) -> dict[str, Any]:
        """Everything measured, in the form of the results file."""
        first = WARM_UP * self.choice.steps
        flops = flops_per_image(self.settings.training.model) * self._work.global_batch
        rates = {precision: max(values) for precision, values in self.rates.items()}
        machines = [member.machine for member in self.cluster.members]
        share = min(fair_share(machine, machines) for machine in machines)
        setups: dict[str, dict[str, Any]] = {}
        for setup in self.setups:
            house = self.contenders[setup]
            own = house.figures(first) if isinstance(house, House) else None
            everyones = [each for each in self.cluster.exchange("benchmark/own", own) if each]
            replicas = {each["parameters_sha256"] for each in everyones}
            seconds, cpu_seconds = self.seconds[setup][WARM_UP:], self.cpu_seconds[setup][WARM_UP:]
            rate = rates.get(setup.settings(self.settings).training.precision if setup.of_the_house else "")
            ranks = 1 if setup.alone else self.cluster.world_size
            wire = house.wire_seconds(links) if isinstance(house, House) and setup.synchronises else None
            setups[setup.name] = {
                "exact": setup.of_the_house and setup.exact(self.settings),
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "median_seconds": vars(Middle.of(seconds)),
                "median_cpu_seconds": vars(Middle.of(cpu_seconds)),
                "compute_bound_seconds": flops / ranks / (rate * share) if rate else None,
                "wire_bound_seconds": wire,
                "phases": [each["phases"] for each in everyones] or None,
                "bytes_sent_by_rank": [each["bytes_sent"] for each in everyones] or None,
                "replicas_identical": len(replicas) == 1 if replicas and not setup.alone else None,
            }
        return {
            "options": {"rounds": self.choice.rounds, "steps": self.choice.steps},
            "model": self.settings.training.model,
            "world_size": self.cluster.world_size,
            "global_batch_size": self._work.global_batch,
            "flops_per_step": flops,
            "matrix_product_flops_per_cpu_second": self.rates,
            "setups": setups,
            "ratios": [{"of": of, "against": by, **vars(ratio)} for (of, by), ratio in table.ratios(setups).items()],
        }


def compare_steps(
    settings: Settings,
    cluster: Cluster,
    links: list[Link] | None,
    choice: StepChoice,
    say: Say,
    clean_ups: CleanUps,
) -> dict[str, Any]:
    with scratch_in(Path(gettempdir()), clean_ups) as folder, Recorder(folder, cluster.rank) as recorder:
        bench = StepBench(settings, cluster, choice, folder, say, clean_ups)
        try:
            bench.start(recorder)
            rounds = WARM_UP + choice.rounds
            for number in range(rounds):
                began = time.monotonic()
                bench.take_round(number)
                taken = time.monotonic() - began
                what = "warm-up" if number < WARM_UP else f"round {number + 1 - WARM_UP} of {choice.rounds}"
                say(f"{what}: {taken:.1f} s, {taken * (rounds - 1 - number) / 60:.1f} min to go")
            outcome = bench.outcome(links)
        finally:
            bench.end()
    say(table.text(outcome))
    return outcome


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
