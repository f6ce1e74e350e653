"""Ranks over OpenMPI in containers: who they are, what a killed one leaves behind, and what Compose alone refuses."""

import re

from tests.containers.cluster import PATIENCE_SECONDS, SMALL, Clone, docker

ENDLESS = {
    "MODEL": "lenet5",
    "DATASET": "digits",
    "EPOCHS": "1000",
    "EVALUATE": "never",
    "LINK_CHECK": "off",
    "PEER_TIMEOUT": "8",
}


def test_a_killed_rank_is_named_and_no_key_is_left(used_clone: Clone) -> None:
    running = used_clone.start("scripts/up", "BACKEND=mpi", **ENDLESS)
    used_clone.wait_for_step(3)
    kept = docker(
        "run", "--rm", "-v", f"{used_clone.project}_key:/key", "--entrypoint", "ls", used_clone.image, "-A", "/key"
    )
    statuses = docker("exec", used_clone.container("worker"), "sh", "-c", "cat /proc/[0-9]*/status")
    victim = used_clone.kill("worker", 2)
    output, _ = running.communicate(timeout=PATIENCE_SECONDS)

    assert running.returncode == 1, output
    assert re.search(rf"error: \[rank-lost\] rank 0: lost rank 2 \({victim}, ", output), output
    for number in (1, 3):
        code, said = used_clone.run("docker", "logs", used_clone.container("worker", number))
        assert (code, f"lost rank 2 ({victim}, " in said) == (0, True), said
    assert kept == ""
    for status in re.split(r"(?=^Name:)", statuses, flags=re.MULTILINE):
        if re.match(r"Name:\t(python3|prted)$", status, re.MULTILINE):
            assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
    assert "prted" in statuses

    assert used_clone.run("scripts/down")[0] == 0
    assert used_clone.containers("--all") == []
    assert f"{used_clone.project}_key" not in docker("volume", "ls", "--quiet").split()


def test_compose_without_the_file_for_mpi_is_refused(used_clone: Clone) -> None:
    code, output = used_clone.run("docker", "compose", "up", **SMALL, BACKEND="mpi")
    assert code != 0
    assert "docker compose -f compose.yaml -f docker/compose.mpi.yaml up" in output
