"""Clusters of real containers, each in a clone and a Compose project of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300
# Tests of two checkouts on one machine keep out of each other's way.
CHECKOUT = 100 + crc32(str(ROOT).encode()) % 100
SMALL = {
    "MODEL": "lenet5",
    "DATASET": "digits",
    "WORKERS": "1",
    "MAX_STEPS": "6",
    "LINK_CHECK": "off",
}  # some tests are about more
# A run that takes little of the machine until something ends it: its ranks wait for their links.
ENDLESS = {
    "MODEL": "lenet5",
    "DATASET": "digits",
    "EPOCHS": "1000000",
    "EVALUATE": "never",
    "LINK_RATE": "10mbit",
    "LINK_CHECK": "off",
}

# A shell that starts the tests in the background has made them, and all that they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

Caller = tuple[int, int]  # user and group


class Clone:
    """A copy of the sources as a user would have it, whose cluster disturbs no other."""

    def __init__(self, folder: Path, number: int, caller: Caller | None = None) -> None:
        self.folder = folder / "clone"
        self.project = f"lockstep-test-{CHECKOUT}-{number}"
        self._home = folder / "home"
        self.caller = caller
        self._place = {"COMPOSE_PROJECT_NAME": self.project, "HOME": str(self._home)}
        copy_sources(self.folder)
        self._home.mkdir()
        if caller is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *caller, follow_symlinks=False)

    def use_its_own_project(self, folder: Path | None = None) -> None:
        """The one that the scripts name by user and place, where the environment names none."""
        del self._place["COMPOSE_PROJECT_NAME"]
        name = "for part in settings project; do . scripts/host/$part.sh; done; name_project; project_name"
        code, output = self.run("bash", "-c", f"cd '{folder or self.folder}'; {name}")
        assert code == 0, output
        self.project = output.strip()

    def environment(self, **settings: str) -> dict[str, str]:
        dropped = known_settings() | {"COMPOSE_PROJECT_NAME"}  # scripts/test has one of its own
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | self._place | settings

    def start(self, *command: str, **settings: str) -> subprocess.Popen[str]:
        user, group = self.caller or (None, None)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=None if self.caller is None else [Path("/run/docker.sock").stat().st_gid],
        )

    def run(self, *command: str, **settings: str) -> tuple[int, str]:
        """A command's exit code and output."""
        process = self.start(*command, **settings)
        try:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, output

    def up(self, *arguments: str, **settings: str) -> str:
        """A run of LeNet-5 that has to succeed; its output."""
        code, output = self.run("scripts/up", *arguments, **{**SMALL, **settings})
        assert code == 0, output
        return output

    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "results/latest/summary.json").read_text())
        return content

    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "results/latest/manifest.json").read_text())
        return content

    def records(self, rank: int) -> list[dict[str, Any]]:
        lines = (self.folder / f"results/latest/rank-{rank}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def containers(self, *options: str) -> list[str]:
        return docker("ps", *options, "--quiet", "--filter", f"label=com.docker.compose.project={self.project}").split()

    def networks(self) -> list[str]:
        label = f"label=com.docker.compose.project={self.project}"  # another clone's name may begin with this one's
        return docker("network", "ls", "--quiet", "--filter", label).split()

    @property
    def image(self) -> str:
        """What the scripts, or plain Compose, have built from these sources."""
        return f"lockstep:of-{self.project}"

    def subnet(self) -> str:
        """Of the ranks' network, which Docker has chosen."""
        return docker(
            "network", "inspect", f"{self.project}_ranks", "--format", "{{(index .IPAM.Config 0).Subnet}}"
        ).strip()

    def container(self, service: str, number: int = 1) -> str:
        return f"{self.project}-{service}-{number}"

    def kill(self, service: str, number: int = 1) -> str:
        """As the kernel kills for lack of memory: at once, and without Docker's knowledge. Its name is returned."""
        victim = self.container(service, number)
        os.kill(int(docker("inspect", "--format", "{{.State.Pid}}", victim)), signal.SIGKILL)
        return victim

    def wait_for_step(self, step: int) -> None:
        """Until rank 0 has recorded this many steps."""
        self.wait_for("step", step)

    def wait_for(self, kind: str, count: int) -> None:
        """Until rank 0 has written this many records of a kind."""
        path = self.folder / "results/latest/rank-0.jsonl"
        until(
            lambda: path.is_file() and path.read_text().count(f'"kind": "{kind}"') >= count,
            f"{count} records of {kind} in {self.project}",
        )

    def tidy(self) -> None:
        """Leave no container and no result."""
        (self.folder / ".env").unlink(missing_ok=True)
        if self.containers("--all"):
            self.run("scripts/down")
        for path in (self.folder / "results").iterdir():
            if path.is_symlink():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)

    def remove(self) -> None:
        (self.folder / ".env").unlink(missing_ok=True)
        self.run("docker", "compose", "down", "--volumes", "--remove-orphans", "--timeout", "1")
        self.run("scripts/down", "--all")


def copy_sources(folder: Path) -> None:
    """What git tracks and what it would track, as it is now; history as well."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


def status_of_program(container: str) -> dict[str, str]:
    """What the kernel says of the training process, the only Python in a container."""
    listed = docker("exec", container, "sh", "-c", "cat $(grep -l '^Name:.python3$' /proc/[0-9]*/status)")
    assert listed.count("Name:") == 1
    return dict(re.findall(r"^(\w+):[ \t]*(.*?)[ \t]*$", listed, re.MULTILINE))


def known_settings() -> set[str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return {line[1:].partition("=")[0] for line in lines if line.startswith("#") and not line.startswith("# ")}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def owners(paths: Iterable[Path]) -> set[Caller]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in paths}
