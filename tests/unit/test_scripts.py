"""The scripts' own decisions, each function called in a real bash."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = "; ".join(f". scripts/host/{part}.sh" for part in ("messages", "engine", "settings", "network"))


def bash(command: str, **environment: str) -> tuple[int, str]:
    result = subprocess.run(
        ["bash", "-c", f"{PARTS}; {command}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "setting"),
    [("SYNC_MODES", "SYNC_MODE"), ("SYNC_MDOE", "SYNC_MODE"), ("SYNCMODE", "SYNC_MODE"), ("WORKERZ", "WORKERS")],
)
def test_a_name_one_letter_off_is_warned_of(name: str, setting: str) -> None:
    code, output = bash("warn_of_near_misses", **{name: "x"})
    assert (code, output) == (0, f"warning: {name} is set, and is not a setting. Was {setting} meant?\n")


@pytest.mark.parametrize("name", ["SYNC_MODE", "HOME", "SYNCHRONISATION", "WORKSHOP"])
def test_other_names_are_left_in_peace(name: str) -> None:
    assert bash("warn_of_near_misses", **{name: "x"}) == (0, "")


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("10.77.1.0/24", "10.77.1.0/24", True),
        ("10.77.1.0/24", "10.77.0.0/16", True),
        ("10.77.1.0/24", "10.77.1.130/32", True),
        ("10.77.1.0/24", "10.77.2.0/24", False),
        ("10.77.1.0/24", "172.17.0.0/16", False),
        ("10.77.1.0/24", "0.0.0.0/0", True),
        ("10.77.1.0/24", "fd00::/64", False),
    ],
)
def test_subnets_that_share_an_address_are_told_from_others(one: str, other: str, common: bool) -> None:
    assert (bash(f"overlap {one} {other}")[0] == 0) is common


@pytest.mark.parametrize("prefix", ["10.77.1", "192.168.0", "10.10.10"])
def test_a_network_prefix(prefix: str) -> None:
    assert bash(f"is_prefix {prefix}")[0] == 0


@pytest.mark.parametrize("prefix", ["10.77", "10.77.1.0", "10.77.256", "0.1.2", "127.0.0", "224.0.0", "a.b.c", "''"])
def test_no_network_prefix(prefix: str) -> None:
    assert bash(f"is_prefix {prefix}")[0] != 0


@pytest.mark.parametrize("distribution", ["debian 12", "debian 13", "ubuntu 22.04", "ubuntu 24.04"])
@pytest.mark.parametrize("part", ["engine", "compose", "buildx"])
def test_every_part_has_packages_on_the_distributions_that_are_known(part: str, distribution: str) -> None:
    code, packages = bash(f"packages_for {part} '{distribution}'")
    assert code == 0
    assert "docker" in packages


@pytest.mark.parametrize(
    ("system", "distribution", "advice"),
    [
        ("Darwin", "", "Docker Desktop"),
        ("Linux", "fedora 42", "sudo dnf install moby-engine docker-compose docker-buildx"),
        ("Linux", "plan9 4", "install Docker Engine, the Compose v2 plug-in and the buildx plug-in"),
    ],
)
def test_elsewhere_it_says_what_to_install(system: str, distribution: str, advice: str) -> None:
    stand_ins = f"uname() {{ echo {system}; }}; distribution() {{ echo '{distribution}'; }}"
    code, output = bash(f"{stand_ins}; install_packages engine")
    assert code == 1
    assert advice in output


@pytest.mark.parametrize(
    ("version", "accepted"),
    [("2.21.0", False), ("v2.9.0", False), ("2.22.0", True), ("2.26.1-4", True), ("v2.40.3", True), ("5.0.0", True)],
)
def test_a_compose_that_cannot_read_the_cluster_is_refused(version: str, accepted: bool) -> None:
    code, output = bash(f"docker() {{ echo {version}; }}; check_compose_version")
    assert (code, output == "") == (0, True) if accepted else (1, False)
    assert accepted or f"Docker Compose {version} is too old: 2.22 or newer is needed." in output
