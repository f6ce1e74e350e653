"""The least times of the patterns, and the modes' own, on links of any speed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.wire.bandwidth import LinkSpeed, all_reduce_seconds, all_reduce_share, gather_seconds, scatter_seconds
from app.modes import MODES
from app.settings.averaging import AveragingSettings
from app.sync.modes import mode_class
from app.sync.schedules.costs import Cost, Size

SIZE = 1000
GRADIENTS = Size(elements=2400, bytes=9600)
SPEED = st.floats(1, 1e10)
LINKS = st.lists(st.builds(LinkSpeed, SPEED, SPEED), min_size=1, max_size=8)


def cost_of(mode: str) -> Cost:
    return mode_class(mode).cost_of(AveragingSettings())


def alike(ranks: int, speed: float = 1e6) -> list[LinkSpeed]:
    return [LinkSpeed(speed, speed)] * ranks


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_the_star_takes_as_many_times_as_long_as_the_ring_as_there_are_ranks(ranks: int) -> None:
    star = cost_of("gather_scatter").seconds_at_least(GRADIENTS, alike(ranks))
    ring = cost_of("ring_all_reduce").seconds_at_least(GRADIENTS, alike(ranks))
    assert star / ring == pytest.approx(ranks)


@given(mode=st.sampled_from(sorted(MODES)), links=LINKS)
def test_no_mode_can_be_quicker_than_its_bytes_pass_its_links(mode: str, links: list[LinkSpeed]) -> None:
    cost, ranks = cost_of(mode), len(links)
    sending = [cost.bytes_sent(GRADIENTS, rank, ranks) / link.sends for rank, link in enumerate(links)]
    # The ring's formula is exact to the element, its bound takes every rank's share for the same.
    assert cost.seconds_at_least(GRADIENTS, links) >= max(sending) * 0.99


@pytest.mark.parametrize("mode", MODES)
def test_alone_there_is_nothing_to_wait_for(mode: str) -> None:
    assert cost_of(mode).seconds_at_least(GRADIENTS, alike(1)) == 0


@given(mode=st.sampled_from(sorted(MODES.keys() - {"none"})), links=LINKS.filter(lambda links: len(links) > 1))
def test_a_slower_link_never_helps(mode: str, links: list[LinkSpeed]) -> None:
    slower = [LinkSpeed(links[0].sends / 2, links[0].receives / 2), *links[1:]]
    bound = cost_of(mode).seconds_at_least
    assert bound(GRADIENTS, slower) >= bound(GRADIENTS, links) > 0


def test_the_patterns_by_hand() -> None:
    links = [LinkSpeed(10, 20), LinkSpeed(40, 50), LinkSpeed(1, 100)]
    assert all_reduce_share(SIZE, 4) == 1500
    assert all_reduce_seconds(SIZE, links) == pytest.approx(4 / 3 * SIZE / 1)
    assert gather_seconds(SIZE, links) == SIZE / 1  # rank 2 sends slowest
    assert scatter_seconds(SIZE, links) == 2 * SIZE / 10  # rank 0 sends to both
