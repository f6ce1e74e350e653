"""Several machines on one: namespaces with two networks, a Docker engine and an SSH server in each node.

By hand, as root: `python3 tests/nodes/rig.py up --nodes 4 --image lockstep`, then `/tmp/lockstep-rig/enter node0
COMMAND`, or `python3 tests/nodes/rig.py home COMMAND...` for the user's machine, and at the end `... rig.py down`.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from zlib import crc32

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.nodes import images

HERE = Path(__file__).parent
EXPERIMENT, CONTROL = "10.10.1", "10.90.0"  # as on CloudLab: rank 0's node is 10.10.1.1
DOMAIN = "exp.proj.example"  # full names mean the control network, short ones the experiment network
HOME_NUMBER = 200  # of the user's machine, in the control network
PATIENCE_SECONDS = 90.0
CGROUPS = Path("/sys/fs/cgroup")
FOLDER = Path("/tmp/lockstep-rig")  # noqa: S108  # for use by hand; tests give folders of their own


class Rig:
    """A number of nodes, a switch between them, and a user's machine that sees the control network alone."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.nodes = [f"node{number}" for number in range(nodes)]
        self.enter = folder / "enter"
        self._started: list[subprocess.Popen[bytes]] = []

    @classmethod
    def found_in(cls, folder: Path) -> "Rig":
        """The rig that another process has made."""
        return cls(folder, len(list(folder.glob("node*/docker"))))

    def full_name(self, node: str) -> str:
        return f"{node}.{DOMAIN}"

    def up(self, *given: str) -> None:
        """Make everything; whatever goes wrong on the way, nothing is left."""
        try:
            self._make_folders()
            for name in ("switch", "home", *self.nodes):
                self._start_machine(name)
            self._wire()
            self.start_ssh()
            shared = images.can_share(self.folder)
            for image, node in product(given if shared else (), self.nodes):
                images.share(image, self.folder / node / "docker")
            with ThreadPoolExecutor() as pool:
                list(pool.map(self.start_engine, self.nodes))
            for image in () if shared else given:
                self.load(image)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Remove everything, also a rig that is half made or whose maker was killed."""
        mine = f"{self.folder}/".encode()
        kept_alive = [pid for pid, words in processes() if words[:1] == [b"unshare"] and words[-2].startswith(mine)]
        for pid in kept_alive:
            os.kill(pid, signal.SIGKILL)  # takes the first process of its machine along, and that one all others
        until(lambda: not {pid for pid, _ in processes()} & set(kept_alive), "the machines to end")
        while self._started:
            self._started.pop().wait(PATIENCE_SECONDS)
        until(lambda: all(map(_remove_cgroups, self._cgroups())), "the groups of their processes to be empty")
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def cgroup(self) -> str:
        return f"lockstep-rig-{crc32(str(self.folder).encode()):08x}"

    def _cgroups(self) -> list[Path]:
        return [*CGROUPS.glob(f"*/{self.cgroup}"), *CGROUPS.glob(self.cgroup)]

    def run(self, machine: str, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A shell command on one of the machines."""
        result = subprocess.run(
            [self.enter, machine, command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if check and result.returncode:
            raise RuntimeError(f"{machine}: {command}: exit code {result.returncode}: {result.stdout}{result.stderr}")
        return result

    def at_home(self, place: Path, *command: str) -> list[str]:
        """The command line that runs a command on the user's machine, in a folder."""
        pid = (self.folder / "names/home").read_text()
        return ["nsenter", "--target", pid, "--mount", "--uts", "--net", "--pid", f"--wdns={place}", *command]

    def docker(self, node: str, arguments: str) -> str:
        return self.run(node, f"docker {arguments}").stdout.strip()

    def start_engine(self, node: str) -> None:
        """Start a node's engine and wait for its answer."""
        self.run(node, "rm -f /run/docker.pid; setsid dockerd </dev/null >>/var/log/docker.log 2>&1 &")
        answers = "docker info >/dev/null 2>&1"
        until(lambda: not self.run(node, answers, check=False).returncode, f"the engine of {node} to answer")

    def stop_engine(self, node: str) -> None:
        """End a node's engine as a crash of it would, with its containers."""
        self.run(node, "pkill -KILL dockerd; pkill -KILL containerd; true")

    def start_ssh(self) -> None:
        """An SSH server on every address of every node, with one key for all."""
        key, host_key = self.folder / "ssh/key", self.folder / "ssh/host_key"
        for file in (key, host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
        authorised = key.with_suffix(".pub").read_text()
        (self.folder / "ssh/config").write_text(
            f"IdentityFile {key}\nIdentitiesOnly yes\nUser root\nUserKnownHostsFile {self.folder}/ssh/known\n"
            "StrictHostKeyChecking accept-new\nLogLevel ERROR\n"
        )
        options = "-o UsePAM=no -o PasswordAuthentication=no -o StrictModes=no"
        for node in self.nodes:
            self.run(
                node,
                f"umask 077; mkdir -p /etc/ssh ~/.ssh; echo '{authorised.strip()}' >~/.ssh/authorized_keys; "
                f"echo '{host_key.read_text()}' >/etc/ssh/rig_host_key; "
                f"setsid $(command -v sshd) -D -f /dev/null -h /etc/ssh/rig_host_key {options} "
                "</dev/null >/var/log/sshd.log 2>&1 &",
            )

    def load(self, image: str) -> None:
        """Hand an image of this machine's engine to every node."""
        archive = self.folder / "image.tar"
        subprocess.run(["docker", "save", "--output", archive, image], check=True)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: self._load(node, archive), self.nodes))
        archive.unlink()

    def _load(self, node: str, archive: Path) -> None:
        with archive.open("rb") as stream:
            subprocess.run([self.enter, node, "docker load --quiet"], stdin=stream, check=True, capture_output=True)

    def link(self, node: str, network: str, state: str) -> None:
        """Take a node's cable out of the switch (`down`), or put it back (`up`)."""
        self.run("switch", f"ip link set {network}-{node} {state}")

    def _make_folders(self) -> None:
        if self.folder.exists():
            raise RuntimeError(f"{self.folder} exists: there is a rig already. Remove it: rig.py down")
        for name in ("names", "ssh", "home/scratch", "switch/scratch"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy2(HERE / "enter", self.enter)
        full = "".join(f"{CONTROL}.{number} {self.full_name(node)}\n" for number, node in self._numbered())
        short = "".join(f"{EXPERIMENT}.{number} {node} {node}-lan\n" for number, node in self._numbered())
        for name in ("home", "switch", *self.nodes):
            (self.folder / name).mkdir(exist_ok=True)
            local = "127.0.0.1 localhost\n"
            (self.folder / name / "hosts").write_text(local + full + (short if name in self.nodes else ""))
        for node in self.nodes:
            (self.folder / node / "docker").mkdir()
            (self.folder / node / "scratch").mkdir()
            engine = {"cgroup-parent": f"/{self.cgroup}/{node}", "exec-opts": ["native.cgroupdriver=cgroupfs"]}
            (self.folder / node / "daemon.json").write_text(json.dumps(engine))

    def _numbered(self) -> Iterator[tuple[int, str]]:
        return enumerate(self.nodes, start=1)

    def _start_machine(self, name: str) -> None:
        folder = self.folder / name
        kind = "node" if name in self.nodes else name
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [
                    *("unshare", "--mount", "--uts", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"),
                    *("bash", HERE / "machine.sh", folder, kind),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        said = folder / "log"
        until(lambda: said.read_text() or process.poll() is not None, f"{name} to be ready")
        if said.read_text() != "ready\n":
            raise RuntimeError(f"{name} ended: {said.read_text()}")
        first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip()
        names = [name]
        if kind == "node":
            number = self.nodes.index(name) + 1
            names += [self.full_name(name), f"{CONTROL}.{number}", f"{EXPERIMENT}.{number}"]
        for each in names:
            (self.folder / "names" / each).write_text(first)

    def _wire(self) -> None:
        self.run("switch", "for n in exp ctl; do ip link add $n type bridge && ip link set $n up; done")
        self._plug("home", "ctl", f"{CONTROL}.{HOME_NUMBER}")
        for number, node in self._numbered():
            self._plug(node, "exp", f"{EXPERIMENT}.{number}")
            self._plug(node, "ctl", f"{CONTROL}.{number}")

    def _plug(self, machine: str, network: str, address: str) -> None:
        pids = {name: (self.folder / "names" / name).read_text() for name in (machine, "switch")}
        port = f"{network}-{machine}"
        cable = f"ip link add {network}0 netns {pids[machine]} type veth peer name {port} netns {pids['switch']}"
        subprocess.run(cable.split(), check=True)
        self.run("switch", f"ip link set {port} master {network} up")
        self.run(machine, f"ip address add {address}/24 dev {network}0 && ip link set {network}0 up")


def processes() -> Iterator[tuple[int, list[bytes]]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")[:-1]
        except OSError:
            continue
        if words:
            yield int(path.parent.name), words


def _remove_cgroups(parent: Path) -> bool:
    for folder, _, _ in os.walk(parent, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            return False
    return True


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")
        time.sleep(0.05)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make a rig")
    up.add_argument("--nodes", type=int, default=4)
    up.add_argument("--image", action="append", default=[], help="of this machine's engine, for all nodes")
    verbs.add_parser("down", help="remove it")
    verbs.add_parser("status", help="ask every engine for its state")
    home = verbs.add_parser("home", help="run a command on the user's machine")
    home.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(words)
    rig = Rig(arguments.folder, arguments.nodes) if arguments.verb == "up" else Rig.found_in(arguments.folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    match arguments.verb:
        case "up":
            rig.up(*arguments.image)
        case "down":
            rig.down()
        case "home":
            return subprocess.run(rig.at_home(Path.cwd(), *arguments.command), check=False).returncode
        case "status":
            for node in rig.nodes:
                print(node, rig.docker(node, "info --format '{{.ServerVersion}}, Swarm {{.Swarm.LocalNodeState}}'"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
