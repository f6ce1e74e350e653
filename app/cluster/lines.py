"""Messages of the join: one line of JSON each, of limited length, with a deadline for every wait."""

import json
import socket
import time
from typing import Any

LONGEST_REQUEST = 1 << 18  # bytes: a registration has about 2,000, Gloo's addresses 100 per rank
LONGEST_ANSWER = 1 << 24  # the table of all ranks
CHUNK = 1 << 16


class InvalidMessageError(ValueError):
    """The data received is not a message of the join."""


def pack(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def unpack(line: bytes) -> dict[str, Any]:
    """Parse a message from an untrusted peer; raises InvalidMessageError if it is not a JSON object."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        raise InvalidMessageError("not a line of JSON") from None
    if not isinstance(message, dict):
        raise InvalidMessageError("not a JSON object")
    return message


class LineConnection:
    """A connection between a rank and rank 0, with a deadline for every message."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrived = bytearray()

    def send(self, message: dict[str, Any], deadline: float) -> None:
        self._limit(deadline)
        self._connection.sendall(pack(message))

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message; raises TimeoutError at the deadline, ConnectionError if the other end has closed."""
        searched = 0
        while (end := self._arrived.find(b"\n", searched)) < 0:
            searched = len(self._arrived)
            if searched > LONGEST_ANSWER:
                raise InvalidMessageError("line too long")
            self._limit(deadline)
            if not (chunk := self._connection.recv(CHUNK)):
                raise ConnectionResetError("connection closed")
            self._arrived += chunk
        line = bytes(self._arrived[:end])
        del self._arrived[: end + 1]
        return unpack(line)

    def _limit(self, deadline: float) -> None:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
