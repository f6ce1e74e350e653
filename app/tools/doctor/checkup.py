"""The diagnosis that every rank runs: join, exchange facts, compare clocks, measure pairs and collectives, leave."""

import time
from dataclasses import asdict
from itertools import permutations

import torch

from app.cluster.identity import identify
from app.cluster.join import join
from app.cluster.members import Cluster
from app.cluster.wire.clock import ClockOffset, compare_clocks
from app.cluster.wire.communicator import Communicator
from app.machine.interrupt import CleanUps
from app.machine.say import Say
from app.settings.settings import Settings
from app.tools.doctor import facts, report
from app.tools.doctor.facts import Facts
from app.tools.doctor.findings import Examination, Pair, find
from app.tools.doctor.pairs import PairFigures, measure_pair
from app.tools.doctor.programs import PROGRAMS, run_program

PROGRESS_SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # the default of PEER_TIMEOUT here: unlike in training, no operation takes long


def check_up(settings: Settings, say: Say, clean_ups: CleanUps) -> int:
    """Diagnose the cluster as one of its ranks. Rank 0 prints the report. The exit code is 1 if there is a problem."""
    if "peer_timeout" not in settings.given:
        settings = settings.changed(peer_timeout=PATIENCE_SECONDS)
    cluster = join(settings, identify(settings.place), say, clean_ups)
    torch.set_num_threads(1)  # THREADS_PER_RANK is checked, but not used
    speak = say if cluster.rank == 0 else _keep_silent
    with cluster.until_the_end():
        examination = examine(cluster, Communicator(cluster, "in the check-up"), speak)
    findings = find(examination)
    speak(report.write(examination, findings))
    return int(any(finding.severity == "problem" for finding in findings))


def examine(cluster: Cluster, communicator: Communicator, say: Say) -> Examination:
    """Examine the cluster together with all other ranks, which receive the same result."""
    own = asdict(facts.look(cluster.me.interface))
    everyones = [Facts(**each) for each in cluster.exchange("doctor/facts", own)]
    if cluster.world_size == 1:
        return Examination(cluster.members, everyones, [None], {}, [])
    return Examination(
        cluster.members,
        everyones,
        _compare_clocks(cluster, communicator),
        _measure_pairs(cluster, communicator, say),
        [run_program(name, cluster, communicator) for name in PROGRAMS],
    )


def _compare_clocks(cluster: Cluster, communicator: Communicator) -> list[ClockOffset | None]:
    own = compare_clocks(communicator, time.time)
    everyones = cluster.exchange("doctor/clocks", asdict(own))
    return [ClockOffset(**each) if rank else None for rank, each in enumerate(everyones)]


def _measure_pairs(cluster: Cluster, communicator: Communicator, say: Say) -> dict[Pair, PairFigures]:
    """Measure one ordered pair of ranks after another, while all other ranks are silent."""
    pairs = list(permutations(range(cluster.world_size), 2))
    say(f"measuring {len(pairs)} pairs, one after the other")
    said = time.monotonic()
    own: dict[int, PairFigures] = {}  # by receiver
    for done, (sender, receiver) in enumerate(pairs):
        if time.monotonic() - said > PROGRESS_SECONDS:
            say(f"  {done} of {len(pairs)} pairs measured")
            said = time.monotonic()
        if figures := measure_pair(communicator, sender, receiver):
            own[receiver] = figures
    rows = cluster.exchange("doctor/pairs", {receiver: asdict(figures) for receiver, figures in own.items()})
    return {
        (sender, int(receiver)): PairFigures(**figures)
        for sender, row in enumerate(rows)
        for receiver, figures in row.items()
    }


def _keep_silent(_: str) -> None:
    """Print nothing, because only rank 0 prints."""
