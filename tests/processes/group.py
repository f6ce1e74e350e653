"""Groups of real processes: forked workers that share a Gloo group, and whole ranks as a user would start them."""

import json
import os
import socket
import traceback
from collections.abc import Callable
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from app.tools.conformance.forked import form
from tests.processes.program import PATIENCE_SECONDS as PATIENCE_SECONDS
from tests.processes.program import ROOT as ROOT
from tests.processes.program import Process, processes
from tests.processes.program import Value as Value
from tests.processes.program import start as start
from tests.processes.program import wait as wait

# Below those that the kernel hands out, so that no connection made meanwhile takes one. Each worker has its thousand.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
ports = cycle(range(10_000 + 1000 * WORKER, 11_000 + 1000 * WORKER))


def free_port() -> int:
    """A port that nobody listens on, another one each time."""
    return next(port for port in islice(ports, 1000) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Group:
    """Processes that form one real group and stay in it, to run one function after another on every rank."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._connections: list[Connection] = []
        port = free_port()
        for rank in range(world_size):
            ours, theirs = processes.Pipe()
            processes.Process(target=_be_member, args=(theirs, rank, world_size, port), daemon=True).start()
            theirs.close()
            self._connections.append(ours)
        # A rank that ends while another one still joins would break that one's join, and not what is tested.
        for rank, connection in enumerate(self._connections):
            self._answer(rank, connection)

    def run[Result](self, body: Callable[..., Result], *arguments: object) -> list[Result]:
        """What `body(cluster, *arguments)` gives on each rank, None where it ends its process; any rank's error."""
        for connection in self._connections:
            connection.send((body, arguments))
        return [self._answer(rank, connection) for rank, connection in enumerate(self._connections)]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _answer(self, rank: int, connection: Connection) -> Any:
        if not connection.poll(PATIENCE_SECONDS):
            raise TimeoutError(f"rank {rank} of {self.world_size} gave no answer")
        try:
            result, error = connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        if error:
            raise RuntimeError(f"rank {rank} of {self.world_size}: {error}")
        return result


def _be_member(connection: Connection, rank: int, world_size: int, port: int) -> None:
    cluster = form(rank, world_size, port)
    connection.send((None, None))
    while True:
        try:
            body, arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            os._exit(0)  # as the program itself ends: without Gloo's farewell
        try:
            connection.send((body(cluster, *arguments), None))
        except Exception:
            connection.send((None, traceback.format_exc()))


def run_group[Result](world_size: int, body: Callable[..., Result], *arguments: object) -> list[Result]:
    """What `body(cluster, *arguments)` gives on each rank of a group of its own, which it may leave in disorder."""
    group = Group(world_size)
    try:
        return group.run(body, *arguments)
    finally:
        group.close()


class Ranks:
    """Ranks of one run, each `python -m app train`, or another command, in a process of its own."""

    def __init__(self, folder: Path, world_size: int, command: str = "train", **settings: Value) -> None:
        self.folder = folder
        self.world_size = world_size
        self._command = command
        self._settings: dict[str, Value] = {
            "MODEL": "lenet5",
            "DATASET": "digits",
            "LINK_CHECK": "off",  # a second less for each run; test_link.py is about it
            "JOIN_TIMEOUT": 60,
            "MASTER_PORT": free_port(),
            **settings,
        }
        self.port = self._settings["MASTER_PORT"]
        self.processes: dict[int, Process] = {}
        self.start_one: Callable[..., Process] = start

    def start(self, *ranks: int, **settings: Value) -> None:
        """Start these ranks, or all; some settings may be theirs alone."""
        for rank in ranks or range(self.world_size):
            place: dict[str, Value] = {"RANK": rank, "WORLD_SIZE": self.world_size, "MASTER_ADDR": "127.0.0.1"}
            self.processes[rank] = self.start_one(self._command, self.folder, **{**self._settings, **place, **settings})

    def wait(self) -> dict[int, tuple[int, str]]:
        """Every started rank's exit code and output."""
        return {rank: wait(process) for rank, process in self.processes.items()}

    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "results/latest/summary.json").read_text())
        return content


def prepare(folder: Path, **settings: Value) -> None:
    """Make a working directory ready for a run of LeNet-5 on digits."""
    code, output = wait(start("prepare", folder, **{"MODEL": "lenet5", "DATASET": "digits", **settings}))
    assert code == 0, output


def run(folder: Path, world_size: int, **settings: Value) -> dict[str, Any]:
    """A whole run that has to succeed; its summary."""
    prepare(folder, **settings)
    ranks = Ranks(folder, world_size, "train", **settings)
    ranks.start()
    for rank, (code, output) in ranks.wait().items():
        assert code == 0, f"rank {rank}: {output}"
    return ranks.summary()
