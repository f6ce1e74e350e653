"""Groups of one to five ranks, formed once and used by many tests."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.processes.group import Group

settings.register_profile("long", max_examples=5000, deadline=None)

GroupOf = Callable[[int], Group]


@pytest.fixture(scope="session")
def group_of() -> Iterator[GroupOf]:
    """The group of a world size."""
    groups: dict[int, Group] = {}

    def of(world_size: int) -> Group:
        if world_size not in groups:
            groups[world_size] = Group(world_size)
        return groups[world_size]

    yield of
    for group in groups.values():
        group.close()
