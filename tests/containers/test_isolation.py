"""The training process has no privilege, can write nowhere but in results/, and reaches nobody but the other ranks."""

import re
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

import pytest

from tests.containers.cluster import ENDLESS, Clone, docker, status_of_program
from tests.containers.conftest import MakeClone


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    clone = Clone(tmp_path_factory.mktemp("isolation"), 200)
    process = clone.start("scripts/up", **ENDLESS, WORKERS="1")
    clone.wait_for_step(2)
    yield clone
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    clone.remove()


@pytest.fixture(params=["rank0", "worker"])
def rank(request: pytest.FixtureRequest, running: Clone) -> str:
    return running.container(request.param)


def inside(container: str, *command: str, user: str = "0") -> str:
    return docker("exec", "--user", user, container, *command)


def test_the_training_process_has_no_privilege(running: Clone, rank: str) -> None:
    status = status_of_program(rank)
    owner = (running.folder / "results").stat()
    assert status["Uid"].split() == [str(owner.st_uid)] * 4
    assert status["Gid"].split() == [str(owner.st_gid)] * 4
    assert status["Groups"] == ""
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("path", ["/x", "/usr/x", "/lockstep/x", "/lockstep/app/x", "/lockstep/prepared/x"])
def test_nothing_can_be_written_outside_results(rank: str, path: str) -> None:
    refusal = inside(rank, "sh", "-c", f"touch {path} 2>&1 || true")
    assert "Read-only file system" in refusal


def test_there_is_no_way_out_of_the_ranks_network(running: Clone, rank: str) -> None:
    routes = inside(rank, "cat", "/proc/net/route").splitlines()[1:]
    assert len(routes) == 1
    destination, gateway = routes[0].split()[1:3]
    octets = [int(destination[place : place + 2], 16) for place in (6, 4, 2, 0)]
    assert IPv4Address(".".join(map(str, octets))) == IPv4Network(running.subnet()).network_address
    assert int(gateway, 16) == 0


def test_no_service_of_the_host_can_be_reached_from_a_rank(running: Clone, rank: str) -> None:
    """Not even at the network's gateway, where Docker usually puts the host."""
    look = ("--entrypoint", "ip", running.image, "-4", "-oneline", "address")
    addresses = set(re.findall(r" inet ([0-9.]+)/", docker("run", "--rm", "--network", "host", *look)))
    gateway = str(next(IPv4Network(running.subnet()).hosts()))
    assert gateway not in addresses
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        for address in {gateway, *addresses} - {"127.0.0.1"}:
            attempt = f"import socket; socket.create_connection(('{address}', {port}), 2)"
            refusal = inside(rank, "sh", "-c", f'python3 -c "{attempt}" 2>&1 || true')
            assert refusal.splitlines()[-1].startswith(("OSError", "TimeoutError")), (address, refusal)


def test_a_rank_cannot_fill_the_machine_with_processes_or_files(rank: str) -> None:
    limits = docker("inspect", "--format", "{{.HostConfig.PidsLimit}} {{.HostConfig.Init}}", rank).split()
    assert 0 < int(limits[0]) <= 10_000
    assert limits[1] == "true"
    answer = inside(rank, "sh", "-c", "head -c 1G /dev/zero 2>&1 > /tmp/much || true; rm /tmp/much")
    assert "No space left on device" in answer


def test_one_script_says_that_all_of_this_holds(running: Clone) -> None:
    code, output = running.run("scripts/hardening")
    assert code == 0, output
    assert "WRONG" not in output
    assert "assertions about 2 containers hold" in output


def test_the_script_finds_whatever_does_not_hold(used_clone: Clone) -> None:
    """A container of the same project that is hardly confined: it is not privileged, and that is all."""
    code, output = used_clone.run("scripts/hardening")
    assert (code, f"no rank of project {used_clone.project} runs here" in output) == (2, True), output
    used_clone.run("docker", "compose", "build")
    labels = (f"com.docker.compose.project={used_clone.project}", "com.docker.compose.oneoff=False")
    sloppy = docker(
        *("run", "--detach", "--ipc", "host", "--publish", "127.0.0.1::80", "--security-opt", "seccomp=unconfined"),
        *("--volume", "/run/docker.sock:/somewhere", "--entrypoint", "python3"),
        *(f"--label={label}" for label in labels),
        *(used_clone.image, "-c", "import time; time.sleep(600)"),
    ).strip()
    code, output = used_clone.run("scripts/hardening")
    docker("rm", "--force", sloppy)
    assert code == 1, output
    right = [line.removeprefix("  ok     ") for line in output.splitlines() if line.startswith("  ok ")]
    assert right == ["the program runs", "the container is not privileged"], output
    assert output.count("  WRONG  ") == 10


def test_the_image_is_small_enough_to_carry(running: Clone) -> None:
    assert int(docker("image", "inspect", "--format", "{{.Size}}", running.image)) <= 1_400_000_000


def test_an_unprivileged_owner_is_taken_over_from_results(make_clone: MakeClone) -> None:
    clone = make_clone()
    import os

    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(clone.folder / "results", 12345, 23456)
    clone.up(WORKERS="0")
    made = (clone.folder / "results/latest/summary.json").stat()
    assert (made.st_uid, made.st_gid) == (12345, 23456)
