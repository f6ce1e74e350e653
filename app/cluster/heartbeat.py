"""The heartbeat message of the failure detector: a single datagram type that holds its sender's whole state."""

import hmac
import json
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from app.cluster.activity import UNKNOWN, Activity

LARGEST = 8192  # bytes of a datagram
LONGEST_REASON = 1000  # characters, each of at most six bytes in JSON
_Reason = Annotated[str, Field(max_length=LONGEST_REASON)]


@dataclass(frozen=True)
class Heartbeat:
    """A rank's state as it reports it. Any heartbeat may be lost, duplicated or delayed."""

    rank: int
    call: int = 0  # above 0: a request to answer with this number
    answer: int = 0  # the number of the call that this answers
    done: bool = False  # it has finished
    ending: _Reason = ""  # why it ends early, if not because of a lost rank
    standstill: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0  # seconds, see Judgement
    lost: tuple[int, ...] = ()  # the ranks of its verdict
    reason: _Reason = ""  # given in the verdict
    deterministic: bool = False  # whether every attempt would end for that reason
    stop: Annotated[int, Field(ge=0)] = 0  # the step after which it proposes to stop; 0 without a request
    deadlock: bool = False  # its verdict: no rank is lost, but all wait for each other
    activity: Activity = UNKNOWN  # left out beside a reason, so that a datagram holds both


def pack(heartbeat: Heartbeat, password: str) -> bytes:
    """Encode a heartbeat, without the fields that have their default."""
    content = {name: value for name, value in asdict(heartbeat).items() if name == "rank" or value != _DEFAULTS[name]}
    return json.dumps([password, content]).encode()


def unpack(datagram: bytes, password: str) -> Heartbeat | None:
    """Decode a datagram; None unless it is a valid heartbeat with the right password."""
    try:
        theirs, content = json.loads(datagram)
        if not hmac.compare_digest(str(theirs).encode(), password.encode()):
            return None
        return _HEARTBEAT.validate_json(json.dumps(content), strict=True)
    except (ValueError, TypeError, RecursionError, ValidationError):
        return None


_DEFAULTS = asdict(Heartbeat(0))
_HEARTBEAT = TypeAdapter(Heartbeat)
