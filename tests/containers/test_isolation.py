"""The training process has no privilege, can write nowhere but in results/, and reaches nobody but the other ranks."""

import re
from collections.abc import Iterator

import pytest

from tests.containers.cluster import Clone, docker
from tests.containers.conftest import MakeClone


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    clone = Clone(tmp_path_factory.mktemp("isolation"), 200)
    process = clone.start("scripts/up", MODEL="lenet5", EPOCHS="1000000", EVALUATE="never", WORKERS="1")
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


def test_the_training_process_is_the_first_one_and_has_no_privilege(running: Clone, rank: str) -> None:
    status = dict(re.findall(r"^(\w+):[ \t]*(.*?)[ \t]*$", inside(rank, "cat", "/proc/1/status"), re.MULTILINE))
    assert status["Name"] == "python3"
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
    assert ".".join(map(str, octets)) == f"{running.prefix}.0"
    assert int(gateway, 16) == 0


def test_the_image_is_small_enough_to_carry(running: Clone) -> None:
    assert int(docker("image", "inspect", "--format", "{{.Size}}", "lockstep")) <= 1_400_000_000


def test_an_unprivileged_owner_is_taken_over_from_results(make_clone: MakeClone) -> None:
    clone = make_clone()
    import os

    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(clone.folder / "results", 12345, 23456)
    clone.up(WORKERS="0")
    made = (clone.folder / "results/latest/summary.json").stat()
    assert (made.st_uid, made.st_gid) == (12345, 23456)
