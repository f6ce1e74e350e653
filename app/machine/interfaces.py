"""The network interfaces of this machine, as the kernel shows them."""

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
LONGEST_NUMBER = 32  # bytes, more than any counter's digits


def names() -> list[str]:
    return sorted(path.name for path in INTERFACES.iterdir() if path.is_dir())


Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Carried:
    """What an interface has carried since it was created, for all programs, headers included."""

    name: str
    address: str
    mtu_bytes: Count
    sent_bytes: Count
    received_bytes: Count


def carried() -> list[Carried]:
    """Of every interface with an address that leads out of this machine, so neither the loopback nor a bridge in it."""
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
    """Counts all bytes that pass one way, headers included.

    The file stays open: it fails once the interface is gone, even if a new one, which counts from zero and is not
    shaped, has the same name.
    """

    def __init__(self, rank: int, name: str, way: Literal["tx", "rx"]) -> None:
        self._rank, self._name = rank, name
        try:
            self._file = os.open(INTERFACES / name / "statistics" / f"{way}_bytes", os.O_RDONLY)
        except FileNotFoundError:
            raise cut_off(rank, name) from None
        weakref.finalize(self, os.close, self._file)

    def read(self) -> int:
        """Bytes since the interface was created."""
        try:
            return int(os.pread(self._file, LONGEST_NUMBER, 0))
        except OSError:
            raise cut_off(self._rank, self._name) from None


def cut_off(rank: int, name: str) -> NetworkLostError:
    """The error of a rank whose interface is gone."""
    return NetworkLostError(
        f"rank {rank}: cut off from the other ranks: its network interface {name} is gone. Was its container "
        "disconnected from the network, or the network removed? Start the cluster again."
    )


def is_one_end_of_a_pair(name: str) -> bool:
    """Whether its other end lies elsewhere, as a container's does; the host's own interfaces have no other end."""
    index, other_end = ((INTERFACES / name / file).read_text() for file in ("ifindex", "iflink"))
    return index != other_end
