"""docker/kubernetes.yaml without Kubernetes: each pod as it says, by containers of Docker.

No API server stands behind this. It holds what the image does as such a pod: another user, no capability, a read-only
root, volumes that belong to nobody, a rank and a world size from outside, records that come home without a shared disk.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers.cluster import CHECKOUT, ROOT, Clone, docker

RANKS = 2
SMALL = {
    "WORLD_SIZE": str(RANKS),
    "JOIN_TIMEOUT": "90",
    "MODEL": "lenet5",
    "DATASET": "digits",
    "MAX_STEPS": "3",
    "GLOBAL_BATCH_SIZE": "32",
    "EVALUATE": "never",
}
NETWORK = f"lockstep-test-{CHECKOUT}-kubernetes"

Object = Mapping[str, Any]


class Pod:
    """A pod of the job, in containers that share its volumes."""

    def __init__(self, image: str, index: int, folder: Path) -> None:
        objects = {each["kind"]: each for each in yaml.safe_load_all((ROOT / "docker/kubernetes.yaml").read_text())}
        self._spec: Object = objects["Job"]["spec"]["template"]["spec"]
        self._settings = {**objects["ConfigMap"]["data"], **SMALL}
        self._image, self._index = image, index
        self._name = f"{objects['Job']['metadata']['name']}-{index}.{self._spec['subdomain']}"
        self._volumes = {}
        for volume in self._spec["volumes"]:
            place = self._volumes[volume["name"]] = folder / volume["name"]
            place.mkdir(parents=True)
            place.chmod(0o2777)  # as Kubernetes makes an empty volume for a group

    def container(self, name: str) -> str:
        return f"{NETWORK}-{self._index}-{name}"

    def prepare(self) -> None:
        (container,) = self._spec["initContainers"]
        self._start(container)

    def start(self) -> None:
        first, *others = self._spec["containers"]
        self._start(first)
        for container in others:
            self._start(container, beside=self.container(first["name"]))

    def _start(self, container: Object, beside: str | None = None) -> None:
        user = self._spec["securityContext"]
        command = container.get("command", [])
        settings = {"RANK": str(self._index), **(self._settings if "envFrom" in container else {})}
        mounts = [f"{self._volumes[mount['name']]}:{mount['mountPath']}" for mount in container["volumeMounts"]]
        docker(
            *("run", "--detach", "--name", self.container(container["name"]), "--label", f"lockstep.test={NETWORK}"),
            *(
                ("--network", f"container:{beside}")
                if beside
                else ("--network", NETWORK, "--network-alias", self._name)
            ),
            *("--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--group-add", str(user["fsGroup"])),
            *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *(word for mount in mounts for word in ("--volume", mount)),
            *(word for name, value in settings.items() for word in ("--env", f"{name}={value}")),
            *(("--entrypoint", command[0]) if command else ()),
            self._image,
            *(*command[1:], *container["args"]),
        )

    def exit_code(self, name: str) -> str:
        return docker("wait", self.container(name)).strip()

    def output(self, name: str) -> str:
        return subprocess.run(
            ["docker", "logs", self.container(name)],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout


@pytest.fixture
def pods(clone: Clone, tmp_path: Path) -> Iterator[list[Pod]]:
    code, output = clone.run("bash", "-c", BUILD)
    assert code == 0, output
    docker("network", "create", "--internal", NETWORK)
    yield [Pod(clone.image, index, tmp_path / f"pod-{index}") for index in range(RANKS)]
    left = docker("ps", "--all", "--quiet", "--filter", f"label=lockstep.test={NETWORK}").split()
    if left:
        docker("rm", "--force", *left)
    docker("network", "rm", NETWORK)


BUILD = """
set -euo pipefail
for part in messages engine base_image settings project image cluster; do . "scripts/host/$part.sh"; done
ready_engine; ready_base_image; name_project; build_image
"""


def test_the_ranks_train_in_pods_and_rank_0_hands_out_the_records_of_all(pods: list[Pod], tmp_path: Path) -> None:
    for pod in pods:
        pod.prepare()
    for pod in pods:
        assert pod.exit_code("prepare") == "0", pod.output("prepare")
        pod.start()
    for pod in pods:
        assert pod.exit_code("rank") == "0", pod.output("rank")
    assert pods[1].exit_code("keep") == "0"

    keeper = pods[0].container("keep")
    archive = subprocess.run(["docker", "exec", keeper, "tar", "-c", "results"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=tmp_path, input=archive, check=True)
    latest = tmp_path / "results/latest"
    assert json.loads((latest / "summary.json").read_text())["complete"]
    last = [json.loads((latest / f"rank-{rank}.jsonl").read_text().splitlines()[-1]) for rank in range(RANKS)]
    assert {record["parameters_sha256"] for record in last} == {last[0]["parameters_sha256"]}
    assert (latest / "report.html").is_file()

    docker("exec", keeper, "touch", "results/fetched")
    assert pods[0].exit_code("keep") == "0"
