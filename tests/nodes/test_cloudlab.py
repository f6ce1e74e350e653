"""scripts/cloudlab on four nodes: from bare engines to records at home, and each fault named."""

import base64
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.containers.cluster import ROOT, Clone, until
from tests.nodes.rig import CONTROL, EXPERIMENT, Rig

SMALL = ("MODEL=lenet5", "DATASET=digits", "MAX_STEPS=6", "LINK_CHECK=off", "MEMORY_FORMAT=contiguous")
LONG = (
    "MODEL=lenet5",
    "DATASET=digits",
    "EPOCHS=1000",
    "EVALUATE=never",
    "LINK_CHECK=off",
    "RESUME=never",
)  # until something ends it
SAVING = ("MODEL=lenet5", "DATASET=digits", "EPOCHS=50", "CHECKPOINT_EVERY=20", "LINK_CHECK=off", "EVALUATE=never")
MOST_CONTROL_BYTES = 100_000  # of a rank that trains; the answers to the question itself cross it as well


def line(rig: Rig, *arguments: str) -> list[str]:
    return ["env", f"LOCKSTEP_RSH={rig.enter}", "scripts/cloudlab", *arguments]


def line_over_ssh(user: Clone, rig: Rig, *arguments: str) -> list[str]:
    """On the user's machine, which knows the nodes by the names of the control network."""
    ssh = f"LOCKSTEP_RSH=ssh -F {rig.folder}/ssh/config"
    names = [rig.full_name(node) for node in reversed(rig.nodes)]
    return rig.at_home(user.folder, "env", ssh, "scripts/cloudlab", *arguments, *names)


def run(user: Clone, rig: Rig, *arguments: str) -> tuple[int, str]:
    return user.run(*line(rig, *arguments))


def bytes_of(rig: Rig, node: str, interface: str) -> int:
    """Sent and received."""
    counters = json.loads(rig.run(node, f"ip -statistics -json link show {interface}").stdout)[0]["stats64"]
    return int(counters["rx"]["bytes"]) + int(counters["tx"]["bytes"])


def containers(rig: Rig, node: str) -> list[str]:
    return rig.docker(node, "ps --all --quiet --filter label=com.docker.swarm.task").split()


def hashes(user: Clone) -> set[str]:
    return {each["parameters_sha256"] for rank in range(4) for each in user.records(rank) if each["kind"] == "finished"}


def steps_in(rig: Rig, node: str, project: str) -> int:
    """How many steps the first rank has recorded on its node."""
    records = f"/var/tmp/{project}/results/latest/rank-0.jsonl"  # noqa: S108  # it is root's there
    found = rig.run(node, f'grep -c \'"kind": "step"\' {records}', check=False).stdout
    return int(found or 0)


def listening(rig: Rig, node: str, program: str) -> set[str]:
    """The addresses on which a program of the node takes connections or datagrams from elsewhere."""
    lines = rig.run(node, "ss --listening --tcp --udp --numeric --processes --no-header").stdout.splitlines()
    places = [each.split()[4].rpartition(":")[0] for each in lines if f'"{program}"' in each]
    return {place for place in places if place != "127.0.0.1"}


def nothing_runs(rig: Rig, project: str, left: str = "") -> None:
    for node in rig.nodes:
        assert containers(rig, node) == [], node
        assert rig.run(node, f"ls --ignore=latest /var/tmp/{project}/results").stdout == left, node


def kill_rank(rig: Rig, node: str) -> None:
    """As the kernel kills for lack of memory."""
    rig.run(node, f"kill -KILL $(docker inspect --format {{{{.State.Pid}}}} {containers(rig, node)[0]})")


class Training:
    """A run under way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += self.process.stdout

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def until_it_says(self, words: str) -> None:
        until(lambda: self.is_over() or words in self.output, words)
        assert words in self.output, self.output

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def end(self) -> int:
        code = self.process.wait(timeout=120)
        self._reader.join(timeout=10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


Begin = Callable[..., Training]


@pytest.fixture
def begin(user: Clone, rig: Rig) -> Iterator[Begin]:
    """Begins a run that goes on until something ends it, at the latest the end of the test."""
    begun: list[Training] = []

    def begin(*arguments: str, steps: int = 5, ssh: bool = False) -> Training:
        given = arguments if "MAX_STEPS" in str(arguments) else (*LONG, *arguments)
        training = Training(user.start(*(line_over_ssh(user, rig, *given) if ssh else line(rig, *given, *rig.nodes))))
        begun.append(training)
        until(lambda: training.is_over() or steps_in(rig, rig.nodes[0], user.project) > steps, "the first steps")
        assert not training.is_over(), training.output
        return training

    yield begin
    for training in begun:
        if not training.is_over():
            training.interrupt()
            training.end()
    if containers(rig, rig.nodes[0]):
        run(user, rig, "--down", *rig.nodes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "[missing-argument]"),
        (["--fast", "node0"], "[unknown-option]"),
        (["--check", "--down", "node0"], "[conflicting-arguments]"),
        (["node0; true"], "[invalid-argument]"),
        (["node0", "LINK_RATE=1gbit"], "[conflicting-settings] LINK_RATE=1gbit"),
        (["node0", "DATA_FOLDER=/data"], "[conflicting-settings] DATA_FOLDER=/data"),
        (["node0", "BACKEND=mpi"], "[conflicting-settings] BACKEND=mpi"),
        (["node0", "node1", "WORKERS=3"], "[conflicting-settings] WORKERS=3"),
        (["node0", "NETWORK=bridge"], "invalid NETWORK 'bridge'. Choose from: host, overlay."),
        (["node0", "SYNC_MOD=ddp"], "Did you mean SYNC_MODE?"),
    ],
)
def test_wrong_arguments_are_refused_before_any_connection(user: Clone, arguments: list[str], words: str) -> None:
    code, output = user.run("env", "LOCKSTEP_RSH=false", "scripts/cloudlab", *arguments)
    assert (code, words in output) == (2, True), output


def test_a_run_over_ssh_from_an_engine_that_is_off_has_the_bits_of_a_run_on_one_host(user: Clone, rig: Rig) -> None:
    rig.stop_engine(rig.nodes[3])
    user.up(*SMALL, WORKERS="3", RUN_NAME="here")
    expected = hashes(user)
    on_terminal = f"stty cols 120; TERM=xterm {shlex.join(line_over_ssh(user, rig, *SMALL, 'RUN_NAME=nodes'))}"
    code, output = user.run("script", "--quiet", "--return", "--command", on_terminal, "/dev/null")
    assert code == 0, output
    assert "4 ranks have joined" in output
    assert "\x1b[2Kddp " in output, "a terminal gets a progress bar"
    assert hashes(user) == expected
    assert len(expected) == 1
    summary = user.summary()
    assert (summary["run_name"], summary["complete"], summary["world_size"]) == ("nodes", True, 4)
    addresses = [each["address"] for each in user.manifest()["ranks"]]
    assert addresses == [f"{EXPERIMENT}.{number}" for number in range(1, 5)]
    assert {"exp0", "ctl0"} <= {each["name"] for each in user.manifest()["ranks"][0]["interfaces"]}
    assert not [warning for warning in summary["warnings"] if "ANOTHER NETWORK" in warning]
    assert (user.folder / "results/nodes/report.html").stat().st_size > 0
    nothing_runs(rig, user.project)


def test_every_node_that_cannot_take_part_is_named_at_once(user: Clone, rig: Rig) -> None:
    _, second, third, fourth = rig.nodes
    rig.run(second, "ip address del 10.10.1.2/24 dev exp0")
    rig.run(third, "mount -t tmpfs -o size=8m full /var/lib/docker")
    rig.run(fourth, "mv /var/tmp/lockstep-swarm /root")  # as if the Swarm were someone else's
    try:
        code, output = run(user, rig, "--check", *rig.nodes, "nobody.exp.proj.example")
    finally:
        rig.run(second, "ip address add 10.10.1.2/24 dev exp0")
        rig.run(third, "umount /var/lib/docker")
        rig.run(fourth, "mv /root/lockstep-swarm /var/tmp")
    assert code == 1
    assert "\n  nobody.exp.proj.example: enter: Could not resolve hostname" in output
    assert f"\n  {second}: no interface has an address in {EXPERIMENT}.0/24" in output
    assert f"{CONTROL}.2/24 on ctl0" in output
    assert re.search(rf"\n  {third}: only \d MiB are free in /var/lib/docker", output)
    assert f"\n  {fourth}: it belongs to another Swarm" in output
    assert f"{rig.nodes[0]}:" not in output
    code, output = run(user, rig, "--check", *rig.nodes)
    assert (code, output.count("Docker ")) == (0, 4), output


def unpacked(user: Clone) -> str:
    """A command that goes to a copy of the scripts, in a place of the node's own that ends with the command's shell."""
    packed = subprocess.run(
        ["tar", "-cz", "scripts/hardening", "scripts/host"], cwd=user.folder, check=True, capture_output=True
    ).stdout
    words = base64.b64encode(packed).decode()
    return f'place=$(mktemp -d) && trap "rm -rf $place" EXIT && cd "$place" && echo {words} | base64 -d | tar -xz'


def call(rig: Rig, node: str, docker: str, function: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A function of the nodes' side, with a stand-in for Docker."""
    parts = "".join((ROOT / f"scripts/host/{part}.sh").read_text() for part in ("messages", "engine", "swarm_node"))
    given = f"PROJECT=x IMAGE=image ADDRESS={EXPERIMENT}.1 FIRST_ADDRESS={EXPERIMENT}.1"
    script = (
        f"set -euo pipefail; {given}\n{parts}\nFOLDER=~; docker() {{ {docker}; }}; {shlex.join([function, *words])}"
    )
    packed = base64.b64encode(script.encode()).decode()
    return rig.run(node, f"echo {packed} | base64 -d | bash", check=False)


def test_a_key_for_the_image_fetches_that_image_and_does_nothing_else(rig: Rig, tmp_path: Path) -> None:
    first, second = rig.nodes[:2]
    before = rig.run(first, "cat ~/.ssh/authorized_keys").stdout
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    key = (tmp_path / "key").read_text()
    public = (tmp_path / "key.pub").read_text().strip()
    offered = call(rig, first, "echo the image", "offer_image", public)
    offer = offered.stdout
    assert offered.returncode == 0, offered.stderr
    fetched = call(rig, second, "cat >/tmp/loaded", "fetch_image", key, offer)
    assert fetched.returncode == 0, fetched.stderr
    assert rig.run(second, "cat /tmp/loaded").stdout == "the image\n"
    asked = f"touch /tmp/key; echo '{key}' >/tmp/key; chmod 600 /tmp/key; ssh -F none -i /tmp/key"
    asked += f" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@{EXPERIMENT}.1 hostname"
    assert rig.run(second, asked).stdout == "the image\n"
    impostor = re.sub(r"ssh-ed25519 \S+", " ".join(public.split()[:2]), offer)
    refused = call(rig, second, "cat >/tmp/altered", "fetch_image", key, impostor)
    assert (refused.returncode, "error: [node-unreachable] " in refused.stderr) == (1, True), refused.stderr
    assert rig.run(second, "cat /tmp/altered").stdout == ""
    call(rig, first, "true", "withdraw_image")
    assert rig.run(first, "cat ~/.ssh/authorized_keys").stdout == before
    assert call(rig, second, "cat", "fetch_image", key, offer).returncode == 1


def test_ranks_use_the_experiment_network_alone_and_have_no_privilege(user: Clone, rig: Rig, begin: Begin) -> None:
    training = begin("RUN_NAME=private")
    before = {node: (bytes_of(rig, node, "exp0"), bytes_of(rig, node, "ctl0")) for node in rig.nodes}
    for number, node in enumerate(rig.nodes, start=1):
        for program in ("python3", "dockerd"):
            assert listening(rig, node, program) == {f"{EXPERIMENT}.{number}"}, "each listens for the others"
        looked = rig.run(node, f"{unpacked(user)} && scripts/hardening --stack {user.project}").stdout
        assert looked.count("  ok     ") == 12, looked
        assert "WRONG" not in looked
    second = user.run(*line(rig, *SMALL, *rig.nodes))
    assert second[0] == 2
    assert "[run-in-progress]" in second[1]
    for node in rig.nodes:
        assert bytes_of(rig, node, "ctl0") - before[node][1] < MOST_CONTROL_BYTES
        assert bytes_of(rig, node, "exp0") - before[node][0] > MOST_CONTROL_BYTES
    rig.run(rig.nodes[0], "pkill --full '^timeout --kill-after=[0-9]+ 0 bash -s$'")  # the connection breaks
    until(lambda: f"Reconnected to {rig.nodes[0]}" in training.output, "the connection to be made again")
    training.interrupt()
    assert training.end() == 130, training.output
    assert any(each["kind"] == "step" for each in user.records(3)), "what was recorded comes home all the same"
    nothing_runs(rig, user.project)


def test_a_killed_rank_is_named_with_its_node_and_its_records_come_home(user: Clone, rig: Rig, begin: Begin) -> None:
    training = begin("RUN_NAME=killed", "MAX_RESTARTS=0")
    victim = rig.nodes[2]
    kill_rank(rig, victim)
    assert training.end() == 1, training.output
    assert "lost rank 2" in training.output
    assert f"rank 2 on {victim} ({EXPERIMENT}.3): its rank was killed by SIGKILL" in training.output
    for rank in range(4):
        assert any(each["kind"] == "step" for each in user.records(rank)), rank
    assert not user.summary()["complete"]
    nothing_runs(rig, user.project)


def test_killed_ranks_come_again_and_a_stopped_run_goes_on_to_the_same_bits(
    user: Clone, rig: Rig, begin: Begin
) -> None:
    saving = (*SAVING, "MAX_STEPS=300")  # so long that a fast machine is still at it when it is stopped
    user.up(*saving, WORKERS="3", RUN_NAME="undisturbed")
    expected = hashes(user)
    training = begin(*saving, steps=30)
    kill_rank(rig, rig.nodes[2])
    training.until_it_says("attempt 1 resumes at step ")
    assert "The Swarm has restarted rank 0 (1 of 5)" in training.output
    for node in (rig.nodes[0], rig.nodes[3]):
        kill_rank(rig, node)
    training.until_it_says("attempt 2 resumes at step ")
    training.interrupt()
    assert training.end() == 130, training.output
    assert "The same command resumes this run" in training.output
    name = (user.folder / "results/latest").readlink().name
    nothing_runs(rig, user.project, left=f"{name}\n")
    assert not user.summary()["complete"]
    code, output = run(user, rig, *saving, *rig.nodes)
    assert code == 0, output
    assert f"results/{name}: " in output
    assert "(resumes at step " in output
    assert (user.summary()["complete"], user.summary()["attempts"]) == (True, 4)
    assert hashes(user) == expected
    nothing_runs(rig, user.project)
    code, output = run(user, rig, *saving, f"RESUME={name}", *rig.nodes)
    assert (code, f"[cannot-resume] RESUME={name}: results/{name} " in output) == (2, True), output


@pytest.mark.long
@pytest.mark.parametrize("cut_off", [0, 3])
def test_a_run_goes_on_when_a_node_that_was_cut_off_is_back(user: Clone, rig: Rig, begin: Begin, cut_off: int) -> None:
    saving = (*SAVING, "MAX_STEPS=200")
    user.up(*saving, WORKERS="3", RUN_NAME=f"with-{cut_off}")
    expected = hashes(user)
    training = begin(*saving, "PEER_TIMEOUT=5", f"RUN_NAME=without-{cut_off}", steps=30)
    rig.link(rig.nodes[cut_off], "exp", "down")
    try:
        training.until_it_says("The Swarm has restarted rank 0 (1 of 5)")
        training.until_it_says("waiting for rank ")
    finally:
        rig.link(rig.nodes[cut_off], "exp", "up")
    assert training.end() == 0, training.output
    assert re.search(r"attempt \d resumes at step [1-9]", training.output), training.output
    assert hashes(user) == expected
    nothing_runs(rig, user.project)


@pytest.mark.long
def test_a_node_that_falls_silent_is_named_within_the_limit(user: Clone, rig: Rig, begin: Begin) -> None:
    training = begin("RUN_NAME=silent", "PEER_TIMEOUT=5", "MAX_RESTARTS=0")
    rig.link(rig.nodes[3], "exp", "down")
    try:
        assert training.end() == 1, training.output
    finally:
        rig.link(rig.nodes[3], "exp", "up")
    assert re.search(r"lost .*rank 3", training.output), training.output
    nothing_runs(rig, user.project)


@pytest.mark.long
def test_a_run_outlives_the_connection_to_its_first_node(user: Clone, rig: Rig, begin: Begin) -> None:
    training = begin("RUN_NAME=asleep", ssh=True)
    rig.link(rig.nodes[0], "ctl", "down")
    try:
        until(lambda: "Lost the connection to " in training.output, "the silence to be noticed")
    finally:
        rig.link(rig.nodes[0], "ctl", "up")
    until(lambda: f"Reconnected to {rig.full_name(rig.nodes[0])}" in training.output, "another connection")
    lines = len(training.lines)
    until(lambda: len(training.lines) > lines + 5, "rank 0's lines")
    subprocess.run(["pkill", "--signal=INT", "--oldest", "--full", "^bash scripts/cloudlab .*=asleep"], check=True)
    assert training.end() == 130, training.output
    assert (user.folder / "results/asleep/report.html").stat().st_size > 0
    nothing_runs(rig, user.project)


@pytest.mark.long
def test_ended_ranks_are_kept_if_asked_for(user: Clone, rig: Rig, begin: Begin) -> None:
    code, output = run(user, rig, "--keep", *SMALL, "RUN_NAME=kept", *rig.nodes)
    assert code == 0, output
    assert "The exited ranks are kept" in output
    assert user.summary()["complete"]
    for node in rig.nodes:
        (container,) = containers(rig, node)
        assert "loss: " in rig.docker(node, f"logs {container}")
        assert rig.run(node, f"ls /var/tmp/{user.project}/results/kept").stdout
    code, output = run(user, rig, *SMALL, "RUN_NAME=after", *rig.nodes)
    assert code == 0, output
    for node in rig.nodes:
        assert containers(rig, node) == []
        assert rig.run(node, f"cd /var/tmp/{user.project}/results && ls && rm -r kept").stdout == "kept\n"


@pytest.mark.long
def test_vgg11_trains_on_nodes_that_lack_the_image(user: Clone, rig: Rig) -> None:
    for node in rig.nodes[2:]:
        rig.run(node, "docker rmi --force $(docker image ls --quiet lockstep)")
    code, output = run(user, rig, "MAX_STEPS=3", "TEST_SAMPLES=100", "RUN_NAME=vgg11", *rig.nodes)
    assert code == 0, output
    assert "Sending the image from node0 to node2, node3" in output
    assert user.summary()["complete"]
    assert user.manifest()["settings"]["model"] == "vgg11"


@pytest.mark.long
def test_ranks_on_an_overlay_network_have_addresses_of_their_own(user: Clone, rig: Rig) -> None:
    code, output = run(user, rig, *SMALL, "NETWORK=overlay", "RUN_NAME=overlay", *rig.nodes)
    assert code == 0, output
    addresses = [each["address"] for each in user.manifest()["ranks"]]
    assert len(set(addresses)) == 4
    assert not any(address.startswith((f"{EXPERIMENT}.", f"{CONTROL}.")) for address in addresses)


def test_down_leaves_nothing_on_the_nodes(user: Clone, rig: Rig) -> None:
    code, output = run(user, rig, "--down", *rig.nodes)
    assert code == 0, output
    for node in rig.nodes:
        assert rig.docker(node, "info --format {{.Swarm.LocalNodeState}}") == "inactive"
        assert rig.docker(node, "ps --all --quiet") == ""
        assert rig.run(node, "ls -A /var/tmp | grep lockstep", check=False).stdout == ""
    assert not list(Path("/tmp").glob("lockstep.*"))  # noqa: S108
    assert not list(user.folder.glob("results/.claim*"))
