"""CPUs as the kernel gives them: quotas of both control group versions, and cores that ranks share; and its disks."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.machine import source
from app.machine.cpus import Machine, fair_share, look, quota_cpus, threads, throttled_seconds
from app.machine.folders import unwritten
from app.machine.process import peak_memory_bytes

ROOT = Path(__file__).parents[2]


def machine(cores: range, quota: float | None = None, host: str = "a") -> Machine:
    return Machine(
        host,
        tuple(cores),
        quota,
        memory_bytes=2**30,
        cpu_model="any",
        bfloat16=True,
        kernel="6",
        congestion_control=None,
    )


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000\n", None), ("50000 100000\n", 0.5), ("150000 100000\n", 1.5), ("20000 20000\n", 1)]
)
def test_version_2_quota(tmp_path: Path, text: str, cpus: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert quota_cpus(tmp_path) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", None), ("50000", 0.5), ("250000", 2.5)])
def test_version_1_quota(tmp_path: Path, quota: str, cpus: float | None) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert quota_cpus(tmp_path) == cpus


def test_no_control_group_is_no_quota(tmp_path: Path) -> None:
    assert quota_cpus(tmp_path) is None


@pytest.mark.parametrize(
    ("cores", "ranks", "quota", "expected"),
    [
        (16, 1, None, 16),
        (16, 4, None, 4),
        (2, 4, None, 1),
        (16, 4, 2.0, 2),
        (16, 4, 0.5, 1),
        (16, 3, None, 5),
        (8, 4, 1.9, 1),
    ],
)
def test_threads_follow_the_cpus_that_a_rank_really_has(
    cores: int, ranks: int, quota: float | None, expected: int
) -> None:
    here = [machine(range(cores), quota) for _ in range(ranks)]
    assert threads(here[0], here) == expected


def test_ranks_on_another_host_take_nothing() -> None:
    alone = machine(range(4))
    assert threads(alone, [alone, machine(range(4), host="b"), machine(range(4), host="c")]) == 4


def test_ranks_pinned_to_cores_of_their_own_do_not_share_them() -> None:
    first, second = machine(range(4)), machine(range(4, 8))
    assert fair_share(first, [first, second]) == 4


def test_this_machine_can_be_read() -> None:
    here = look()
    assert here.boot_id
    assert here.cores
    assert here.cpu_model


@pytest.mark.parametrize(
    ("file", "text", "seconds"),
    [
        ("cpu.stat", "usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n", 2.5),
        ("cpu/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 1500000000\nburst_time 0\n", 1.5),
        ("cpu.stat", "usage_usec 9\n", None),  # a group without the controller
    ],
)
def test_the_time_that_a_quota_held_back(tmp_path: Path, file: str, text: str, seconds: float | None) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert throttled_seconds(tmp_path) == seconds


def test_what_is_not_told_is_none(tmp_path: Path) -> None:
    assert throttled_seconds(tmp_path) is None


# More than the process had at any moment, and then less.
PEAK = """
from app.machine.process import peak_memory_bytes
before = peak_memory_bytes()
block = bytearray(b"x") * (3 * before)
del block
print([before, 3 * before, peak_memory_bytes()])
"""


def test_the_peak_of_memory_stays_when_the_memory_has_gone(tmp_path: Path) -> None:
    before, size, after = json.loads(subprocess.check_output([sys.executable, "-c", PEAK], cwd=ROOT))
    assert size <= after < size + 2 * before
    assert peak_memory_bytes(tmp_path / "status") is None
    (tmp_path / "status").write_text("Name:\tpython3\nVmRSS:\t   12 kB\n")
    assert peak_memory_bytes(tmp_path / "status") is None


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EACCES, "writable"),
        (errno.EROFS, "writable"),
        (errno.EIO, "Check that disk"),
    ],
)
def test_what_could_not_be_written_is_told_with_the_cure_for_its_reason(number: int, cure: str) -> None:
    error = OSError(number, os.strerror(number), "results/a")
    assert re.search(f"results/a\\b.*{os.strerror(number)}.*{cure}", unwritten(error))
    assert re.search(f"results/[^a].*{os.strerror(number)}.*{cure}", unwritten(error, "results/"))


def test_a_full_device_is_refused_by_its_own_words() -> None:
    with pytest.raises(OSError, match="No space left") as refused, Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")
    assert "Free some space" in unwritten(refused.value, "/dev/full")


def test_the_list_of_packages_that_the_image_is_built_with_has_the_decisive_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (source.packages_sha256(), source.package_versions()) == (None, None)
    (command,) = re.findall(r"dpkg-query .* > PACKAGES", (ROOT / "docker/Dockerfile").read_text())
    subprocess.run(["sh", "-c", command], check=True)
    before = source.packages_sha256(), source.package_versions()
    assert set(before[1] or ()) == {*source.DECISIVE}
    listed = source.PACKAGES.read_text()
    source.PACKAGES.write_text(re.sub(r"(?<=^python3-torch ).*", "1:0", listed, flags=re.MULTILINE))
    assert source.packages_sha256() != before[0]
    assert source.package_versions() == (before[1] or {}) | {"python3-torch": "1:0"}
