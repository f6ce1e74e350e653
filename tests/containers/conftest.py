"""Each test gets clones with projects and networks of their own, and leaves nothing behind."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.containers.cluster import Caller, Clone

# Tests that run at the same time have clones of other numbers.
numbers = count(1 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))

MakeClone = Callable[..., Clone]


def make_in(tmp_path_factory: pytest.TempPathFactory, caller: Caller | None = None) -> Clone:
    folder = tmp_path_factory.mktemp("cluster")
    for parent in (folder, *folder.parents):
        if parent.owner() == Path.home().owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)  # pytest keeps its folders from other users
        if parent.name.startswith("pytest-of"):
            break
    return Clone(folder, next(numbers), caller)


@pytest.fixture
def make_clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeClone]:
    """A maker of clones, each in its own place."""
    made: list[Clone] = []

    def make(caller: Caller | None = None) -> Clone:
        made.append(make_in(tmp_path_factory, caller))
        return made[-1]

    yield make
    for clone in made:
        clone.remove()


@pytest.fixture(scope="module")
def used_clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """One for all tests of a file that may follow upon each other, as the commands of a user do."""
    clone = make_in(tmp_path_factory)
    yield clone
    clone.remove()


@pytest.fixture
def clone(used_clone: Clone) -> Iterator[Clone]:
    """The same without any container or result, before the test and after it."""
    used_clone.tidy()
    yield used_clone
    used_clone.tidy()
