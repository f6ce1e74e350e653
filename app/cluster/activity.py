"""What a rank is doing while others wait for it, and whether all ranks wait for each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Annotated

from pydantic import Field

from app.machine.say import escaped

LONGEST_TEXT = 200  # characters, each of at most twelve bytes in JSON
MOST_PEERS = 200  # of each direction
COMPUTING, IN_PYTORCH = "computing", "in PyTorch"
ROOTED = ("broadcast", "gather", "scatter")
TIMED_OUT_PART = 0.9  # of PEER_TIMEOUT: if no rank waited this long, the operation failed for another reason

_Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
_Ranks = Annotated[tuple[int, ...], Field(max_length=MOST_PEERS)]


@dataclass(frozen=True)
class Activity:
    """What the training thread of a rank is doing."""

    doing: _Text = ""  # the operation and its moment, if it is in one
    waited: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None  # seconds in an operation
    place: _Text = ""  # file, line and function of the code that does so
    sends: _Ranks = ()  # receivers of the messages that are not known to be complete
    receives: _Ranks = ()  # their senders

    def __str__(self) -> str:
        return escaped(f"{self.doing or 'unknown'}{f' ({self.place})' if self.place else ''}")


UNKNOWN = Activity()


def is_deadlock(everyones: Mapping[int, Activity], peer_timeout: float) -> bool:
    """Whether every rank waits, and none for an operation that its other ranks have started as well.

    Such an operation may only be slow. A rank leaves a collective that has a root before the others, so the root and
    one more rank are enough.
    """
    operations = [each.doing for each in everyones.values()]
    passing = any(
        other in everyones and rank in everyones[other].receives
        for rank, each in everyones.items()
        for other in each.sends
    )
    root = everyones[min(everyones)].doing
    rooted = root.startswith(ROOTED) and operations.count(root) > 1
    waited = [each.waited for each in everyones.values() if each.waited is not None]
    timed_out = len(waited) == len(everyones) and max(waited) >= peer_timeout * TIMED_OUT_PART
    return timed_out and not (passing or rooted) and len(set(operations)) > 1


def place_of(innermost: FrameType | None) -> tuple[str, bool]:
    """Where a thread in this frame is, and whether it is in PyTorch.

    The innermost frame of an extension counts, because it is the user's code. Without one it is the innermost frame of
    this program outside the communicator.
    """
    frame = innermost
    own: FrameType | None = None
    while frame and not _module(frame).startswith("extensions."):
        if own is None and _module(frame).startswith("app.") and not _module(frame).startswith("app.cluster."):
            own = frame
        frame = frame.f_back
    in_pytorch = innermost is not None and _module(innermost).startswith("torch.")
    if not (found := frame or own):
        return "", in_pytorch
    return f"{_module(found).replace('.', '/')}.py, line {found.f_lineno}, in {found.f_code.co_name}", in_pytorch


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
