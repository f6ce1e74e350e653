"""Network interfaces: their bytes are counted, and one that is gone ends its rank with one message."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from app.errors import NetworkLostError
from app.machine import interfaces
from app.machine.interfaces import LOOPBACK, ByteCounter
from app.training.counters import Counters, Interface

GONE = "^rank 2: cut off from the other ranks: its network interface eth0 is gone. Was its container disconnected"


@contextmanager
def process_that_waits() -> Iterator[Popen[bytes]]:
    with Popen([sys.executable, "-c", "input()"], stdin=PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def test_every_byte_counts() -> None:
    counter = ByteCounter(0, LOOPBACK, "rx")
    before = counter.read()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x" * 1000, ("127.0.0.1", 9))
    assert counter.read() >= before + 1000


def test_an_interface_that_never_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "INTERFACES", tmp_path)
    with pytest.raises(NetworkLostError, match=GONE):
        Interface(2, "eth0")


def test_an_interface_that_goes_ends_the_rank_even_if_another_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No test may remove an interface. Files of a process that ends go the same way: they are the kernel's as well.
    monkeypatch.setattr(interfaces, "INTERFACES", tmp_path)
    statistics = tmp_path / "eth0/statistics"
    statistics.mkdir(parents=True)
    with process_that_waits() as process:
        for way in ("tx", "rx"):
            (statistics / f"{way}_bytes").symlink_to(f"/proc/{process.pid}/oom_score")
        interface = Interface(2, "eth0")
        Counters.read(interface)
    for way in ("tx", "rx"):
        (statistics / f"{way}_bytes").unlink()
        (statistics / f"{way}_bytes").write_text("0\n")
    with pytest.raises(NetworkLostError, match=GONE):
        Counters.read(interface)
