"""An untrusted peer on the ranks' network, which sends garbage to rank 0's port and holds connections open."""

import json
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

CONNECTIONS = 4
MOST_SECONDS = 600.0  # after which it exits by itself
KNOCK_SECONDS = 0.2
CHUNK_BYTES = 65_536
LONGEST_LINE_BYTES = 1 << 28

# The first bytes of each connection, by kind. `line` continues without an end.
RUBBISH: dict[str, Callable[[Random], bytes]] = {
    "nul": lambda chance: b"\0",
    "length": lambda chance: bytes([chance.randrange(16)]) + struct.pack("<Q", 8 << 30),
    "random": lambda chance: chance.randbytes(chance.randint(1, 4096)),
    "line": lambda chance: b"x" * CHUNK_BYTES,
    "json": lambda chance: json.dumps({"seat": "1", "registration": {"x": chance.random()}}).encode() + b"\n",
}


def visit(host: str, port: int, rubbish: str, seed: int) -> None:
    """Send garbage on several connections, and hold them until this process is killed, for MOST_SECONDS at most."""
    chance = Random(seed)  # noqa: S311  # the same garbage for the same seed
    until = time.monotonic() + MOST_SECONDS
    held: list[socket.socket] = []
    while len(held) < CONNECTIONS and time.monotonic() < until:
        try:
            held.append(socket.create_connection((host, port), KNOCK_SECONDS * 10))
        except OSError:
            time.sleep(KNOCK_SECONDS)  # until rank 0 listens
            continue
        with suppress(OSError):
            held[-1].sendall(RUBBISH[rubbish](chance))
    if rubbish == "line":
        _go_on(held, until)
    time.sleep(max(0.0, until - time.monotonic()))


def _go_on(held: list[socket.socket], until: float) -> None:
    """Send an endless line on the first connection, until the peer closes it or a limit is reached."""
    sent = 0
    with suppress(OSError):
        while sent < LONGEST_LINE_BYTES and time.monotonic() < until:
            sent += held[0].send(b"x" * CHUNK_BYTES)
