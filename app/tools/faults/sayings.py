"""Parses a rank's output: which ranks it reports as lost, and why the join ended."""

import re

LOST = re.compile(r"rank (\d+): lost ((?:rank \d+ \([^)]*\)(?:, )?)+)")
RANK = re.compile(r"rank (\d+) \(")
TRACE = re.compile(
    r"Traceback \(most recent call last\)|terminate called|Exception raised from|^frame #\d+|Segmentation fault"
    r"|Fatal Python error|core dumped",
    re.MULTILINE,
)

# The messages that end a join, each with the part that names the missing ranks.
INCOMPLETE = (
    re.compile(r"the group is not complete after JOIN_TIMEOUT=.*?Missing: (.*)"),
    re.compile(r"(rank \d+ \([^)]*\)(?:, rank \d+ \([^)]*\))*) exited during the join"),
    re.compile(r"could not connect to all others \((.*?)\): "),
    re.compile(r"no UDP datagram has arrived from (.*?)\. "),
    re.compile(r"ranks were requested, but (.*?) (?:is|are) not running\. "),
)
AT_ONCE = re.compile(r" exited during the join| ranks were requested, but ")
WITHOUT_RANK_0 = re.compile(
    r"rank 0 (?:did not answer at|disconnected during the join|assigned no ranks within)|cannot resolve MASTER_ADDR="
)

LATE, CUT_OFF, FULL = "considered this rank lost", "cut off from the other ranks", "cannot write"
STOPPED = "stopped by SIGTERM"
SHORT = {"considered lost": LATE, "cut off": CUT_OFF, "cannot write": FULL, "stopped": STOPPED}


def lost(log: str) -> frozenset[int]:
    """The ranks that this rank reports as lost."""
    return frozenset(int(rank) for _, ranks in LOST.findall(log) for rank in RANK.findall(ranks))


def speakers(log: str) -> frozenset[int]:
    """The ranks that report a loss in this output. Only the rank itself may do so."""
    return frozenset(int(rank) for rank, _ in LOST.findall(log))


def missed_in_join(log: str) -> frozenset[int]:
    """The ranks that a message about the end of the join names as missing."""
    named = [part for pattern in INCOMPLETE for part in pattern.findall(log)]
    return frozenset(int(rank) for part in named for rank in RANK.findall(part))


def ended_join_at_once(log: str) -> bool:
    """Whether one rank's exit ended the join at once, before a merely silent rank could be missed."""
    return AT_ONCE.search(log) is not None


def misses_rank_0(log: str) -> bool:
    """Whether the join ended because rank 0 did not respond."""
    return WITHOUT_RANK_0.search(log) is not None


def trace(log: str) -> str | None:
    """The first words of a stack trace in the output; None without one."""
    found = TRACE.search(log)
    return found and found[0]


def in_short(log: str) -> str:
    """A rank's output, reduced to a few words for a table."""
    told = [f"lost {_ranks(lost(log))}"] if lost(log) else []
    told += [f"missed {_ranks(missed_in_join(log))} in the join"] if missed_in_join(log) else []
    told += ["missed rank 0 in the join"] if misses_rank_0(log) else []
    # A message about a lost rank repeats that rank's own message, which therefore counts only without a loss.
    told = told or [short for short, words in SHORT.items() if words in log]
    if not told and (errors := re.findall(r"^error: (.{1,60})", log, re.MULTILINE)):
        told = [f"'{errors[-1]}'"]
    return "; ".join(told) or "nothing"


def _ranks(ranks: frozenset[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in sorted(ranks))
