"""A rank's outcome of a trial, and its encoding as bytes, which cannot execute code when they are decoded."""

import json
import struct
from dataclasses import dataclass, field, fields

import numpy as np

from app.tools.conformance.cases import Gradients

LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class TrialOutcome:
    """The results of one rank in a trial."""

    gradients: list[Gradients]  # by step, of the parameters that have one afterwards
    places: list[list[int]]  # by step, the indices of these parameters
    sent: float  # payload that the communicator counted in the last step, in bytes
    sent_in_all: float  # the same for all steps
    received: float
    formula: float | None  # None if the mode defines no cost
    seconds: float
    law: str  # the class of the mode's guarantee
    moved: list[int] = field(default_factory=list)  # parameters whose values changed
    touched: list[str] = field(default_factory=list)  # global random generators whose state changed
    resumed: Gradients | None = None  # of the last step, by a new mode that loaded the state before it
    zeros: Gradients | None = None  # the results for zero gradients
    many: Gradients | None = None  # for laws about many steps; the first dimension is the step


ARRAYS = ("resumed", "zeros", "many")


def pack(outcome: TrialOutcome) -> bytes:
    """Encode an outcome as the length of a JSON header, the header, and the bytes of all arrays."""
    lists = [*outcome.gradients, *(getattr(outcome, name) for name in ARRAYS)]
    scalars = [each.name for each in fields(outcome) if each.name not in ("gradients", *ARRAYS)]
    told = {name: getattr(outcome, name) for name in scalars}
    told["forms"] = [None if each is None else [(str(one.dtype), one.shape) for one in each] for each in lists]
    head = json.dumps(told).encode()
    arrays = [np.ascontiguousarray(one).tobytes() for each in lists if each is not None for one in each]
    return b"".join([LENGTH.pack(len(head)), head, *arrays])


def unpack(content: bytes) -> TrialOutcome:
    """Decode an outcome from an untrusted process; raises ValueError if the bytes are not one."""
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
