"""Schedules: after the last round each rank has the sum, for the bytes that are published, in a time that can be."""

import math
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.wire.bandwidth import LinkSpeed, all_reduce_share
from app.cluster.wire.communicator import Transfer
from app.modes import MODES
from app.settings.averaging import AveragingSettings
from app.sync.modes import mode_class
from app.sync.modes.gather_scatter import star
from app.sync.modes.ring_all_reduce import ring
from app.sync.rounds import Departures, Scheduled
from app.sync.schedules.costs import seconds_at_least
from app.sync.schedules.schedule import Message, Schedule, Send, asked_after, cut, part_of, sent_after

SCHEDULED = [name for name in MODES if issubclass(mode_class(name), Scheduled)]
ELEMENTS = 840  # divides by every number of ranks up to 8
RANKS = range(1, 9)

Sent = Callable[[int, int], float]  # by a rank of so many, in units of all gradients


def schedule_of(mode: str, elements: int, ranks: int) -> Schedule:
    loaded = mode_class(mode)
    assert issubclass(loaded, Scheduled)
    return loaded.schedule(elements, ranks, AveragingSettings())


def inner(ranks: int) -> int:
    return 1 << (ranks.bit_length() - 1)


def folded(rank: int, ranks: int, among: float) -> float:
    """Those beyond the power of two send everything once; their partners do so besides what all send."""
    if rank >= inner(ranks):
        return 1
    return among + (rank < ranks - inner(ranks))


def children(rank: int, ranks: int) -> int:
    """In a binomial tree: those that differ in one of the zeros below the lowest one of the number."""
    lowest = rank & -rank or ranks
    return sum(1 for level in range(ranks.bit_length()) if 1 << level < lowest and rank + (1 << level) < ranks)


def in_groups(rank: int, ranks: int) -> float:
    group = max(size for size in range(1, math.isqrt(ranks) + 1) if ranks % size == 0)
    groups = ranks // group
    return 2 * (group - 1) / group + 2 * (groups - 1) / groups / group


# The formulas as they are published, written down once more.
SENT: dict[str, Sent] = {
    "send_recv": lambda rank, ranks: 0 if ranks == 1 else ranks - 1 if rank == 0 else 1,
    "ring_all_reduce": lambda rank, ranks: all_reduce_share(1, ranks),
    "tree": lambda rank, ranks: children(rank, ranks) + (rank > 0),
    "recursive_doubling": lambda rank, ranks: folded(rank, ranks, math.log2(inner(ranks))),
    "halving_doubling": lambda rank, ranks: folded(rank, ranks, all_reduce_share(1, inner(ranks))),
    "hierarchical": in_groups,
    "parameter_server": lambda rank, ranks: all_reduce_share(1, ranks),
}
ROUNDS: dict[str, Callable[[int], int]] = {
    "send_recv": lambda ranks: 2 * (ranks > 1),
    "ring_all_reduce": lambda ranks: 2 * (ranks - 1),
    "tree": lambda ranks: 2 * math.ceil(math.log2(ranks)),
    "recursive_doubling": lambda ranks: int(math.log2(inner(ranks))) + 2 * (ranks > inner(ranks)),
    "halving_doubling": lambda ranks: 2 * int(math.log2(inner(ranks))) + 2 * (ranks > inner(ranks)),
    "parameter_server": lambda ranks: 2 * (ranks > 1),
}


def test_every_scheduled_mode_has_a_formula_here() -> None:
    assert set(SENT) == set(SCHEDULED)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("mode", SCHEDULED)
def test_each_rank_sends_what_the_published_formula_says(mode: str, ranks: int) -> None:
    schedule = schedule_of(mode, ELEMENTS, ranks)
    for rank in range(ranks):
        assert schedule.elements_sent(rank) == pytest.approx(ELEMENTS * SENT[mode](rank, ranks), abs=1e-9)
    if mode in ROUNDS:
        assert len([each for each in schedule.rounds if each]) == ROUNDS[mode](ranks)


@pytest.mark.parametrize("mode", SCHEDULED)
@given(elements=st.integers(1, 300), ranks=st.integers(1, 17), most=st.integers(1, 100))
def test_in_the_end_each_rank_has_the_sum_in_pieces_as_well(mode: str, elements: int, ranks: int, most: int) -> None:
    schedule = schedule_of(mode, elements, ranks)
    whole, pieces = (each.completing(elements, ranks) for each in (schedule, schedule.in_pieces(most)))
    assert sum(len(each.piece) for _, each in whole) == sum(len(each.piece) for _, each in pieces)


@pytest.mark.parametrize(("group", "shards"), [(1, 1), (2, 2), (3, 5), (6, 6)])
def test_groups_and_shards_of_any_size(group: int, shards: int) -> None:
    for mode, settings in (
        ("hierarchical", AveragingSettings(sync_mode="hierarchical", group_size=group)),
        ("parameter_server", AveragingSettings(sync_mode="parameter_server", shards=shards)),
    ):
        loaded = mode_class(mode)
        assert issubclass(loaded, Scheduled)
        schedule = loaded.schedule(ELEMENTS, 6, settings)
        schedule.completing(ELEMENTS, 6)
        crossing = sum(len(each.piece) for each in schedule.messages if each.sender // group != each.receiver // group)
        if mode == "hierarchical":
            assert crossing == 2 * (6 // group - 1) * ELEMENTS
        else:
            served = [ELEMENTS // shards if rank < shards else 0 for rank in range(6)]
            sent = [5 * own + ELEMENTS - own for own in served]
            assert [schedule.elements_sent(rank) for rank in range(6)] == pytest.approx(sent, abs=10)


def message(sender: int, receiver: int, adds: bool = True, piece: range = range(4)) -> Message:
    return Message(sender, receiver, piece, adds)


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        ([[message(1, 0)], [message(1, 0)]], "round 1, rank 1 to 0: elements 0 to 3 of rank 1 would be counted twice"),
        ([[message(1, 0)]], "rank 1 ends without elements 0 to 3 of rank 0"),
        (
            [[message(1, 0, piece=range(3))], [message(0, 1, adds=False)]],
            "rank 0 ends without element 3 of rank 1",
        ),
        (
            [[message(1, 0, piece=range(2))], [message(0, 1, adds=False, piece=range(1))], [message(0, 1)]],
            "round 2, rank 0 to 1: element 0 of rank 0, 1 would be counted twice",
        ),
        (
            [[message(1, 0)], [message(2, 0), message(0, 1, adds=False)]],
            "rank 1 ends without elements 0 to 3 of rank 2",
        ),
    ],
)
def test_a_wrong_schedule_is_refused_with_what_is_wrong_in_it(rounds: list[list[Message]], told: str) -> None:
    ranks = 1 + max(max(each.sender, each.receiver) for messages in rounds for each in messages)
    with pytest.raises(ValueError, match=told):
        Schedule.of(*rounds).completing(4, ranks)


@given(mode=st.sampled_from(SCHEDULED), ranks=st.integers(2, 9), elements=st.integers(1, 60), most=st.integers(1, 30))
def test_nobody_waits_for_himself(mode: str, ranks: int, elements: int, most: int) -> None:
    """What a part waits for comes before it, so running it comes to an end."""
    schedule = schedule_of(mode, elements, ranks).in_pieces(most)
    for rank in range(ranks):
        part = part_of(schedule, rank)
        assert [each.message for each in part.sends] == [each for each in schedule.messages if each.sender == rank]
        starts, asked = sent_after(*part), asked_after(part.receives)
        for at, receive in enumerate(part.receives):
            assert max(receive.after, asked[at]) <= at
            assert all(part.sends[sent].after <= starts[sent] <= at for sent in receive.sent)


@given(mode=st.sampled_from(SCHEDULED), ranks=st.integers(2, 9), elements=st.integers(1, 60), most=st.integers(1, 30))
def test_what_comes_first_has_the_link_and_requests_wait_behind_no_data(
    mode: str, ranks: int, elements: int, most: int
) -> None:
    schedule = schedule_of(mode, elements, ranks).in_pieces(most)
    for rank in range(ranks):
        part = part_of(schedule, rank)
        asked = asked_after(part.receives)
        for at, receive in enumerate(part.receives):
            under_way = part.receives[asked[at] : at]
            assert not any(
                each.round < receive.round and each.message.sender != receive.message.sender for each in under_way
            )
            if asked[at]:
                before = part.receives[asked[at] - 1]
                assert before.round < receive.round
                assert before.message.sender != receive.message.sender, "and no longer than that"
        for send, after in zip(part.sends, sent_after(*part), strict=True):
            back = [
                count
                for each, count in zip(part.receives, asked, strict=True)
                if each.round == send.round and each.message.sender == send.message.receiver
            ]
            assert after == max([send.after, *back])


def share(message: Message) -> float:
    """Of all gradients."""
    return len(message.piece) / ELEMENTS


def alike(ranks: int, speed: float = 1.0) -> list[LinkSpeed]:
    return [LinkSpeed(speed, speed)] * ranks


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_least_times_by_hand(ranks: int) -> None:
    """On equal links, in units of the time that all gradients need; without pieces, so round after round."""
    levels = int(math.log2(ranks))
    for mode, least in (
        ("ring_all_reduce", all_reduce_share(1, ranks)),
        ("halving_doubling", all_reduce_share(1, ranks)),
        ("recursive_doubling", levels),
        ("tree", 2 * levels),
        ("send_recv", 2 * (ranks - 1)),
        ("parameter_server", all_reduce_share(1, ranks)),
    ):
        found = seconds_at_least(schedule_of(mode, ELEMENTS, ranks), share, alike(ranks))
        assert found == pytest.approx(least, rel=1e-9)


def test_pieces_overlap_where_messages_depend_on_each_other() -> None:
    whole, pieces = star(ELEMENTS, 4), star(ELEMENTS, 4).in_pieces(10)
    assert seconds_at_least(whole, share, alike(4)) == pytest.approx(6)
    assert 3 < seconds_at_least(pieces, share, alike(4)) < 6


def test_a_slow_link_holds_up_those_that_wait_for_it() -> None:
    links = [LinkSpeed(1, 1), LinkSpeed(1, 0.5), LinkSpeed(1, 1)]
    assert seconds_at_least(ring(ELEMENTS, 3), share, links) == pytest.approx(4 / 3 / 0.5, rel=0.3)
    assert seconds_at_least(ring(ELEMENTS, 3), share, links) >= 4 / 3 / 0.5


@given(length=st.integers(0, 1000), start=st.integers(0, 1000), parts=st.integers(1, 50))
def test_a_range_is_cut_as_evenly_as_possible(length: int, start: int, parts: int) -> None:
    pieces = cut(range(start, start + length), parts)
    assert [each for piece in pieces for each in piece] == list(range(start, start + length))
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


class Left:
    """In place of a message under way: says when its end was waited for."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def wait(self) -> None:
        self._log.append(f"{self._name} has left")


def test_a_message_lets_those_of_earlier_rounds_to_other_ranks_leave_first_while_nobody_needs_it() -> None:
    """On one link they would share its rate, and whoever waits for the earlier one would wait twice as long."""
    log: list[str] = []

    def start(send: Send) -> Transfer:
        log.append(f"to {send.message.receiver} in round {send.round}")
        return cast("Transfer", Left(log[-1], log))

    def send(receiver: int, in_round: int) -> Send:
        return Send(Message(0, receiver, range(1), adds=True), 0, in_round, 0)

    departures = Departures(start)
    departures.allow([(0, send(1, 0)), (2, send(2, 1)), (1, send(1, 0)), (3, send(1, 1))])
    departures.start(0)
    assert log == ["to 1 in round 0", "to 1 in round 0"], "what goes to another rank later has to wait"
    assert departures.started([0, 1])
    assert not departures.started([1, 2])
    departures.start(1)
    assert log[2:] == [*["to 1 in round 0 has left"] * 2, "to 2 in round 1", "to 1 in round 1"]
    departures.finish([3])
    departures.finish_all()
    assert log[6:] == ["to 1 in round 1 has left", "to 2 in round 1 has left"]
    departures.finish_all()
    assert len(log) == 8, "each is waited for once"
