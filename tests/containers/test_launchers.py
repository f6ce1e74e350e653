"""The commands of docs/launchers.md, each node a container with folders of its own on a network without Compose."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

import pytest

from tests.containers.cluster import CHECKOUT, PATIENCE_SECONDS, ROOT, docker

PAGE = (ROOT / "docs/launchers.md").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()]
BUILD, BY_HAND, NODES, TORCHRUN, AGENTS = COMMANDS

PREFIX = f"10.{CHECKOUT}.219"
IMAGE = NETWORK = f"lockstep-test-{CHECKOUT}-launchers"
SMALL = "--env MODEL=lenet5 --env DATASET=digits --env MAX_STEPS=3 --env LINK_CHECK=off --env JOIN_TIMEOUT=100"


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """A network whose containers have the addresses that they are given, and the image as the page builds it."""
    subprocess.run(BUILD.replace("--tag lockstep", f"--quiet --tag {IMAGE}").split(), cwd=ROOT, check=True)
    docker("network", "create", "--subnet", f"{PREFIX}.0/24", NETWORK)
    yield
    docker("network", "rm", NETWORK)
    docker("image", "rm", IMAGE)


class Nodes:
    """Machines without a shared disk: a folder and an address each."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folders = [folder / f"node{node}" for node in range(number)]
        for each in self.folders:
            (each / "results").mkdir(parents=True)

    def run(self, commands: Sequence[str], options: str = "") -> list[tuple[int, str]]:
        """A command of the page on each node, with that node's address, at once; exit codes and outputs."""
        processes = [
            Popen(
                ["bash", "-c", self._at_home(command, node, options)],
                cwd=self.folders[node],
                stdout=PIPE,
                stderr=STDOUT,
                text=True,
            )
            for node, command in enumerate(commands)
        ]
        outputs = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in processes]
        return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]

    def _at_home(self, command: str, node: int, options: str) -> str:
        start = f"docker run --rm --network {NETWORK} --ip {PREFIX}.{node + 11} {SMALL} {options} "
        command = command.replace("docker run --network host ", "docker run ").replace("docker run ", start, 1)
        return re.sub(r"10\.10\.1\.(\d)", lambda found: f"{PREFIX}.{int(found[1]) + 10}", command).replace(
            " lockstep ", f" {IMAGE} "
        )

    def assert_whole(self, ended: Sequence[tuple[int, str]], world_size: int) -> None:
        """All ended well, and the first node has all records."""
        assert [code for code, _ in ended] == [0] * len(ended), ended
        run = self.folders[0] / "results/latest"
        assert json.loads((run / "summary.json").read_text())["complete"]
        last = [json.loads((run / f"rank-{rank}.jsonl").read_text().splitlines()[-1]) for rank in range(world_size)]
        assert {record["parameters_sha256"] for record in last} == {last[0]["parameters_sha256"]}


@pytest.mark.usefixtures("network")
def test_ranks_started_by_hand(tmp_path: Path) -> None:
    nodes, command = Nodes(tmp_path, 2), BY_HAND.replace("--num-nodes 4", "--num-nodes 2")
    nodes.assert_whole(nodes.run([command, command.replace("--rank 0", "--rank 1")]), world_size=2)


@pytest.mark.usefixtures("network")
def test_nodes_that_find_themselves_in_a_list(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2)
    nodes.assert_whole(nodes.run([NODES, NODES]), world_size=2)


@pytest.mark.usefixtures("network")
def test_torchrun_with_four_ranks_in_a_container(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)
    nodes.assert_whole(nodes.run([TORCHRUN]), world_size=4)


@pytest.mark.usefixtures("network")
def test_torchrun_with_two_agents(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2)
    other = AGENTS.replace("--local-addr 10.10.1.1", "--local-addr 10.10.1.2")
    nodes.assert_whole(nodes.run([AGENTS, other]), world_size=4)


@pytest.mark.usefixtures("network")
def test_a_user_without_privileges(tmp_path: Path) -> None:
    """As under Slurm or Kubernetes: no root, no capability, and nothing that the image's own folders allow."""
    nodes = Nodes(tmp_path, 1)
    for path in (*nodes.folders, *nodes.folders[0].iterdir(), tmp_path / "prepared"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    prepared = f"--volume {tmp_path}/prepared:/lockstep/prepared"
    rights = f"--user 12345:12345 --cap-drop ALL --read-only --tmpfs /tmp {prepared}"
    alone = 'docker run --volume "$PWD/results:/lockstep/results" lockstep train'
    nodes.assert_whole(nodes.run([alone], rights), world_size=1)
    assert (nodes.folders[0] / "results/latest/rank-0.jsonl").stat().st_uid == 12345
    [(code, output)] = nodes.run([alone], f"{rights} --env LINK_RATE=100mbit")
    assert code == 2
    assert "LINK_*" in output
