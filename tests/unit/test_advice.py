"""What to try next follows from what bounds the run, and its command is one that the settings accept."""

import shlex
from typing import Any

import pytest

from app.analysis import verdict
from app.analysis.summary import Advice, Summary
from app.modes import MODES
from app.records.manifest import Manifest
from app.settings import environment
from tests import runs
from tests.unit.test_verdict import bandwidth, on_cpus

PHASES = ("data", "forward", "backward", "wait", "sync", "optimiser")
COMMUNICATION = (0.0, 0.1, 0.2, 0.0, 0.7, 0.0)
COMPUTE = (0.0, 0.3, 0.6, 0.05, 0.05, 0.0)
WAITING = (0.0, 0.2, 0.4, 0.3, 0.1, 0.0)
SLOW = {
    "rank": 2,
    "work_ratio": 2.0,
    "work_ratio_low": 1.8,
    "work_ratio_high": 2.2,
    "last_in": 1.0,
    "wait_seconds": 0.0,
    "others_wait_seconds": 0.4,
}
LEAST = {"gather_scatter": 9.2, "send_recv": 9.2, "all_reduce": 2.3, "ring_all_reduce": 2.3, "ddp": 2.3}


def advice(
    shares: tuple[float, ...],
    given: dict[str, Any] | None = None,
    *,
    used: float | None = 0.9,
    no_core: float = 0.0,
    quota: float = 0.0,
    mode: str = "all_reduce",
    batch: int = 256,
    cores: int = 4,
    gradients: int = 36_900_000,
    world_size: int = 4,
    **figures: Any,
) -> Advice | None:
    """Of a run with these shares, on one host."""
    given = {"sync_mode": mode} | (given or {})
    lost = ({"backward": no_core}, {"backward": quota})
    group = runs.group_figures(
        shares=dict(zip(PHASES, shares, strict=True)),
        seconds=runs.spread(1.0),
        processor=on_cpus(lost),
        bandwidth=bandwidth(used),
        bytes_sent_per_step=100.0,
        **figures,
    )
    ranks = [runs.rank_figures(rank) for rank in range(world_size)]
    summary = runs.summary(group, ranks, {"sync_mode": mode, "global_batch_size": batch})
    return verdict.reach(summary, manifest(given, cores, gradients, world_size)).advice


def manifest(given: dict[str, Any], cores: int, gradients: int, world_size: int) -> Manifest:
    threads = given.get("threads_per_rank", 1)
    settings = {"train_samples": 50_000, "threads_per_rank": None, "slow_rank": None, "rank_cpus": None} | given
    return runs.manifest(
        world_size=world_size,
        settings=settings,
        ranks=[runs.participant(rank) | {"cores": cores, "threads": threads} for rank in range(world_size)],
        gradient_bytes=gradients,
        given={name: value for name, value in given.items() if name != "nodes"},
        modes={name: {"sync_seconds_at_least": least, "hides": name == "ddp"} for name, least in LEAST.items()},
    )


@pytest.mark.parametrize(
    ("run", "command"),
    [
        ({"shares": COMMUNICATION, "mode": "gather_scatter"}, "scripts/up SYNC_MODE=ddp"),
        (
            {"shares": COMMUNICATION, "mode": "send_recv", "given": {"link_rate_by_rank": "2=20mbit"}},
            "scripts/up SYNC_MODE=ddp LINK_RATE_BY_RANK=2=20mbit",
        ),
        ({"shares": COMMUNICATION, "mode": "ddp"}, "scripts/up SYNC_MODE=ddp GLOBAL_BATCH_SIZE=512"),
        (
            {"shares": COMMUNICATION, "mode": "ddp", "given": {"batch_size_per_rank": 64}},
            "scripts/up SYNC_MODE=ddp GLOBAL_BATCH_SIZE=512",
        ),
        ({"shares": (0.0, 0.1, 0.4, 0.0, 0.5, 0.0)}, "scripts/up SYNC_MODE=ddp"),
        (
            {"shares": COMMUNICATION, "mode": "ddp", "gradients": 247_000, "buckets_per_step": 1.0},
            "scripts/up SYNC_MODE=ddp BUCKET_BYTES=61750",
        ),
        (
            {
                "shares": COMMUNICATION,
                "mode": "ddp",
                "used": 0.05,
                "buckets_per_step": 34.0,
                "given": {"bucket_bytes": 1000},
            },
            "scripts/up SYNC_MODE=ddp",
        ),
        ({"shares": COMMUNICATION, "used": 0.02, "gradients": 247_000}, "scripts/up SYNC_MODE=ddp"),
        (
            {"shares": COMMUNICATION, "used": 0.02, "mode": "ddp", "cores": 2},
            "scripts/up SYNC_MODE=ddp GLOBAL_BATCH_SIZE=512",
        ),
        ({"shares": COMPUTE, "batch": 8}, "scripts/up SYNC_MODE=all_reduce GLOBAL_BATCH_SIZE=64"),
        (
            {"shares": WAITING, "straggler": SLOW, "given": {"slow_rank": 2, "slow_factor": 3.0}},
            "scripts/up SYNC_MODE=all_reduce",
        ),
        ({"shares": WAITING, "straggler": SLOW}, "scripts/doctor"),
        ({"shares": COMPUTE, "no_core": 0.4, "cores": 2}, "scripts/up SYNC_MODE=all_reduce RANK_CPUS=0.5"),
        (
            {"shares": COMPUTE, "no_core": 0.4, "given": {"threads_per_rank": 4}},
            "scripts/up SYNC_MODE=all_reduce",
        ),
        ({"shares": COMPUTE, "no_core": 0.4}, None),  # other programs have the cores
        (
            {"shares": COMPUTE, "quota": 0.4, "given": {"rank_cpus": 0.5}},
            "scripts/up SYNC_MODE=all_reduce RANK_CPUS=1.0",
        ),
        ({"shares": COMPUTE, "cores": 8}, "scripts/up SYNC_MODE=all_reduce WORKERS=7"),
        # Each rank keeps a few samples, and no class's server gets hundreds of processes from one line.
        ({"shares": COMPUTE, "cores": 128}, "scripts/up SYNC_MODE=all_reduce WORKERS=31"),
        ({"shares": COMPUTE, "cores": 128, "batch": 64}, "scripts/up SYNC_MODE=all_reduce WORKERS=7"),
        ({"shares": COMPUTE}, "scripts/up --with-floor SYNC_MODE=all_reduce"),
    ],
)
def test_the_command_changes_one_thing(run: dict[str, Any], command: str | None) -> None:
    found = advice(**run)
    assert found is not None
    assert found.command == command, found.sentence
    if command and command.startswith("scripts/up"):
        words = dict(word.split("=", 1) for word in shlex.split(command)[1:] if "=" in word)
        environment.of(words)


def test_ranks_on_several_machines_get_the_command_for_those() -> None:
    nodes = {"nodes": "10.10.1.1,10.10.1.2"}
    found = advice(COMPUTE, {"model": "lenet5"} | nodes)
    assert found is not None
    assert found.command == "scripts/cloudlab HOST... SYNC_MODE=none MODEL=lenet5"
    found = advice(COMPUTE, nodes, cores=8)
    assert found is not None
    assert found.command is None  # more ranks are more machines
    found = advice(WAITING, nodes, straggler=SLOW)
    assert found is not None
    assert found.command == "scripts/cloudlab --check HOST..."


def test_more_ranks_than_cores_keep_their_number() -> None:
    """It is the user's question; and a quota that was asked for is not asked for again."""
    found = advice(COMPUTE, {"link_rate_by_rank": "3=20mbit", "threads_per_rank": 1}, no_core=0.4, cores=2)
    assert found is not None
    assert found.command == "scripts/up SYNC_MODE=all_reduce LINK_RATE_BY_RANK=3=20mbit RANK_CPUS=0.5"
    found = advice(COMPUTE, {"rank_cpus": 0.5}, no_core=0.4, cores=2)
    assert found is not None
    assert found.command is None
    found = advice(COMPUTE, no_core=0.4, cores=2, world_size=3)
    assert found is not None
    assert found.command == "scripts/up WORKERS=2 SYNC_MODE=all_reduce RANK_CPUS=0.66" or found.command == (
        "scripts/up SYNC_MODE=all_reduce WORKERS=2 RANK_CPUS=0.66"
    )


def test_a_batch_leaves_an_epoch_of_steps() -> None:
    found = advice(COMMUNICATION, {"train_samples": 600}, mode="ddp")
    assert found is None


def test_what_earlier_versions_did_not_record_is_not_guessed() -> None:
    group = runs.group_figures(shares=dict(zip(PHASES, COMMUNICATION, strict=True)))
    summary: Summary = runs.summary(group, [runs.rank_figures(rank) for rank in range(2)])
    assert verdict.reach(summary, runs.manifest()).advice is None


def test_another_mode_is_set_against_this_one_on_the_same_links() -> None:
    group = runs.group_figures(shares=dict(zip(PHASES, COMMUNICATION, strict=True)))
    star = runs.summary(group, [runs.rank_figures(rank) for rank in range(4)], {"sync_mode": "gather_scatter"})
    told = verdict.reach(star, manifest({}, 4, 100, 4)).sentences
    assert any("ddp needs at least 2.30 s" in each and "this mode 9.20 s" in each for each in told)
    assert {*LEAST} < {*MODES}
