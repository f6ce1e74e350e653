"""The CloudLab profile: what it asks the portal for, and which parameters it refuses.

The answers are read as the portal reads them: the request is a file of XML; wrong parameters are JSON on the standard
error, and their number added to 100 is the exit code.
"""

import ast
import json
import os
import re
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "profile.py"
NETWORK = IPv4Network("10.10.1.0/24")
IMAGE = "urn:publicid:IDN+emulab.net+image+emulab-ops//"
DEFAULTS = {"nodes": "4", "hardware_type": "", "image": f"{IMAGE}UBUNTU22-64-STD", "disk_gigabytes": "60"}
RSPEC = {
    "": "http://www.geni.net/resources/rspec/3",
    "emulab": "http://www.protogeni.net/resources/rspec/ext/emulab/1",
    "parameters": "http://www.protogeni.net/resources/rspec/ext/profile-parameters/1",
    "tour": "http://www.protogeni.net/resources/rspec/ext/apt-tour/1",
}

Value = str | int


def run_profile(folder: Path, **parameters: Value) -> subprocess.CompletedProcess[str]:
    (folder / "parameters.json").write_text(json.dumps(parameters))
    portal = {
        "GENILIB_PORTAL_MODE": "1",
        "GENILIB_PORTAL_REQUEST_PATH": str(folder / "request.xml"),
        "GENILIB_PORTAL_PARAMS_PATH": str(folder / "parameters.json"),
    }
    return subprocess.run(
        [sys.executable, ROOT / "tests/host/portal.py", PROFILE],
        cwd=folder,
        env={**os.environ, **portal},
        capture_output=True,
        text=True,
        check=False,
    )


def request(folder: Path, **parameters: Value) -> ElementTree.Element:
    result = run_profile(folder, **parameters)
    assert (result.returncode, result.stderr) == (0, "")
    return ElementTree.parse(folder / "request.xml").getroot()  # noqa: S314  # written a moment ago by ourselves


def attributes(place: ElementTree.Element, path: str) -> list[dict[str, str]]:
    return [dict(element.attrib) for element in place.findall(path, RSPEC)]


def test_by_default_four_nodes_with_a_disk_share_one_network(tmp_path: Path) -> None:
    asked = request(tmp_path)
    nodes = asked.findall("node", RSPEC)
    assert [node.attrib for node in nodes] == [{"client_id": f"node{n}", "exclusive": "true"} for n in range(4)]
    for number, node in enumerate(nodes):
        assert attributes(node, "sliver_type") == [{"name": "raw"}]
        assert attributes(node, "sliver_type/disk_image") == [{"name": DEFAULTS["image"]}]
        assert attributes(node, "hardware_type") == []
        assert attributes(node, "emulab:blockstore") == [
            {
                "name": f"docker{number}",
                "mountpoint": "/mydata",
                "class": "local",
                "size": "60GB",
                "placement": "any",
            }
        ]


@pytest.mark.parametrize("count", [2, 4, 250])
def test_rank_0_has_the_first_address_and_all_others_follow(tmp_path: Path, count: int) -> None:
    asked = request(tmp_path, nodes=count)
    interfaces = asked.findall("node/interface", RSPEC)
    addresses = [address for interface in interfaces for address in attributes(interface, "ip")]
    assert [address["address"] for address in addresses] == [f"10.10.1.{n + 1}" for n in range(count)]
    assert {address["netmask"] for address in addresses} == {str(NETWORK.netmask)}
    assert all(IPv4Address(address["address"]) in set(NETWORK.hosts()) for address in addresses)

    links = asked.findall("link", RSPEC)
    assert len(links) == 1
    assert attributes(links[0], "link_type") == [{"name": "lan"}]
    assert attributes(links[0], "interface_ref") == [{"client_id": f"node{n}:if1"} for n in range(count)]
    assert [interface.attrib for interface in interfaces] == attributes(links[0], "interface_ref")
    assert attributes(links[0], "property") == [], "a bandwidth would bring in shaping nodes"


def test_every_node_is_readied_at_every_boot_by_a_script_of_the_repository(tmp_path: Path) -> None:
    commands = {service["command"] for service in attributes(request(tmp_path), "node/services/execute")}
    assert len(commands) == 1
    sudo, script, folder = commands.pop().split()
    assert (sudo, folder) == ("sudo", "/mydata")
    own = ROOT / Path(script).relative_to("/local/repository")
    assert os.access(own, os.X_OK)


def test_parameters_are_obeyed_and_kept_in_the_request(tmp_path: Path) -> None:
    given = {"nodes": "3", "hardware_type": "c220g5", "image": f"{IMAGE}UBUNTU24-64-STD", "disk_gigabytes": "0"}
    asked = request(tmp_path, **given)
    assert len(asked.findall("node", RSPEC)) == 3
    assert attributes(asked, "node/hardware_type") == [{"name": "c220g5"}] * 3
    assert attributes(asked, "node/sliver_type/disk_image") == [{"name": given["image"]}] * 3
    assert attributes(asked, "node/emulab:blockstore") == []
    assert {each["command"].split()[2:] == [] for each in attributes(asked, "node/services/execute")} == {True}
    for parameters, kept in ((given, asked), (DEFAULTS, request(tmp_path))):
        items = kept.findall("parameters:data_set/parameters:data_item", RSPEC)
        assert {item.attrib["name"].rpartition(".")[2]: item.text or "" for item in items} == parameters


@pytest.mark.parametrize("image", ["UBUNTU22-64-STD", "UBUNTU24-64-STD"])
def test_the_systems_are_those_that_the_scripts_can_ready(tmp_path: Path, image: str) -> None:
    request(tmp_path, image=f"{IMAGE}{image}")


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        ({"nodes": 1}, ["nodes"]),
        ({"nodes": 0}, ["nodes"]),
        ({"nodes": -4}, ["nodes"]),
        ({"nodes": 251}, ["nodes"]),
        ({"nodes": 10**12}, ["nodes"]),
        ({"nodes": "four"}, ["nodes"]),
        ({"nodes": ""}, ["nodes"]),
        ({"image": f"{IMAGE}CENTOS7-64-STD"}, ["image"]),
        ({"image": ""}, ["image"]),
        ({"hardware_type": "xl170,m510"}, ["hardware_type"]),
        ({"hardware_type": "xl 170"}, ["hardware_type"]),
        ({"hardware_type": "<x>"}, ["hardware_type"]),
        ({"disk_gigabytes": -1}, ["disk_gigabytes"]),
        ({"disk_gigabytes": 19}, ["disk_gigabytes"]),
        ({"disk_gigabytes": 4001}, ["disk_gigabytes"]),
        ({"disk_gigabytes": "60GB"}, ["disk_gigabytes"]),
        ({"nodes": "x", "image": "y"}, ["nodes", "image"]),
        ({"nodes": 1, "hardware_type": "?", "disk_gigabytes": 1}, ["nodes", "hardware_type", "disk_gigabytes"]),
    ],
)
def test_wrong_parameters_are_refused_all_at_once(
    tmp_path: Path, parameters: dict[str, Value], wrong: list[str]
) -> None:
    result = run_profile(tmp_path, **parameters)
    assert result.returncode == 100 + len(wrong)
    errors = json.loads(result.stderr)
    assert [error["params"] for error in errors] == [[name] for name in wrong]
    assert all(error["errorType"] == "ParameterError" for error in errors)
    assert not (tmp_path / "request.xml").exists()


def test_a_refusal_says_what_was_got_and_what_is_allowed(tmp_path: Path) -> None:
    parameters: dict[str, Value] = {"nodes": 300, "hardware_type": "a b", "disk_gigabytes": 7}
    for error in json.loads(run_profile(tmp_path, **parameters).stderr):
        name = error["params"][0]
        assert str(parameters[name]) in error["message"]
        assert re.search(r"\. Give \w+", error["message"])


def test_the_portal_shows_what_it_is_and_what_to_do(tmp_path: Path) -> None:
    tour = request(tmp_path).find("tour:rspec_tour", RSPEC)
    assert tour is not None
    description, instructions = (tour.find(f"tour:{part}", RSPEC) for part in ("description", "instructions"))
    assert description is not None
    assert instructions is not None
    assert "10.10.1.1" in (description.text or "")
    assert "/var/log/lockstep-node.log" in (instructions.text or "")


def test_it_is_written_for_both_pythons_of_the_portal() -> None:
    """In what the portal runs: plain ASCII, no f-strings, no annotations, no keyword-only arguments, no `nonlocal`."""
    tree = ast.parse(PROFILE.read_bytes().decode("ascii"))
    modern = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Match, ast.Nonlocal, ast.AsyncFunctionDef, ast.Starred)
    assert [node for node in ast.walk(tree) if isinstance(node, modern)] == []
    arguments = [node for node in ast.walk(tree) if isinstance(node, ast.arguments)]
    assert [node for node in arguments if node.kwonlyargs or node.posonlyargs] == []
    assert [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation] == []
