"""Every command that the README shows is run, in a small version of itself."""

import re

import pytest

from tests.containers.cluster import ROOT, SMALL, Clone

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

THIS_TEST = "scripts/test"
TRAINS_NOTHING = ("scripts/doctor", "scripts/benchmark")
READS_RUNS = ("scripts/compare", "scripts/report")  # those whose names the lines before have given


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    lines = [line.partition("  #")[0].strip() for block in BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in lines if line and line != THIS_TEST]


@pytest.mark.parametrize("command", commands())
def test_command(clone: Clone, command: str) -> None:
    small = {**SMALL, "MAX_STEPS": "2", "EVALUATE": "never"}
    earlier = [each for each in commands() if "RUN_NAME=" in each] if command.startswith(READS_RUNS) else []
    for each in (*earlier, command):
        shown = set(re.findall(r"\b([A-Z_]+)=", each))
        code, output = clone.run("bash", "-c", each, **{name: small[name] for name in small.keys() - shown})
        assert code == 0, output
    if not command.startswith(TRAINS_NOTHING):
        assert clone.summary()["complete"]
