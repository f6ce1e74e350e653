"""Groups of ranks, formed once and used by many tests."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.processes.group import Group

settings.register_profile("long", max_examples=5000, deadline=None)

GroupOf = Callable[[int], Group]

MOST_KEPT = 5  # ranks of a group that stays: larger ones would fill the memory beside each other


@pytest.fixture(scope="session")
def groups() -> Iterator[dict[int, Group]]:
    """Those that have been formed, by world size."""
    formed: dict[int, Group] = {}
    yield formed
    for group in formed.values():
        group.close()


@pytest.fixture(scope="session")
def group_of(groups: dict[int, Group]) -> GroupOf:
    """The group of a world size. There is one large group at a time."""

    def of(world_size: int) -> Group:
        if world_size not in groups:
            _end_large(groups)
            groups[world_size] = Group(world_size)
        return groups[world_size]

    return of


@pytest.fixture(scope="module", autouse=True)
def large_groups_end_with_their_file(groups: dict[int, Group]) -> Iterator[None]:
    yield
    _end_large(groups)


def _end_large(groups: dict[int, Group]) -> None:
    for world_size in [each for each in groups if each > MOST_KEPT]:
        groups.pop(world_size).close()
