"""A run that is struck by a fault each minute for an hour: it goes on each time, and nothing grows."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from tests.containers.cluster import Clone, docker, until

MINUTES = 60
PEER_TIMEOUT = 10
PAUSE_SECONDS = PEER_TIMEOUT + 5  # longer than the others wait
RUN = {
    "MODEL": "lenet5",
    "DATASET": "digits",
    "EPOCHS": "1000000",
    "EVALUATE": "never",
    "LINK_CHECK": "off",
    "CHECKPOINT_EVERY": "50",
    "PEER_TIMEOUT": str(PEER_TIMEOUT),
    "MAX_RESTARTS": "1000",
}
RANKS = (("rank0", 1), ("worker", 1), ("worker", 2), ("worker", 3))


@dataclass(frozen=True)
class Seen:
    """What there is once the run has gone on after a fault."""

    fault: str
    recovered_in: float
    files: int  # in the run's folder
    checkpoint_bytes: int
    memory: int  # of the rank that has most
    containers: int
    networks: int

    def __str__(self) -> str:
        return (
            f"{self.fault:24} {self.recovered_in:5.1f} s  {self.files:3} files  {self.checkpoint_bytes >> 10:6} KiB "
            f"saved  {self.memory >> 20:4} MiB  {self.containers} containers  {self.networks} networks"
        )


def kill_one(clone: Clone, chance: Random) -> str:
    service, number = chance.choice(RANKS)
    return f"killed {clone.kill(service, number).removeprefix(clone.project)}"


def kill_two(clone: Clone, chance: Random) -> str:
    two = [clone.kill(*each) for each in chance.sample(RANKS, 2)]
    return f"killed {', '.join(each.removeprefix(clone.project) for each in two)}"


def kill_all(clone: Clone, _: Random) -> str:
    for each in RANKS:
        clone.kill(*each)
    return "killed all"


def pause_one(clone: Clone, chance: Random) -> str:
    victim = clone.container(*chance.choice(RANKS))
    docker("pause", victim)
    time.sleep(PAUSE_SECONDS)  # the fault itself
    docker("unpause", victim)
    return f"paused {victim.removeprefix(clone.project)}"


FAULTS: tuple[Callable[[Clone, Random], str], ...] = (kill_one, kill_one, kill_two, kill_all, pause_one)


def attempts_that_trained(clone: Clone) -> int:
    return max((each["attempt"] for each in steps(clone)), default=-1)


def has_gone_on(clone: Clone, attempt: int) -> bool:
    """Whether a later attempt has taken a step."""
    return attempts_that_trained(clone) > attempt


def steps(clone: Clone) -> Iterator[dict[str, Any]]:
    """Rank 0's, in the order in which they were taken."""
    for line in (clone.folder / "results/latest/rank-0.jsonl").read_text().splitlines():
        if '"kind": "step"' in line:
            yield json.loads(line)


def look(clone: Clone, fault: str, seconds: float) -> Seen:
    run = (clone.folder / "results/latest").resolve()
    files = [path for path in run.rglob("*") if path.is_file()]
    return Seen(
        fault,
        seconds,
        len(files),
        sum(path.stat().st_size for path in files if "checkpoint" in path.parts),
        max(memory_of(clone.container(*each)) for each in RANKS),
        len(clone.containers("--all")),
        len(clone.networks()),
    )


def memory_of(container: str) -> int:
    """In bytes, of all its processes."""
    pids = docker("top", container, "-eo", "pid").split()[1:]
    return sum(_resident(Path("/proc", pid)) for pid in pids)


def _resident(process: Path) -> int:
    fields = (process / "statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
def test_an_hour_with_a_fault_each_minute(clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    seed = SystemRandom().randrange(1 << 30)
    chance = Random(seed)  # noqa: S311
    process = clone.start("scripts/up", **RUN)
    clone.wait_for("checkpoint", 2)
    seen = []
    for minute in range(MINUTES):
        began = time.monotonic()
        before = attempts_that_trained(clone)
        fault = chance.choice(FAULTS)(clone, chance)
        struck = time.monotonic()
        until(partial(has_gone_on, clone, before), f"recovery from {fault}, seed {seed}")
        seen.append(look(clone, fault, time.monotonic() - struck))
        with capsys.disabled():
            print(f"{minute + 1:3} {seen[-1]}", flush=True)
        time.sleep(max(0.0, 60 - (time.monotonic() - began)))  # a fault each minute
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    early, late = seen[:10], seen[-10:]
    assert max(each.memory for each in late) < 1.2 * max(each.memory for each in early)
    assert max(each.files for each in late) <= max(each.files for each in early) + len(RANKS)
    assert {each.containers for each in seen} == {len(RANKS) + 1}
    assert {each.networks for each in seen} == {1}
    losses: dict[int, float] = {}
    for step in steps(clone):
        assert losses.setdefault(step["step"], step["loss"]) == step["loss"], "a step that was taken again"
    assert clone.containers("--all") == []
