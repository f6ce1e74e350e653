"""One rig for all tests of nodes, with the image of these sources in every engine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.cluster import CHECKOUT, Clone
from tests.nodes.rig import Rig

RIG = Path(f"/tmp/lockstep-rig-{CHECKOUT}")  # noqa: S108  # root's; control sockets need a short path
BUILD = "for part in messages engine base_image settings project image cluster; do . scripts/host/$part.sh; done"


@pytest.fixture(scope="session", autouse=True)
def _only_where_it_can_be_made() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """A user's checkout, and the image that its sources make."""
    clone = Clone(tmp_path_factory.mktemp("user"), 90)
    code, output = clone.run("bash", "-c", f"{BUILD}; name_project; build_image")
    assert code == 0, output
    yield clone
    clone.remove()


@pytest.fixture(scope="session")
def rig(user: Clone) -> Iterator[Rig]:
    """Four nodes."""
    code, number = user.run("bash", "-c", f"{BUILD}; REVISION=; number_of_sources")
    assert code == 0, number
    made = Rig(RIG, nodes=4)
    made.down()  # of tests that were killed
    made.up("debian:trixie-slim", f"lockstep:{number.strip()}")
    yield made
    made.down()
