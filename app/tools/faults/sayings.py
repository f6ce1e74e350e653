"""What a rank's output says of the others: who was lost, and why the join ended."""

import re

LOST = re.compile(r"rank (\d+): lost ((?:rank \d+ \([^)]*\)(?:, )?)+)")
RANK = re.compile(r"rank (\d+) \(")
WORKER = re.compile(r"worker (\d+) \(of \d+\)")
TRACE = re.compile(
    r"Traceback \(most recent call last\)|terminate called|Exception raised from|^frame #\d+|Segmentation fault"
    r"|Fatal Python error|core dumped",
    re.MULTILINE,
)

# Why a join ended: the message, with the part that names the missing ranks.
INCOMPLETE = (
    re.compile(r"the group is not complete after JOIN_TIMEOUT=.*?Missing: (.*)"),
    re.compile(r"(rank \d+ \([^)]*\)(?:, rank \d+ \([^)]*\))*) left during the join"),
    re.compile(r"could not connect to all others \((.*?)\): "),
    re.compile(r"no UDP datagram has arrived from (.*?)\. "),
    re.compile(r"ranks were started, and only \d+ (?:is|are) here: (.*? ended before rank 0 counted)"),
)
AT_ONCE = re.compile(r" left during the join| ended before rank 0 counted")
WITHOUT_RANK_0 = re.compile(
    r"rank 0 (?:did not answer at|went away during the join|assigned no ranks within)|cannot resolve MASTER_ADDR="
)

LATE, CUT_OFF, FULL = "considered this rank lost", "cut off from the other ranks", "cannot write"
STOPPED = "stopped by SIGTERM"
SHORT = {"considered lost": LATE, "cut off": CUT_OFF, "cannot write": FULL, "stopped": STOPPED}


def lost(log: str) -> frozenset[int]:
    """The ranks that this one says it has lost."""
    return frozenset(int(rank) for _, ranks in LOST.findall(log) for rank in RANK.findall(ranks))


def speakers(log: str) -> frozenset[int]:
    """Who says so: the rank itself, and nobody else."""
    return frozenset(int(rank) for rank, _ in LOST.findall(log))


def missed_in_join(log: str) -> frozenset[int]:
    """The ranks that rank 0 missed in the join, by its own message or by what it told the others."""
    named = [part for pattern in INCOMPLETE for part in pattern.findall(log)]
    return frozenset(int(rank) for part in named for rank in (*RANK.findall(part), *WORKER.findall(part)))


def ended_join_at_once(log: str) -> bool:
    """Whether one rank's end was the end of the join, before anybody could miss another one that was merely silent."""
    return AT_ONCE.search(log) is not None


def misses_rank_0(log: str) -> bool:
    """Whether the join ended because rank 0 was not there."""
    return WITHOUT_RANK_0.search(log) is not None


def trace(log: str) -> str | None:
    """The first words of a stack trace."""
    found = TRACE.search(log)
    return found and found[0]


def in_short(log: str) -> str:
    """What a rank said, in a few words for a table."""
    told = [f"lost {_ranks(lost(log))}"] if lost(log) else []
    told += [f"missed {_ranks(missed_in_join(log))} in the join"] if missed_in_join(log) else []
    told += ["missed rank 0 in the join"] if misses_rank_0(log) else []
    # A message about a lost rank repeats what that rank has said.
    told = told or [short for short, words in SHORT.items() if words in log]
    if not told and (errors := re.findall(r"^error: (.{1,60})", log, re.MULTILINE)):
        told = [f"'{errors[-1]}'"]
    return "; ".join(told) or "nothing"


def _ranks(ranks: frozenset[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in sorted(ranks))
