"""Every command that the README shows is run, in a small version of itself."""

import re

import pytest

from tests.containers.cluster import ROOT, SMALL, Clone

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What a test cannot do, and why.
ELSEWHERE = {
    "git clone": "the sources are here already",
    "cd lockstep": "goes with it",
    "scripts/test": "this is part of it",
}


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    lines = [line.partition("  #")[0].strip() for block in BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(tuple(ELSEWHERE))]


@pytest.mark.parametrize("command", commands())
def test_command(clone: Clone, command: str) -> None:
    own = set(re.findall(r"\b([A-Z_]+)=", command))
    small = {**SMALL, "MAX_STEPS": "2", "EVALUATE": "never"}
    if "MODEL" not in own and "EPOCHS" in own:
        small.pop("MODEL")
    code, output = clone.run("bash", "-c", command, **{name: value for name, value in small.items() if name not in own})
    assert code == 0, output
