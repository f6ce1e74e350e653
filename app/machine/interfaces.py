"""The network interfaces of this machine and their byte counters."""

import os
import socket
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import psutil
from pydantic import Field

from app.errors import NetworkLostError

INTERFACES = Path("/sys/class/net")
LOOPBACK = "lo"
LONGEST_NUMBER = 32  # bytes, more than the digits of any counter


def names() -> list[str]:
    return sorted(path.name for path in INTERFACES.iterdir() if path.is_dir())


Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Carried:
    """Bytes through an interface since it was created, for all programs, headers included."""

    name: str
    address: str
    mtu_bytes: Count
    sent_bytes: Count
    received_bytes: Count


def carried() -> list[Carried]:
    """The counters of every interface with an address, without loopback and bridges, which stay within the machine."""
    counted = psutil.net_io_counters(pernic=True, nowrap=False)
    found = []
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        own = [entry.address for entry in addresses if entry.family == socket.AF_INET]
        if own and name in counted and name != LOOPBACK and not (INTERFACES / name / "bridge").is_dir():
            found.append(Carried(name, own[0], mtu_bytes(name), counted[name].bytes_sent, counted[name].bytes_recv))
    return found


def mtu_bytes(name: str) -> int:
    return int((INTERFACES / name / "mtu").read_text())


class ByteCounter:
    """Counts all bytes in one direction, headers included.

    The file stays open. Reading fails once the interface is gone, even if there is a new one with the same name, which
    would count from zero and would not be shaped.
    """

    def __init__(self, rank: int, name: str, way: Literal["tx", "rx"]) -> None:
        self._rank, self._name = rank, name
        try:
            self._file = os.open(INTERFACES / name / "statistics" / f"{way}_bytes", os.O_RDONLY)
        except FileNotFoundError:
            raise cut_off(rank, name) from None
        weakref.finalize(self, os.close, self._file)

    def read(self) -> int:
        """Bytes since the interface was created; raises NetworkLostError if it is gone."""
        try:
            return int(os.pread(self._file, LONGEST_NUMBER, 0))
        except OSError:
            raise cut_off(self._rank, self._name) from None


def cut_off(rank: int, name: str) -> NetworkLostError:
    """The error of a rank whose network interface is gone."""
    return NetworkLostError(
        f"rank {rank}: cut off from the other ranks: its network interface {name} is gone. Was its container "
        "disconnected from the network, or the network removed? Start all ranks again."
    )


def is_one_end_of_a_pair(name: str) -> bool:
    """Whether the interface has a peer in another namespace, like a container's interfaces, unlike the host's own."""
    index, other_end = ((INTERFACES / name / file).read_text() for file in ("ifindex", "iflink"))
    return index != other_end
