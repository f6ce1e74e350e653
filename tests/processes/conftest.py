"""Groups of ranks, formed once and used by all tests of a file."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.processes.group import Group

settings.register_profile("long", max_examples=5000, deadline=None)

GroupOf = Callable[[int], Group]

MOST_KEPT = 5  # ranks of a group that stays: larger ones would fill the memory beside each other


@pytest.fixture(scope="module")
def group_of() -> Iterator[GroupOf]:
    """The group of a world size, until the end of the file; the memory that its ranks keep ends with it.

    There is one large group at a time.
    """
    groups: dict[int, Group] = {}

    def of(world_size: int) -> Group:
        if world_size not in groups:
            for large in [each for each in groups if each > MOST_KEPT]:
                groups.pop(large).close()
            groups[world_size] = Group(world_size)
        return groups[world_size]

    yield of
    for group in groups.values():
        group.close()
