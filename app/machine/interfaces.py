"""The network interfaces of this machine, as the kernel shows them."""

from pathlib import Path
from typing import Literal

INTERFACES = Path("/sys/class/net")
LOOPBACK = "lo"


def names() -> list[str]:
    """All their names."""
    return sorted(path.name for path in INTERFACES.iterdir() if path.is_dir())


def mtu_bytes(name: str) -> int:
    """The largest packet that passes."""
    return int((INTERFACES / name / "mtu").read_text())


def counted_bytes(name: str, way: Literal["tx", "rx"]) -> int:
    """All bytes that have passed since the interface was created, headers included."""
    return int((INTERFACES / name / "statistics" / f"{way}_bytes").read_text())


def is_one_end_of_a_pair(name: str) -> bool:
    """Whether its other end lies elsewhere, as a container's does; the host's own interfaces have no other end."""
    index, other_end = ((INTERFACES / name / file).read_text() for file in ("ifindex", "iflink"))
    return index != other_end
