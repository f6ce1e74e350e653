"""Messages of the join: a line of JSON each, with a greatest length, over a connection whose every wait has an end."""

import json
import socket
import time
from typing import Any

LONGEST_REQUEST = 1 << 18  # bytes: a registration has about two thousand, Gloo's addresses a hundred for each rank
LONGEST_ANSWER = 1 << 24  # the table of all ranks
CHUNK = 1 << 16


class NoSuchMessageError(ValueError):
    """What arrived is no message of the join."""


def pack(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def unpack(line: bytes) -> dict[str, Any]:
    """Read a message, whoever sent it."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested beyond measure
        raise NoSuchMessageError("not a line of JSON") from None
    if not isinstance(message, dict):
        raise NoSuchMessageError("not a JSON object")
    return message


class LineConnection:
    """One end of a connection to rank 0."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrived = bytearray()

    def send(self, message: dict[str, Any], deadline: float) -> None:
        self._limit(deadline)
        self._connection.sendall(pack(message))

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message; TimeoutError at the deadline, ConnectionError if the other end has gone."""
        searched = 0
        while (end := self._arrived.find(b"\n", searched)) < 0:
            searched = len(self._arrived)
            if searched > LONGEST_ANSWER:
                raise NoSuchMessageError("a line without an end")
            self._limit(deadline)
            if not (chunk := self._connection.recv(CHUNK)):
                raise ConnectionResetError("it closed the connection")
            self._arrived += chunk
        line = bytes(self._arrived[:end])
        del self._arrived[: end + 1]
        return unpack(line)

    def _limit(self, deadline: float) -> None:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError("no answer in time")
        self._connection.settimeout(left)
