"""What a rank reports of a trial, and the bytes in which it travels: nothing in them can run code when it is read."""

import json
import struct
from dataclasses import dataclass, field, fields

import numpy as np

from app.tools.conformance.cases import Gradients

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class TrialOutcome:
    """What one rank had in the end."""

    gradients: list[Gradients]  # of each step, of the parameters that have one then
    places: list[list[int]]  # of each step: which parameters those are
    sent: float  # counted, in the last step
    sent_in_all: float  # counted, in all steps
    received: float
    formula: float | None  # None: the mode states no cost
    seconds: float
    law: str  # the class of what the mode promises
    moved: list[int] = field(default_factory=list)  # parameters whose values have changed
    touched: list[str] = field(default_factory=list)  # global random generators
    resumed: Gradients | None = None  # the last step's, by a fresh mode that was given the state before it
    zeros: Gradients | None = None  # what became of zero gradients
    many: Gradients | None = None  # what came out of many steps, for a law about many; steps come first


ARRAYS = ("resumed", "zeros", "many")


def pack(outcome: TrialOutcome) -> bytes:
    """A line of JSON about all but the arrays, and the arrays' bytes."""
    lists = [*outcome.gradients, *(getattr(outcome, name) for name in ARRAYS)]
    scalars = [each.name for each in fields(outcome) if each.name not in ("gradients", *ARRAYS)]
    told = {name: getattr(outcome, name) for name in scalars}
    told["forms"] = [None if each is None else [(str(one.dtype), one.shape) for one in each] for each in lists]
    head = json.dumps(told).encode()
    arrays = [np.ascontiguousarray(one).tobytes() for each in lists if each is not None for one in each]
    return b"".join([LENGTH.pack(len(head)), head, *arrays])


def unpack(content: bytes) -> TrialOutcome:
    """The outcome again; a ValueError for whatever else a process may have sent."""
    try:
        (length,) = LENGTH.unpack_from(content)
        start = LENGTH.size + length
        told = json.loads(content[LENGTH.size : start])
        lists: list[Gradients | None] = []
        for forms in told.pop("forms"):
            arrays: Gradients | None = None if forms is None else []
            for dtype, shape in forms or []:
                if dtype not in ("float16", "float32", "float64"):
                    raise ValueError(dtype)
                array = np.frombuffer(content, dtype, int(np.prod(shape, dtype=np.int64)), start).reshape(shape)
                start += array.nbytes
                arrays.append(array)  # type: ignore[union-attr]  # forms is a list here
            lists.append(arrays)
        *steps, resumed, zeros, many = lists
        if None in steps or not isinstance(told["law"], str):
            raise ValueError("no steps")
        return TrialOutcome(
            gradients=[each or [] for each in steps],
            resumed=resumed,
            zeros=zeros,
            many=many,
            **told,
        )
    except (LookupError, TypeError, ValueError, struct.error, RecursionError, MemoryError) as error:
        raise ValueError("not an outcome") from error
