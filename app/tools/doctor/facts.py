"""The facts that a rank determines about itself without communication."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

import app
from app.machine.cpus import CGROUP, memory_limit_bytes
from app.machine.interfaces import mtu_bytes
from app.machine.source import source_sha256

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # only inspected, never written


@dataclass(frozen=True)
class Facts:
    """One rank's facts, in addition to those that the join exchanges; None for a fact that could not be read."""

    mtu_bytes: int | None  # the largest packet that the interface sends
    shared_memory_bytes: int | None
    shared_memory_free_bytes: int | None
    memory_limit_bytes: int | None  # None also without a limit
    memory_free_bytes: int  # of the whole host
    torch_version: str
    lockstep_version: str
    source_sha256: str
    unread: dict[str, str]  # the reason for each fact that could not be read


def look(interface: str) -> Facts:
    """Read all facts. A fact that cannot be read is None, with the reason in `unread`."""
    unread: dict[str, str] = {}

    def attempt[Value](what: str, read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except (OSError, ValueError) as error:
            unread[what] = str(error)
            return None

    shared_memory = attempt("the size of /dev/shm", lambda: os.statvfs(SHARED_MEMORY))
    return Facts(
        mtu_bytes=attempt("the MTU", lambda: mtu_bytes(interface)),
        shared_memory_bytes=shared_memory and shared_memory.f_blocks * shared_memory.f_frsize,
        shared_memory_free_bytes=shared_memory and shared_memory.f_bavail * shared_memory.f_frsize,
        memory_limit_bytes=attempt("the memory limit", lambda: memory_limit_bytes(CGROUP)),
        memory_free_bytes=int(psutil.virtual_memory().available),
        torch_version=torch.__version__,
        lockstep_version=app.__version__,
        source_sha256=source_sha256(),
        unread=unread,
    )
