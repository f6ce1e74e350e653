"""A node of CloudLab: what `scripts/host/ready_node` sets up, and what it says where it cannot."""

import json
import os
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = "; ".join(f". scripts/host/{part}.sh" for part in ("messages", "engine", "network", "node"))
PATIENCE = "DISK_PATIENCE_SECONDS=0 ADDRESS_PATIENCE_SECONDS=0 ENGINE_PATIENCE_SECONDS_AT_BOOT=0 ENGINE_PAUSE_SECONDS=0"
EXPERIMENT = IPv4Network("10.10.1.0/24")


def bash(command: str) -> tuple[int, str]:
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{PARTS}; {PATIENCE}; {command}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(("disk", "place"), [("/mydata", "/mydata/docker"), ("", None)])
def test_docker_keeps_everything_on_the_disk_and_its_networks_elsewhere(disk: str, place: str | None) -> None:
    settings = json.loads(bash(f"engine_settings '{disk}'")[1])
    assert settings.get("data-root") == place
    assert settings["features"] == {"containerd-snapshotter": False}, "its store would not follow data-root"
    pools = [IPv4Network(pool["base"]) for pool in settings["default-address-pools"]]
    assert pools
    taken = (EXPERIMENT, IPv4Network("10.77.0.0/16"), IPv4Network("10.0.0.0/16"), IPv4Network("172.16.0.0/12"))
    assert not any(pool.overlaps(other) for pool in pools for other in taken)


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "docker/daemon.json"
    configure = f"ENGINE_SETTINGS='{place}'; engine_answers() {{ true; }}; service() {{ echo \"restarted: $*\"; }}"
    configure += "; write_condition() { true; }; systemctl() { service \"$@\"; }; configure_engine '/mydata'"
    code, output = bash(configure)
    assert code == 0
    assert "restarted" in output
    first = place.stat()
    assert bash(configure) == (0, "")
    assert place.stat() == first


def test_an_engine_that_is_not_there_yet_is_not_restarted(tmp_path: Path) -> None:
    place = f"ENGINE_SETTINGS='{tmp_path}/daemon.json'; engine_answers() {{ false; }}"
    assert bash(f"{place}; configure_engine ''") == (0, "")
    assert (tmp_path / "daemon.json").exists()


def test_settings_of_somebody_else_are_left_untouched(tmp_path: Path) -> None:
    place = tmp_path / "daemon.json"
    place.write_text('{"debug": true}')
    code, output = bash(f"ENGINE_SETTINGS='{place}'; configure_engine /mydata")
    assert code == 1
    assert "left untouched" in output
    assert '"data-root": "/mydata/docker"' in output
    assert place.read_text() == '{"debug": true}'


def test_a_disk_that_does_not_come_is_named(tmp_path: Path) -> None:
    code, output = bash(f"await_disk '{tmp_path}'")
    assert code == 1
    assert f"no disk is mounted at {tmp_path} after 0 s" in output
    assert bash("await_disk /proc") == (0, "")


def test_the_engine_is_tried_again_while_there_is_time(tmp_path: Path) -> None:
    attempts = f"ready_engine() {{ echo x >>'{tmp_path}/attempts'; [[ $(wc -l <'{tmp_path}/attempts') -gt 2 ]]; }}"
    code, output = bash(f"ENGINE_PATIENCE_SECONDS_AT_BOOT=60; {attempts}; await_engine")
    assert code == 0
    assert output.count("Retrying") == 2
    code, output = bash("ready_engine() { fail missing-program 'no mirror answers'; }; await_engine")
    assert code == 1
    assert output.index("no mirror answers") < output.index("error: [node-not-ready]")


@pytest.mark.parametrize(
    ("interfaces", "found"),
    [
        ("2: eno1 inet 128.110.2.7/21\n3: ens1f0 inet 10.10.1.12/24", "10.10.1.12 ens1f0\n"),
        ("2: eno1 inet 128.110.2.7/21\n3: ens1f0 inet 10.10.10.2/24\n4: d inet 10.200.0.1/24", ""),
        ("2: ens1 inet 10.10.1.1/24\n4: d inet 10.10.1.9/24", "10.10.1.1 ens1\n"),
    ],
)
def test_the_address_on_the_experiment_network_is_found_or_missed(interfaces: str, found: str) -> None:
    output = f"ip() {{ printf '%s\\n' '{interfaces}'; }}"
    assert bash(f"{output}; address_in $NETWORK_OF_PROFILE") == (0, found)
    code, said = bash(f"{output}; await_address")
    assert code == (0 if found else 1)
    assert found or "no interface has an address in 10.10.1.0/24" in said


@pytest.mark.parametrize(
    ("arguments", "word"), [(["mydata"], "[invalid-argument]"), (["/a", "/b"], "[invalid-argument]")]
)
def test_wrong_arguments_are_refused(arguments: list[str], word: str) -> None:
    result = subprocess.run([ROOT / "scripts/host/ready_node", *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert word in result.stderr


def test_without_root_nothing_begins() -> None:
    as_nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    command = [*as_nobody, "bash", f"{ROOT}/scripts/host/ready_node", "/mydata"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert "error: [no-permission]" in result.stdout
    assert f"To retry: sudo {ROOT}/scripts/host/ready_node /mydata" in result.stdout
