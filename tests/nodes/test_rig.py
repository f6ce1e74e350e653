"""The rig is what the other tests take it for: machines with two networks each, and nothing of them outside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes import rig as rig_file
from tests.nodes.rig import CGROUPS, CONTROL, DOMAIN, EXPERIMENT, Rig


def ssh(rig: Rig, host: str, command: str) -> subprocess.CompletedProcess[str]:
    line = rig.at_home(
        Path.cwd(), "ssh", "-F", str(rig.folder / "ssh/config"), "-o", "ConnectTimeout=10", host, command
    )
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_every_node_has_two_networks_an_engine_and_its_images(rig: Rig) -> None:
    engines = {rig.docker(node, "info --format {{.ID}}") for node in rig.nodes}
    assert len(engines) == len(rig.nodes)
    for number, node in enumerate(rig.nodes, start=1):
        entries = json.loads(rig.run(node, "ip -json -4 address").stdout)
        addresses = {entry["ifname"]: entry["addr_info"][0]["local"] for entry in entries}
        assert addresses["exp0"] == f"{EXPERIMENT}.{number}"
        assert addresses["ctl0"] == f"{CONTROL}.{number}"
        assert rig.run(node, "ip route show default").stdout == ""
        assert rig.docker(node, "image ls --quiet debian")


def test_full_names_mean_the_control_network_and_short_names_the_experiment_network(rig: Rig) -> None:
    node, other = rig.nodes[:2]
    assert rig.run(node, f"getent hosts {other}").stdout.startswith(f"{EXPERIMENT}.2 ")
    assert rig.run(node, f"getent hosts {other}.{DOMAIN}").stdout.startswith(f"{CONTROL}.2 ")
    assert rig.run(node, "cat /var/emulab/boot/controlif").stdout == "ctl0\n"


def test_the_user_reaches_the_nodes_by_ssh_over_the_control_network_alone(rig: Rig) -> None:
    for node in rig.nodes:
        answer = ssh(rig, rig.full_name(node), "hostname; echo $HOME; docker info --format {{.ID}}")
        assert answer.stdout.split()[:2] == [node, "/root"], answer.stderr
    assert ssh(rig, f"{EXPERIMENT}.1", "true").returncode == 255
    assert ssh(rig, f"nobody.{DOMAIN}", "true").returncode == 255
    assert subprocess.run([rig.enter, "nobody", "true"], capture_output=True).returncode == 255


def test_what_a_node_writes_no_other_machine_sees(rig: Rig) -> None:
    first, second = rig.nodes[:2]
    rig.run(first, "touch /etc/mine /var/mine /root/mine /tmp/mine /run/mine")
    for folder in ("/etc", "/var", "/root", "/tmp", "/run"):  # noqa: S108
        assert rig.run(second, f"ls {folder}/mine", check=False).returncode
        assert not Path(folder, "mine").exists()


def test_a_cable_that_is_out_makes_a_node_silent(rig: Rig) -> None:
    first, last = rig.nodes[0], rig.nodes[-1]
    knock = f"timeout 1 bash -c '</dev/tcp/{EXPERIMENT}.{len(rig.nodes)}/22'"
    assert not rig.run(first, knock).returncode
    rig.link(last, "exp", "down")
    try:
        assert rig.run(first, knock, check=False).returncode == 124  # no answer, where a refusal would be one
        assert ssh(rig, rig.full_name(last), "true").returncode == 0
    finally:
        rig.link(last, "exp", "up")


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_of_a_rig_that_is_taken_down_or_whose_maker_was_killed(tmp_path: Path, killed: bool) -> None:
    folder = tmp_path / "rig"
    command = [sys.executable, rig_file.__file__, "--folder", str(folder)]
    maker = subprocess.Popen([*command, "up", "--nodes", "2"], stdout=subprocess.DEVNULL)
    if killed:
        rig_file.until((folder / "names/node0").exists, "the first node")
        maker.kill()
    assert (maker.wait(timeout=60) != 0) is killed
    subprocess.run([*command, "down"], check=True, timeout=60)
    assert not folder.exists()
    assert not [*CGROUPS.glob(f"*/{Rig(folder, 2).cgroup}*"), *CGROUPS.glob(f"{Rig(folder, 2).cgroup}*")]
    left = [words for _, words in rig_file.processes() if str(folder).encode() in b" ".join(words)]
    assert left == []
