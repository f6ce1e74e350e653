"""Links between containers that are really shaped: what they carry, what passes them, and who else notices."""

import re
from collections.abc import Iterator

import pytest

from tests.containers.cluster import Clone, docker, status_of_program

WAYS = ("sent", "received")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """Four ranks that train for long, worker 2 behind a link so thin that a few packets keep it busy for long."""
    clone = Clone(tmp_path_factory.mktemp("link"), 202)
    process = clone.start(
        "scripts/up",
        MODEL="lenet5",
        EPOCHS="1000000",
        EVALUATE="never",
        LINK_RATE="400mbit",
        LINK_RATE_BY_RANK="2=4mbit",
    )
    try:
        clone.wait_for_step(2)
        yield clone
    finally:
        process.terminate()
        print(process.communicate(timeout=60)[0])
        clone.remove()


def shapers(clone: Clone, *where: str) -> str:
    """What the kernel says of the queues of a container, or of the host."""
    return docker("run", "--rm", "--entrypoint", "tc", *where, clone.image, "qdisc", "show")


def test_each_link_is_shaped_in_both_directions_as_asked(running: Clone) -> None:
    for service, number, rate in (("rank0", 1, "400Mbit"), ("worker", 1, "400Mbit"), ("worker", 2, "4Mbit")):
        queues = shapers(running, "--network", f"container:{running.container(service, number)}")
        for device in ("eth0", "ifb0"):
            assert re.search(rf"^qdisc tbf .* dev {device} root .* rate {rate} ", queues, re.MULTILINE), queues


def test_the_manifest_tells_asked_and_measured_of_each_rank_and_direction(running: Clone) -> None:
    ranks = running.manifest()["ranks"]
    for rank in ranks:
        for way in WAYS:
            link = rank["link"][way]
            print(rank["rank"], way, link)
            assert link["asked_bits_per_second"] == (4e6 if rank["rank"] == 2 else 400e6)
            assert abs(link["error"]) <= 0.10
            assert link["error"] == pytest.approx(
                link["measured_bytes_per_second"] / link["expected_bytes_per_second"] - 1
            )
            # A full packet has 1448 bytes of payload in 1514.
            assert link["expected_bytes_per_second"] == pytest.approx(
                link["asked_bits_per_second"] / 8 * 1448 / 1514, rel=1e-3
            )


def test_no_other_container_and_not_the_host_are_shaped(running: Clone) -> None:
    assert "tbf" not in shapers(running, "--network", f"{running.project}_ranks")
    assert "tbf" not in shapers(running, "--network", "host")


def own_devices(listed: str) -> set[str]:
    """Without those that Docker makes for containers and networks, which come and go with other tests."""
    return {name for line in listed.splitlines() if not (name := line.split()[0]).startswith(("veth", "br-"))}


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_nothing_of_the_hosts_is_ever_shaped(running: Clone, command: str) -> None:
    """Not even where a container that may do so shares the host's network."""
    devices = ("run", "--rm", "--network", "host", "--entrypoint", "ip", running.image, "-brief", "link")
    before = own_devices(docker(*devices))
    bridge = docker("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}").strip()
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": bridge, "LINK_RATE": "1gbit"}
    given = [word for name, value in place.items() for word in ("--env", f"{name}={value}")]
    as_host = ("--network", "host", "--cap-add", "NET_ADMIN")
    code, output = running.run("docker", "run", "--rm", *as_host, *given, running.image, command)
    assert code == 2, output
    assert "an interface of the host" in output
    assert "tbf" not in shapers(running, "--network", "host")
    assert own_devices(docker(*devices)) >= before


@pytest.mark.parametrize("service", ["rank0", "worker"])
def test_the_training_process_could_not_shape_anything(running: Clone, service: str) -> None:
    container = running.container(service)
    for name, value in status_of_program(container).items():
        if name.startswith("Cap"):
            assert int(value, 16) == 0
    owner = (running.folder / "results").stat()
    attempt = "tc qdisc del dev eth0 root 2>&1 || true"
    answer = docker("exec", "--user", f"{owner.st_uid or 12345}", container, "sh", "-c", attempt)
    assert "not permitted" in answer
    assert "tbf" in shapers(running, "--network", f"container:{container}")


def kernel_has_netem(clone: Clone) -> bool:
    attempt = "tc qdisc add dev lo root netem delay 1ms"
    answer = docker(
        "run", "--rm", "--network", "none", "--cap-add", "NET_ADMIN", "--entrypoint", "sh", clone.image, "-c",
        f"{attempt} 2>&1 && echo works || true",
    )  # fmt: skip
    return "works" in answer


@pytest.mark.parametrize("setting", ["LINK_DELAY=2ms", "LINK_LOSS=1%"])
def test_delay_and_loss_work_or_are_refused_with_the_reason(used_clone: Clone, running: Clone, setting: str) -> None:
    code, output = used_clone.run("scripts/up", setting, MODEL="lenet5", MAX_STEPS="3", EVALUATE="never")
    if kernel_has_netem(running):
        assert code == 0, output
        trip = used_clone.manifest()["ranks"][0]["link"]["round_trip"]
        assert trip["asked_seconds"] is None or trip["measured_seconds"] >= 0.9 * 4 * 0.002
        return
    assert code == 2, output
    assert "[cannot-shape-link] LINK_DELAY, LINK_LOSS: " in output
    assert "netem" in output
    assert "LINK_RATE" in output
    assert "have joined" not in output
    assert used_clone.containers("--all") == []


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("LINK_RATE=1gbps", "such as 100mbit or 2.5gbit"),
        ("LINK_RATE_BY_RANK=4=100mbit", "rank 4"),
        ("SLOW_RANK=4", "rank 4"),
    ],
)
def test_nonsense_is_refused_before_any_rank_starts(used_clone: Clone, setting: str, told: str) -> None:
    code, output = used_clone.run("scripts/up", setting, MODEL="lenet5")
    assert code == 2, output
    assert told in output
    assert "have joined" not in output
    assert used_clone.containers("--all") == []
