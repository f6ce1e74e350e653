"""The kinds of faults: the effect of each on a rank, and the expected end of that rank."""

from dataclasses import dataclass

from app.tools.faults import sayings

KILLED = 137  # the exit code of a container whose process was killed


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault, and the end that it must cause."""

    what: str
    loses: bool  # whether the other ranks must lose this rank; otherwise the run must continue
    exit_code: int | None = None  # of the rank that it strikes
    says: str | None = None  # words that this rank must print


# scripts/host/faults.sh has a function for each, inject_KIND.
KINDS = {
    "kill": FaultKind("the rank's process is killed", True, KILLED),
    "pause": FaultKind("the rank is paused until all others have ended", True, 1, sayings.LATE),
    "blink": FaultKind("the rank is paused for less than half of PEER_TIMEOUT", False),
    "disconnect": FaultKind("the rank loses its network", True, 1, sayings.CUT_OFF),
    "disk": FaultKind("the rank's files can grow no more, as on a full disk", True, 1, sayings.FULL),
    "stranger": FaultKind("an untrusted peer sends garbage to rank 0's port, and holds connections open", False),
}
TWO = "two"  # two faults of AT_ONCE at the same time
AT_ONCE = ("kill", "pause", "disconnect")

NAMES = (*KINDS, TWO)
