"""The heartbeat message of the failure detector: one kind of datagram that always holds everything its sender knows."""

import hmac
import json
from dataclasses import asdict, dataclass, fields
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

LARGEST = 8192  # bytes of a datagram
LONGEST_REASON = 1000  # characters, each of at most six bytes in JSON
_Reason = Annotated[str, Field(max_length=LONGEST_REASON)]


@dataclass(frozen=True)
class Heartbeat:
    """Everything that a rank reports. Any heartbeat may be lost, duplicated or delayed."""

    rank: int
    call: int = 0  # above 0: a question, to be answered with this number
    answer: int = 0  # the number of the question that this answers
    done: bool = False  # it has finished its work with the others
    ending: _Reason = ""  # why it ends early, for a reason of its own
    standstill: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0  # seconds, a while ago
    lost: tuple[int, ...] = ()  # its verdict
    reason: _Reason = ""  # of the verdict
    comes_again: bool = False  # whether another attempt would end for that reason as well
    stop: Annotated[int, Field(ge=0)] = 0  # the number of steps after which it would stop; 0 if nobody has asked


def pack(heartbeat: Heartbeat, password: str) -> bytes:
    """The datagram, without the fields that have their default."""
    said = {name: value for name, value in asdict(heartbeat).items() if name == "rank" or value != _DEFAULTS[name]}
    return json.dumps([password, said]).encode()


def unpack(datagram: bytes, password: str) -> Heartbeat | None:
    """None unless the datagram is a well-formed heartbeat with the right password."""
    try:
        theirs, said = json.loads(datagram)
        if not hmac.compare_digest(str(theirs).encode(), password.encode()):
            return None
        return _HEARTBEAT.validate_json(json.dumps(said), strict=True)
    except (ValueError, TypeError, RecursionError, ValidationError):
        return None


_DEFAULTS = {each.name: each.default for each in fields(Heartbeat)}
_HEARTBEAT = TypeAdapter(Heartbeat)
