"""Findings from the facts and measurements, each with the observation, the expectation and the remedy."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from app.cluster.members import Member
from app.cluster.sharing import oversubscription
from app.cluster.wire.clock import ClockOffset
from app.machine.say import counted, numbered
from app.tools.doctor.facts import Facts
from app.tools.doctor.pairs import PairFigures
from app.tools.doctor.programs import ProgramOutcome

SHARED_MEMORY_WANTED_BYTES = 64 * 2**20  # Docker's default
MEMORY_WANTED_BYTES = 2**30  # VGG-11 at 64 images per rank peaks at 0.8 GB, including its data set
CLOCK_TOLERANCE_SECONDS = 0.05
SLOW_BANDWIDTH_PART = 3  # slow: below the typical bandwidth divided by this
SLOW_LATENCY_TIMES = 10
LATENCY_THAT_MATTERS_SECONDS = 0.001  # a busy host explains a shorter latency

Pair = tuple[int, int]  # (sender, receiver)


@dataclass(frozen=True)
class Examination:
    """The facts and measurements of the cluster. Members, facts and clocks are by rank."""

    members: Sequence[Member]
    facts: Sequence[Facts]
    clocks: Sequence[ClockOffset | None]  # None: rank 0, which is the reference
    pairs: Mapping[Pair, PairFigures]
    outcomes: Sequence[ProgramOutcome]


@dataclass(frozen=True)
class Finding:
    """One entry of the report. Only a problem makes the doctor exit with code 1."""

    severity: Literal["ok", "warning", "problem"]
    text: str


def find(examination: Examination) -> list[Finding]:
    """All findings, sorted by severity: problems first, then warnings."""
    facts, members = examination.facts, examination.members
    found = [
        *_differing_images(facts),
        *_differing_mtu(facts),
        *_wrong_numbers(examination),
        *_slow_links(examination.pairs, len(members)),
        *_processors(members),
        *_memory(members, facts),
        *_shared_memory(facts),
        *_clocks(examination.clocks),
        *_unread(facts),
        *_loneliness(members),
    ]
    order = ("problem", "warning", "ok")
    return sorted(found, key=lambda finding: order.index(finding.severity))


_ranks = partial(numbered, "rank")


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of the report: the numbers of problems and warnings."""
    counts = {
        severity: sum(finding.severity == severity for finding in findings) for severity in ("problem", "warning")
    }
    parts = [counted(count, severity) for severity, count in counts.items() if count]
    return ", ".join(parts) or "all well"


def _differing_images(facts: Sequence[Facts]) -> Iterator[Finding]:
    remedy = "Run docker compose build once and copy the image to every host."
    yield from _differing("PyTorch", [each.torch_version for each in facts], remedy)
    yield from _differing("Lockstep", [each.lockstep_version for each in facts], remedy)
    yield from _differing("the program's source", [each.source_sha256[:12] for each in facts], remedy)


def _differing_mtu(facts: Sequence[Facts]) -> Iterator[Finding]:
    sizes = [each.mtu_bytes for each in facts]
    yield from _differing(
        "the MTU",
        sizes,
        "Packets larger than the smallest MTU are lost. Set the same MTU on all interfaces: ip link set IF mtu N on a "
        "host, or driver_opts com.docker.network.driver.mtu of the network in compose.yaml.",
    )


def _differing(what: str, values: Sequence[object], remedy: str) -> Iterator[Finding]:
    """A problem if the ranks' values differ. Facts that could not be read are left to `_unread`."""
    groups = _by_value(values)
    groups.pop(None, None)
    if len(groups) > 1:
        parts = "; ".join(f"{value} on {_ranks(ranks)}" for value, ranks in groups.items())
        yield Finding("problem", f"{what} differs: {parts}. Expected: no difference. {remedy}")


def _wrong_numbers(examination: Examination) -> Iterator[Finding]:
    remedy = "Data is corrupted in transit. Check the memory and network adapters of these machines, or replace them."
    for (sender, receiver), figures in examination.pairs.items():
        if figures.wrong_elements:
            yield Finding(
                "problem",
                f"send and receive: {figures.wrong_elements} numbers from rank {sender} arrived corrupted "
                f"at rank {receiver}. Expected: none. {remedy}",
            )
    for outcome in examination.outcomes:
        for rank, places in outcome.wrong.items():
            yield Finding(
                "problem",
                f"{outcome.program}: numbers of rank {rank} arrived corrupted at {_ranks(places)}. "
                f"Expected: none. {remedy}",
            )


def _slow_links(pairs: Mapping[Pair, PairFigures], world_size: int) -> Iterator[Finding]:
    if not pairs:
        return
    # The typical value comes from the faster half, because a single slow rank of three makes most pairs slow.
    speed = _usual(pairs, lambda figures: -figures.bytes_per_second)
    slow = {
        pair: each
        for pair, each in pairs.items()
        if each.bytes_per_second < speed.bytes_per_second / SLOW_BANDWIDTH_PART
    }
    for name, worst in _places(slow, world_size, lambda figures: -figures.bytes_per_second):
        yield Finding(
            "warning",
            f"slow link: {name} reaches {worst.bytes_per_second / 1e6:.1f} MB/s (typical: "
            f"{speed.bytes_per_second / 1e6:.1f}). Expected: at least a third of that. Check the link's cable, switch "
            "port, shaping and other traffic, then run the doctor again. The slowest link limits every step.",
        )
    delay = _usual(pairs, lambda figures: figures.quickest_latency_seconds).quickest_latency_seconds
    limit = max(SLOW_LATENCY_TIMES * delay, LATENCY_THAT_MATTERS_SECONDS)
    late = {pair: each for pair, each in pairs.items() if each.quickest_latency_seconds > limit}
    for name, worst in _places(late, world_size, lambda figures: figures.quickest_latency_seconds):
        yield Finding(
            "warning",
            f"high latency: {name} takes {worst.quickest_latency_seconds * 1e6:.0f} microseconds at best (typical: "
            f"{delay * 1e6:.0f}). Expected: at most {limit * 1e6:.0f}. Look for a long route or a shaped link, "
            "then run the doctor again.",
        )


def _usual(pairs: Mapping[Pair, PairFigures], badness: Callable[[PairFigures], float]) -> PairFigures:
    """The median of the better half of all pairs."""
    better_first = sorted(pairs.values(), key=badness)
    return better_first[(len(better_first) - 1) // 4]


def _places(
    pairs: Mapping[Pair, PairFigures], world_size: int, badness: Callable[[PairFigures], float]
) -> Iterator[tuple[str, PairFigures]]:
    """Group these pairs: by rank, with its worst figures, if all of the rank's pairs are included, else one by one."""
    rest = dict(pairs)
    for rank in range(world_size):
        own = {pair: each for pair, each in pairs.items() if rank in pair}
        if len(own) == 2 * (world_size - 1):
            yield f"rank {rank} (all links)", max(own.values(), key=badness)
            rest = {pair: each for pair, each in rest.items() if rank not in pair}
    for (sender, receiver), figures in rest.items():
        yield f"rank {sender} to rank {receiver}", figures


def _processors(members: Sequence[Member]) -> Iterator[Finding]:
    throttled = {
        member.rank: (member.threads, member.machine.quota_cpus)
        for member in members
        if member.machine.quota_cpus is not None and member.threads > max(1, member.machine.quota_cpus)
    }
    for (threads, quota), ranks in _groups(throttled.items()).items():
        yield Finding(
            "warning",
            f"{_ranks(ranks)}: {threads} threads on a quota of {quota:g} CPUs, so the kernel throttles them. "
            "Expected: no more threads than CPUs. Unset THREADS_PER_RANK, or raise RANK_CPUS.",
        )
    if shared := oversubscription(members):
        yield Finding("warning", f"{shared} Or start fewer ranks on that host.")


def _memory(members: Sequence[Member], facts: Sequence[Facts]) -> Iterator[Finding]:
    limited = {
        rank: each.memory_limit_bytes
        for rank, each in enumerate(facts)
        if each.memory_limit_bytes is not None and each.memory_limit_bytes < MEMORY_WANTED_BYTES
    }
    for limit, ranks in _groups(limited.items()).items():
        yield Finding(
            "warning",
            f"{_ranks(ranks)}: a memory limit of {limit / 2**20:.0f} MiB. Expected: at least 1024 MiB for VGG-11 at "
            "64 images per rank, or the rank may be killed. Raise or unset RANK_MEMORY, or train LeNet-5.",
        )
    for ranks in _by_value([member.machine.boot_id for member in members]).values():
        free = min(facts[rank].memory_free_bytes for rank in ranks)
        if free / len(ranks) < MEMORY_WANTED_BYTES:
            yield Finding(
                "warning",
                f"{_ranks(ranks)}: {free / 2**20:.0f} MiB of memory is free on their host, "
                f"{free / len(ranks) / 2**20:.0f} MiB per rank. Expected: 1024 MiB for VGG-11 at 64 images per rank. "
                "Stop other programs there, start fewer ranks, or train LeNet-5.",
            )


def _shared_memory(facts: Sequence[Facts]) -> Iterator[Finding]:
    small = {
        rank: each.shared_memory_bytes
        for rank, each in enumerate(facts)
        if each.shared_memory_bytes is not None and each.shared_memory_bytes < SHARED_MEMORY_WANTED_BYTES
    }
    for size, ranks in _groups(small.items()).items():
        yield Finding(
            "warning",
            f"{_ranks(ranks)}: /dev/shm has {size / 2**20:.0f} MiB. Expected: at least 64 MiB. Only a "
            "DataLoader with workers needs it. If you use one, set shm_size in compose.yaml.",
        )


def _clocks(clocks: Sequence[ClockOffset | None]) -> Iterator[Finding]:
    for rank, clock in enumerate(clocks):
        if clock is not None and abs(clock.ahead_seconds) - clock.uncertainty_seconds > CLOCK_TOLERANCE_SECONDS:
            yield Finding(
                "warning",
                f"rank {rank}: clock is {abs(clock.ahead_seconds) * 1e3:.0f} ms "
                f"{'ahead of' if clock.ahead_seconds > 0 else 'behind'} rank 0's (± "
                f"{clock.uncertainty_seconds * 1e3:.1f}). Expected: at most {CLOCK_TOLERANCE_SECONDS * 1e3:.0f} ms, or "
                "timestamps of different ranks cannot be compared. Run chrony or another NTP client on each host.",
            )


def _unread(facts: Sequence[Facts]) -> Iterator[Finding]:
    reasons = [(rank, (what, reason)) for rank, each in enumerate(facts) for what, reason in each.unread.items()]
    for (what, reason), ranks in _groups(reasons).items():
        yield Finding(
            "warning",
            f"{_ranks(ranks)}: cannot read {what}: {reason}. The table shows '-', and nothing was checked. Check it "
            "by hand.",
        )


def _loneliness(members: Sequence[Member]) -> Iterator[Finding]:
    if len(members) == 1:
        yield Finding(
            "ok",
            "rank 0 is the only rank, so no link was measured. Raise WORKERS to add ranks.",
        )


def _by_value[Value](values: Sequence[Value]) -> dict[Value, list[int]]:
    return _groups(enumerate(values))


def _groups[Value](ranks_and_values: Iterable[tuple[int, Value]]) -> dict[Value, list[int]]:
    """The ranks that share each value, by value."""
    groups: dict[Value, list[int]] = {}
    for rank, value in ranks_and_values:
        groups.setdefault(value, []).append(rank)
    return groups
