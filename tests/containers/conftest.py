"""Each test gets clones with projects and networks of their own, and leaves nothing behind."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.containers.cluster import Caller, Clone

numbers = count(1)

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


@pytest.fixture
def clone(make_clone: MakeClone) -> Clone:
    return make_clone()


@pytest.fixture(scope="module")
def used_clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """One for all tests of a file that may follow upon each other, as the commands of a user do."""
    clone = make_in(tmp_path_factory)
    yield clone
    clone.remove()
