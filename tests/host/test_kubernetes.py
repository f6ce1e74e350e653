"""docker/kubernetes.yaml: what the published schemas allow, and beyond them what this program needs.

The schemas say nothing of enumerations, and nothing of what belongs together: names, numbers, mounts.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "docker/kubernetes.yaml"
KINDS = ["ConfigMap", "Service", "NetworkPolicy", "Job"]
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
FOLDERS = {"/lockstep/results", "/lockstep/prepared", "/lockstep/data", "/tmp"}  # noqa: S108

Object = Mapping[str, Any]


@cache
def objects() -> Mapping[str, Object]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


def job() -> Object:
    found: Object = objects()["Job"]["spec"]
    return found


def pod() -> Object:
    found: Object = job()["template"]["spec"]
    return found


def containers() -> Sequence[Object]:
    return [*pod()["initContainers"], *pod()["containers"]]


def settings() -> Mapping[str, str]:
    found: Mapping[str, str] = objects()["ConfigMap"]["data"]
    return found


@pytest.mark.parametrize("version", ["1.29", "1.31", "1.33", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("kind", KINDS)
def test_it_follows_the_published_schema(kind: str, version: str) -> None:
    kubernetes_validate.validate(objects()[kind], version, strict=True)


def test_it_holds_these_objects_all_of_one_name() -> None:
    assert list(objects()) == KINDS
    assert {each["metadata"]["name"] for each in objects().values()} == {"lockstep"}


def test_each_rank_has_one_pod_and_none_is_replaced() -> None:
    assert job()["completionMode"] == "Indexed"
    assert job()["completions"] == job()["parallelism"] == int(settings()["WORLD_SIZE"])
    assert job()["backoffLimitPerIndex"] == 0
    assert pod()["restartPolicy"] == "Never"


def test_the_pods_index_is_the_rank_wherever_it_is_needed() -> None:
    for container in containers():
        assert container["env"] == [{"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}}]


def test_rank_0_is_found_by_the_name_that_the_headless_service_gives_its_pod() -> None:
    service = objects()["Service"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert pod()["subdomain"] == service["metadata"]["name"]
    assert settings()["MASTER_ADDR"] == f"{objects()['Job']['metadata']['name']}-0.{pod()['subdomain']}"
    assert [str(port["port"]) for port in service["spec"]["ports"]] == [settings()["MASTER_PORT"]]


def test_service_and_policy_select_the_pods_and_nobody_else_comes_in() -> None:
    labels = job()["template"]["metadata"]["labels"]
    policy = objects()["NetworkPolicy"]["spec"]
    assert objects()["Service"]["spec"]["selector"] == labels
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": labels}}]}]


def test_it_is_prepared_in_every_pod_before_the_rank_starts() -> None:
    assert [(each["name"], each["args"]) for each in pod()["initContainers"]] == [("prepare", ["prepare"])]
    rank, keep = pod()["containers"]
    assert (rank["name"], rank["args"], keep["name"]) == ("rank", ["train"], "keep")
    assert "command" not in rank, "the image's entrypoint starts it"
    for container in (*pod()["initContainers"], rank):
        assert container["envFrom"] == [{"configMapRef": {"name": objects()["ConfigMap"]["metadata"]["name"]}}]
        assert int(re.sub("Gi$", "", container["resources"]["limits"]["memory"])) >= 2
    assert len({(each["image"], each["imagePullPolicy"]) for each in containers()}) == 1


def test_pods_keep_the_restricted_security_standard() -> None:
    context = pod()["securityContext"]
    assert context["runAsNonRoot"] is True
    assert min(context["runAsUser"], context["runAsGroup"], context["fsGroup"]) > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & pod().keys()
    assert pod()["automountServiceAccountToken"] is False
    for container in containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_the_programs_folders_can_be_written_and_each_pod_has_its_own() -> None:
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert all(set(volume) == {"name", "emptyDir"} for volume in volumes.values())
    for container in containers():
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == FOLDERS
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()


def test_every_setting_in_it_is_a_setting() -> None:
    known = set(re.findall(r"^#? ?([A-Z][A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert len(known) > 30
    given = settings().keys() | {each["name"] for container in containers() for each in container["env"]}
    assert given <= known | {"RANK", "MASTER_ADDR"}, "those two are not for users of Compose"
    assert all(isinstance(value, str) for value in settings().values())


@pytest.mark.parametrize(("rank", "fetched"), [("0", True), ("3", False)])
def test_a_pod_ends_with_its_rank_and_rank_0s_when_its_results_are_fetched(
    tmp_path: Path, rank: str, fetched: bool
) -> None:
    (tmp_path / "results").mkdir()
    keep = pod()["containers"][1]
    waiting = subprocess.Popen(
        [*keep["command"], *keep["args"]], cwd=tmp_path, env={"RANK": rank, "PATH": "/usr/bin:/bin"}
    )
    if fetched:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=0.5)
        (tmp_path / "results/fetched").touch()
    assert waiting.wait(timeout=10) == 0


def test_a_pod_that_waits_can_be_deleted_at_once(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    keep = pod()["containers"][1]
    waiting = subprocess.Popen(
        [*keep["command"], keep["args"][0].replace("sleep 2", "echo waiting; sleep 1")],
        cwd=tmp_path,
        env={"RANK": "0", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
    )
    assert waiting.stdout is not None
    waiting.stdout.readline()
    waiting.terminate()
    waiting.stdout.close()
    assert waiting.wait(timeout=10) == 0
