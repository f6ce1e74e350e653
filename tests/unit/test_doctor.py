"""What a check-up makes of what it has measured: every finding, and none where all is well."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from app.cluster.members import Member
from app.cluster.wire.clock import ClockOffset
from app.machine.cpus import Machine, memory_limit_bytes
from app.tools.doctor import facts as facts_of_this_machine
from app.tools.doctor.facts import Facts
from app.tools.doctor.findings import Examination, find, verdict
from app.tools.doctor.pairs import PairFigures
from app.tools.doctor.programs import PROGRAMS, ProgramOutcome
from app.tools.doctor.report import write

FACTS = Facts(1500, 64 * 2**20, 64 * 2**20, None, 32 * 2**30, "2.6.0", "0.1.0", "ab" * 32, {})
GOOD = PairFigures(latency_seconds=2e-4, quickest_latency_seconds=1e-4, bytes_per_second=1e9, wrong_elements=0)

Change = Callable[[Examination], Examination]


def healthy(world_size: int = 4) -> Examination:
    machine = Machine(
        "a", tuple(range(2 * world_size)), None, 64 * 2**30, "any", bfloat16=True, kernel="6", congestion_control=None
    )
    members = [Member(rank, f"node-{rank}", f"10.0.0.{rank}", 7000, "eth0", 2, machine) for rank in range(world_size)]
    clocks = [None, *[ClockOffset(0.0, 0.001, 0.0002)] * (world_size - 1)]
    pairs = dict.fromkeys(permutations(range(world_size), 2), GOOD)
    return Examination(
        members, [FACTS] * world_size, clocks, pairs, [ProgramOutcome(name, 0.001, {}) for name in PROGRAMS]
    )


def with_facts(rank: int, change: Callable[[Facts], Facts]) -> Change:
    return lambda all_: replace(
        all_, facts=[change(each) if at == rank else each for at, each in enumerate(all_.facts)]
    )


def with_member(rank: int, threads: int, quota: float | None) -> Change:
    def change(member: Member) -> Member:
        return replace(member, threads=threads, machine=replace(member.machine, quota_cpus=quota))

    return lambda all_: replace(all_, members=[change(each) if each.rank == rank else each for each in all_.members])


def with_pairs(figures: PairFigures, *pairs: tuple[int, int]) -> Change:
    return lambda all_: replace(all_, pairs={**all_.pairs, **dict.fromkeys(pairs, figures)})


def with_clock(rank: int, clock: ClockOffset) -> Change:
    return lambda all_: replace(all_, clocks=[clock if at == rank else each for at, each in enumerate(all_.clocks)])


def with_outcome(outcome: ProgramOutcome) -> Change:
    return lambda all_: replace(all_, outcomes=[outcome])


ALL_OF_RANK_3 = [pair for pair in permutations(range(4), 2) if 3 in pair]
SLOW = replace(GOOD, bytes_per_second=3e8)
LATE = replace(GOOD, latency_seconds=3e-3, quickest_latency_seconds=2e-3)

UNHEALTHY: dict[str, tuple[Change, str, tuple[str, ...]]] = {
    "another MTU": (
        with_facts(2, lambda each: replace(each, mtu_bytes=1400)),
        "problem",
        ("the MTU differs: 1500 on ranks 0, 1, 3; 1400 on rank 2", "Set the same"),
    ),
    "another PyTorch": (
        with_facts(1, lambda each: replace(each, torch_version="2.5.0")),
        "problem",
        ("PyTorch differs: 2.6.0 on ranks 0, 2, 3; 2.5.0 on rank 1", "docker compose build"),
    ),
    "another Lockstep": (
        with_facts(1, lambda each: replace(each, lockstep_version="0.0.9")),
        "problem",
        ("Lockstep differs", "0.0.9 on rank 1", "docker compose build"),
    ),
    "another source": (
        with_facts(3, lambda each: replace(each, source_sha256="cd" * 32)),
        "problem",
        ("the program's source differs", "cdcdcdcdcdcd on rank 3", "docker compose build"),
    ),
    "numbers damaged between two": (
        with_pairs(replace(GOOD, wrong_elements=5), (1, 2)),
        "problem",
        ("send and receive: 5 numbers", "rank 1", "rank 2", "memory"),
    ),
    "numbers damaged in a program": (
        with_outcome(ProgramOutcome("gather", 0.001, {3: [0, 1]})),
        "problem",
        ("gather: ", "rank 3", "ranks 0, 1", "memory"),
    ),
    "a slow pair": (
        with_pairs(SLOW, (0, 3)),
        "warning",
        ("slow link: rank 0 to rank 3", " 300.0 MB/s", " 1000.0", "cable"),
    ),
    "a slow rank": (
        with_pairs(SLOW, *ALL_OF_RANK_3),
        "warning",
        ("slow link: rank 3 ", "(all ", " 300.0 MB/s", "cable"),
    ),
    "a late pair": (
        with_pairs(LATE, (2, 1)),
        "warning",
        ("rank 2 to rank 1", " 2000 microseconds", " 100", "long route"),
    ),
    "a late rank": (with_pairs(LATE, *ALL_OF_RANK_3), "warning", ("rank 3 ", "(all ", " 2000 microseconds")),
    "more threads than quota": (
        with_member(1, threads=3, quota=1.5),
        "warning",
        ("rank 1: 3 threads on a quota of 1.5 CPUs", "Unset THREADS_PER_RANK, or raise RANK_CPUS"),
    ),
    "too few cores": (with_member(1, threads=9, quota=None), "warning", ("4 ranks ", " 15 CPUs ", " 8 cores")),
    "a low memory limit": (
        with_facts(1, lambda each: replace(each, memory_limit_bytes=2**29)),
        "warning",
        ("rank 1: a memory limit of 512 MiB", "RANK_MEMORY"),
    ),
    "little free memory": (
        with_facts(1, lambda each: replace(each, memory_free_bytes=2**31)),
        "warning",
        ("ranks 0, 1, 2, 3: ", "2048 MiB", "512 MiB", "fewer ranks"),
    ),
    "small shared memory": (
        with_facts(2, lambda each: replace(each, shared_memory_bytes=2**20)),
        "warning",
        ("rank 2: /dev/shm has 1 MiB", "shm_size in compose.yaml"),
    ),
    "a clock ahead": (
        with_clock(2, ClockOffset(0.0, 0.2, 0.001)),
        "warning",
        ("rank 2: ", " 200 ms ahead of rank 0", "chrony"),
    ),
    "a clock behind": (
        with_clock(1, ClockOffset(0.0, -0.2, 0.001)),
        "warning",
        ("rank 1: ", " 200 ms behind rank 0"),
    ),
    "something unreadable": (
        with_facts(1, lambda each: replace(each, mtu_bytes=None, unread={"the MTU": "no such file"})),
        "warning",
        ("rank 1: ", "the MTU: no such file", "shows '-'"),
    ),
}


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_a_healthy_cluster_has_no_findings(world_size: int) -> None:
    assert find(healthy(world_size)) == []
    assert write(healthy(world_size), []).endswith("\n\nall well")


@pytest.mark.parametrize(("change", "severity", "told"), UNHEALTHY.values(), ids=UNHEALTHY.keys())
def test_what_is_wrong_is_found_once_and_nothing_else(change: Change, severity: str, told: tuple[str, ...]) -> None:
    findings = find(change(healthy()))
    assert [finding.severity for finding in findings] == [severity]
    for words in told:
        assert words in findings[0].text
    assert verdict(findings) == f"1 {severity}"


@pytest.mark.parametrize("world_size", [3, 4, 8])
def test_a_slow_rank_is_named_however_few_ranks_there_are(world_size: int) -> None:
    last = world_size - 1
    own = [pair for pair in permutations(range(world_size), 2) if last in pair]
    findings = find(with_pairs(SLOW, *own)(healthy(world_size)))
    assert len(findings) == 1
    assert re.search(rf"rank {last} .*\ball\b", findings[0].text)


@pytest.mark.parametrize(
    "change",
    [
        with_clock(1, ClockOffset(0.0, 0.2, 0.16)),
        with_pairs(replace(GOOD, bytes_per_second=4e8), (0, 1)),
        with_pairs(replace(GOOD, quickest_latency_seconds=9e-4), (0, 1)),
        with_pairs(replace(GOOD, latency_seconds=5e-3), (0, 1)),
        with_member(1, threads=1, quota=0.5),
        with_member(1, threads=2, quota=2.0),
    ],
)
def test_what_may_be_chance_or_is_meant_is_left_in_peace(change: Change) -> None:
    assert find(change(healthy())) == []


def test_problems_come_first_and_all_are_counted() -> None:
    sick = healthy()
    for name in ("a clock ahead", "another MTU", "a slow pair", "another PyTorch"):
        sick = UNHEALTHY[name][0](sick)
    findings = find(sick)
    assert [finding.severity for finding in findings] == ["problem", "problem", "warning", "warning"]
    assert verdict(findings) == "2 problems, 2 warnings"


def test_a_rank_alone_has_nobody_to_talk_to() -> None:
    findings = find(replace(healthy(1), pairs={}, outcomes=[]))
    assert [finding.severity for finding in findings] == ["ok"]
    assert "the only rank" in findings[0].text
    assert verdict(findings) == "all well"


def test_what_was_not_read_is_a_dash() -> None:
    change = with_facts(1, lambda each: replace(each, mtu_bytes=None, shared_memory_free_bytes=None))
    row = write(change(healthy()), []).splitlines()[5]
    assert row.split()[:7] == ["1", "node-1", "10.0.0.1", "eth0", "-", "8", "none"]
    assert row.split()[8] == "-"


def test_an_interface_that_is_not_there_is_said() -> None:
    facts = facts_of_this_machine.look("no-such-interface")
    assert facts.mtu_bytes is None
    assert "no-such-interface" in facts.unread["the MTU"]


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", "max\n", None),
        ("memory.max", "1073741824\n", 2**30),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("memory/memory.limit_in_bytes", "536870912\n", 2**29),
    ],
)
def test_memory_limits_of_both_control_group_versions(tmp_path: Path, file: str, text: str, limit: int | None) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert memory_limit_bytes(tmp_path) == limit
