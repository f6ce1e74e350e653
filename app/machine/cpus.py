"""The CPUs that this process can use, by quota and affinity, and the other ranks that share them."""

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import Field

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CPU_INFO = Path("/proc/cpuinfo")
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
CGROUP = Path("/sys/fs/cgroup")
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # on x86; the last one on Arm
FAST_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
    "bf16",
)
NO_LIMIT_BYTES = 2**60  # cgroup version 1 represents "no limit" by a number above this


@dataclass(frozen=True)
class Machine:
    """One rank's view of its host. The bounds validate data from another rank."""

    boot_id: str  # the same for all containers of one host
    cores: tuple[Annotated[int, Field(ge=0, le=65_535)], ...]  # numbers of the allowed cores
    # CPUs that the cgroup allows; None without a limit
    quota_cpus: Annotated[float | None, Field(gt=0, le=65_536, allow_inf_nan=False)]
    memory_bytes: Annotated[int, Field(ge=0, le=2**60)]
    cpu_model: str
    bfloat16: bool  # whether the CPU has bfloat16 instructions
    kernel: Annotated[str, Field(max_length=255)]  # release of the kernel
    congestion_control: Annotated[str | None, Field(max_length=64)]  # of TCP; None if the kernel does not report it


def boot_id() -> str:
    """The identifier of this machine since its last boot."""
    return BOOT_ID.read_text().strip()


def look() -> Machine:
    return Machine(
        boot_id=boot_id(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        quota_cpus=quota_cpus(CGROUP),
        memory_bytes=int(psutil.virtual_memory().total),
        cpu_model=_cpu_info("model name") or platform.machine(),
        bfloat16=has_bfloat16(_cpu_info("flags", "Features")),
        kernel=platform.release(),
        congestion_control=CONGESTION_CONTROL.read_text().strip() if CONGESTION_CONTROL.is_file() else None,
    )


def quota_cpus(cgroup: Path) -> float | None:
    """The CPU limit of this process's cgroup (version 2 or 1), in CPUs; None without a limit."""
    version_2 = cgroup / "cpu.max"
    if version_2.is_file():
        quota, period = version_2.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    version_1 = cgroup / "cpu"
    try:
        microseconds = int((version_1 / "cpu.cfs_quota_us").read_text())
        period_microseconds = int((version_1 / "cpu.cfs_period_us").read_text())
    except FileNotFoundError:
        return None
    return microseconds / period_microseconds if microseconds > 0 else None


def memory_limit_bytes(cgroup: Path) -> int | None:
    """The memory limit of this process's cgroup (version 2 or 1); None without a limit."""
    for file in (cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"):
        if file.is_file():
            text = file.read_text().strip()
            return None if text == "max" or int(text) >= NO_LIMIT_BYTES else int(text)
    return None


class Throttling:
    """Reads how long the quota has throttled this process's cgroup (version 2 or 1).

    The file stays open, because a step reads it several times.
    """

    def __init__(self, cgroup: Path) -> None:
        self._file: int | None = None
        for file, name, unit in (("cpu.stat", b"throttled_usec", 1e-6), ("cpu/cpu.stat", b"throttled_time", 1e-9)):
            if self._file is None and (cgroup / file).is_file():
                self._file, self._name, self._unit = os.open(cgroup / file, os.O_RDONLY), name, unit

    def seconds(self) -> float | None:
        """Total throttled time; None if the kernel does not report it."""
        if self._file is None:
            return None
        _, name, rest = os.pread(self._file, os.sysconf("SC_PAGESIZE"), 0).partition(self._name)
        return int(rest.split(maxsplit=1)[0]) * self._unit if name else None

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)


def throttled_seconds(cgroup: Path) -> float | None:
    """Total throttled time of this process's cgroup; None if the kernel does not report it."""
    return Throttling(cgroup).seconds()


def busy_seconds() -> float:
    """CPU time of all programs and the kernel since this machine's boot."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def fair_share(machine: Machine, ranks: Sequence[Machine]) -> float:
    """CPUs of a rank if each core is divided equally among the ranks that may run on it, up to the quota.

    `ranks` are the machines of all ranks, including this one.
    """
    users = Counter(core for other in ranks if other.boot_id == machine.boot_id for core in other.cores)
    part = sum(1 / users[core] for core in machine.cores)
    return part if machine.quota_cpus is None else min(part, machine.quota_cpus)


def threads(machine: Machine, ranks: Sequence[Machine]) -> int:
    """Compute threads of a rank: its fair share of the CPUs, rounded down, but at least 1."""
    # Tolerance for rounding: 1/3 + 1/3 + 1/3 may be less than 1.
    return max(1, int(fair_share(machine, ranks) + 0.001))


def has_bfloat16(flags: str) -> bool:
    """Whether a CPU with these flags has bfloat16 instructions."""
    return not BFLOAT16_FLAGS.isdisjoint(flags.split())


def instructions() -> list[str]:
    """The CPU's instruction sets that determine training speed."""
    flags = set(_cpu_info("flags", "Features").split())
    return [flag for flag in FAST_FLAGS if flag in flags]


def _cpu_info(*names: str) -> str:
    """The first CPU's value of one of these fields; empty if it has none."""
    for line in CPU_INFO.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""
