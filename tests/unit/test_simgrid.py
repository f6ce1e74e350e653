"""Exchanges on links that differ by rank take what SimGrid says, an independent simulator with max-min fair sharing."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from app.settings.averaging import AveragingSettings
from app.sync.exchange import Exchange
from app.sync.modes import mode_class
from app.sync.modes.gather_scatter import star
from app.sync.schedules.schedule import Schedule, part_of
from app.tools.prediction.exchange import Passing, SimulatedMachine
from app.tools.prediction.network import Links
from app.tools.prediction.processor import Cpus
from app.tools.prediction.waves import Figures, waves_of

ORACLE = Path(__file__).with_name("simgrid_oracle.py")
TOLERANCE = 0.02
FREE = Passing(0.0, 0.0, 0.0, 0.0)
LEAST_RATE, SPREAD = 25e6, 4  # bytes per second, and how many times as much the fastest link can have
ELEMENT_BYTES, ELEMENTS = 4, 1 << 20
LIMIT_SECONDS = 60

# A packet enters the receiver's link when it is through the sender's: up to 1/PACKETS of a message's time too late.
PACKETS = 64

# SimGrid shares each link among all messages on their way, as TCP would. The last rank is then done as if one message
# had followed another, because it waits for all that passes the slowest link, and not for the first of it.
SHARED = ("ring_all_reduce", "parameter_server")

# With sharing, most of these would take longer than the simulation says: a message for which others wait gets no more
# of a link than one of a later round. So here SimGrid's links do what the simulation's do: they carry one packet at a
# time, of the message that comes first in the schedule.
IN_TURN = ("halving_doubling", "recursive_doubling", "tree", "hierarchical", "star")

Rates = tuple[tuple[float, float], ...]


def rates_of(ranks: int) -> Rates:
    """By rank, sending and receiving."""
    factors = SPREAD ** np.random.default_rng(ranks).uniform(0, 1, (ranks, 2))
    return tuple((LEAST_RATE * float(sends), LEAST_RATE * float(receives)) for sends, receives in factors)


@lru_cache
def schedule_of(mode: str, ranks: int) -> Schedule:
    if mode == "star":
        return star(ELEMENTS, ranks)
    found = mode_class(mode)
    assert issubclass(found, Exchange)
    schedule = found.schedule(ELEMENTS, ranks, AveragingSettings(sync_mode=mode))
    assert schedule is not None
    return schedule


def simulated(mode: str, rates: Rates) -> Figures:
    """When each rank is done."""
    ranks = len(rates)
    machine = SimulatedMachine(Links.of(rates, [0.0] * ranks), Cpus(), 1, np.random.default_rng(0))
    waves = waves_of(schedule_of(mode, ranks), ranks)
    return machine.exchange(waves, ELEMENT_BYTES, FREE, np.zeros((ranks, 1)))[:, 0]


@lru_cache
def by_simgrid(mode: str, ranks: int) -> Figures:
    """The same from messages and what each waits for, as the program's ranks have it: SimGrid gets no waves."""
    schedule, shared = schedule_of(mode, ranks), mode in SHARED
    sends = [iter(part_of(schedule, rank).sends) for rank in range(ranks)]
    messages = [
        (each.sender, each.receiver, len(each.piece) * ELEMENT_BYTES, next(sends[each.sender]).after)
        for each in schedule.messages
    ]
    case = {"rates": rates_of(ranks), "messages": messages, "shared": shared, "packets": 1 if shared else PACKETS}
    done = subprocess.run(
        [sys.executable, ORACLE], input=json.dumps(case), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))


def error(mode: str, ranks: int, wrong: Callable[[Rates], Rates] = lambda rates: rates) -> float:
    """How far the last rank's end is from SimGrid's, as a part of it, if links are taken for others."""
    found, expected = simulated(mode, wrong(rates_of(ranks))), by_simgrid(mode, ranks)
    return abs(float(found.max() / expected.max()) - 1)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 16, 32])
@pytest.mark.parametrize("mode", [*SHARED, *IN_TURN])
def test_the_last_rank_is_done_when_simgrid_says(mode: str, ranks: int) -> None:
    assert error(mode, ranks) <= TOLERANCE


def all_at_the_mean(rates: Rates) -> Rates:
    sends, receives = np.mean(rates, axis=0)
    return ((float(sends), float(receives)),) * len(rates)


def receiving_without_limit(rates: Rates) -> Rates:
    return tuple((sends, 1e15) for sends, _ in rates)


def sending_without_limit(rates: Rates) -> Rates:
    return tuple((1e15, receives) for _, receives in rates)


@pytest.mark.parametrize("wrong", [all_at_the_mean, receiving_without_limit, sending_without_limit])
@pytest.mark.parametrize("mode", [*SHARED, *IN_TURN])
def test_with_wrong_links_it_would_not_hold(mode: str, wrong: Callable[[Rates], Rates]) -> None:
    """For some number of ranks: where senders are slower anyway, receivers without limit make no difference."""
    assert max(error(mode, ranks, wrong) for ranks in (5, 8, 16)) > TOLERANCE
