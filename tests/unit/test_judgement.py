"""Who is lost: no living rank is ever named, no dead one is forgotten, whatever datagrams are lost on the way."""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.activity import LONGEST_TEXT, MOST_PEERS, UNKNOWN, Activity, is_deadlock, place_of
from app.cluster.heartbeat import LARGEST, LONGEST_REASON, Heartbeat, pack, unpack
from app.cluster.judgement import ANSWER_SECONDS, FRESH_SECONDS, Judgement, LossVerdict

TURN = 0.2  # seconds, as in the failure detector


@dataclass
class Rank:
    """One that runs, has died, or stands still for a while."""

    judgement: Judgement
    runs: bool = True
    ending: str = ""
    deterministic: bool = False
    activity: Activity = UNKNOWN
    inbox: list[Heartbeat] = field(default_factory=list)


class World:
    """Ranks whose datagrams may be lost, on a clock of their own."""

    def __init__(self, world_size: int, peer_timeout: float, loss: float, seed: int) -> None:
        self.now = 100.0
        self.chance, self.loss = Random(seed), loss  # noqa: S311  # no secret
        everyone = range(world_size)
        self.ranks = [
            Rank(Judgement(rank, [other for other in everyone if other != rank], peer_timeout, self.now))
            for rank in everyone
        ]

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TURN)):
            self.now += TURN
            for number, rank in enumerate(self.ranks):
                if rank.runs:
                    self._take_turn(number, rank)

    def _take_turn(self, number: int, rank: Rank) -> None:
        heartbeats, rank.inbox = rank.inbox, []
        for heartbeat in heartbeats:
            rank.judgement.hear(heartbeat, self.now)
            if heartbeat.call:
                self._send(self._heartbeat(number, answer=heartbeat.call), heartbeat.rank)
        rank.judgement.consider(self.now)
        for other in range(len(self.ranks)):
            if other != number:
                self._send(self._heartbeat(number, call=rank.judgement.call), other)

    def _heartbeat(self, number: int, call: int = 0, answer: int = 0) -> Heartbeat:
        rank = self.ranks[number]
        verdict = rank.judgement.verdict
        still = rank.judgement.standstill(self.now)
        return Heartbeat(
            number,
            call,
            answer,
            ending=rank.ending,
            standstill=still,
            lost=verdict.lost if verdict else (),
            reason=verdict.reason if verdict else "",
            deterministic=verdict.deterministic if verdict else rank.deterministic,
            deadlock=bool(verdict and verdict.deadlock),
            activity=rank.activity,
        )

    def _send(self, heartbeat: Heartbeat, to: int) -> None:
        if self.chance.random() >= self.loss:
            self.ranks[to].inbox.append(heartbeat)

    def verdicts(self) -> list[LossVerdict | None]:
        return [rank.judgement.verdict for rank in self.ranks]


CASES = {
    "world_size": st.integers(2, 8),
    "peer_timeout": st.sampled_from([1.0, 4.0, 10.0, 60.0]),
    "loss": st.sampled_from([0.0, 0.1, 0.2]),
    "seed": st.integers(0, 2**32),
}


@given(**CASES, data=st.data())
def test_the_dead_are_named_by_all_and_the_living_by_none(
    world_size: int, peer_timeout: float, loss: float, seed: int, data: st.DataObject
) -> None:
    """Whether the survivors' operations fail at once, later, or never."""
    world = World(world_size, peer_timeout, loss, seed)
    world.run(data.draw(st.integers(0, 50)) / 10)
    dead = data.draw(st.sets(st.integers(0, world_size - 1), min_size=1, max_size=world_size - 1))
    for number in dead:
        world.ranks[number].runs = False
    survivors = [rank for number, rank in enumerate(world.ranks) if number not in dead]
    noticing = data.draw(st.lists(st.sampled_from(survivors), max_size=3))
    for rank in noticing:
        world.run(data.draw(st.integers(0, 20)) / 10)
        rank.judgement.doubt(world.now)
    limit = (0 if noticing else max(peer_timeout, peer_timeout / 2 + ANSWER_SECONDS)) + ANSWER_SECONDS + FRESH_SECONDS
    world.run(limit)
    assert {rank.judgement.verdict for rank in survivors} == {LossVerdict(tuple(sorted(dead)))}


@given(**CASES)
def test_a_failed_operation_of_ranks_that_all_run_is_nobody_s_loss(
    world_size: int, peer_timeout: float, loss: float, seed: int
) -> None:
    world = World(world_size, peer_timeout, loss, seed)
    world.run(2 * peer_timeout)
    assert world.verdicts() == [None] * world_size
    world.ranks[0].judgement.doubt(world.now)
    world.run(ANSWER_SECONDS)
    assert world.verdicts() == [LossVerdict(()), *[None] * (world_size - 1)]


@given(**CASES, deterministic=st.booleans())
def test_a_rank_that_says_why_it_ends_is_named_with_that_and_with_whether_it_would_end_so_again(
    world_size: int, peer_timeout: float, loss: float, seed: int, deterministic: bool
) -> None:
    world = World(world_size, peer_timeout, loss, seed)
    world.run(1)
    world.ranks[-1].ending, world.ranks[-1].deterministic = "the disk is full", deterministic
    world.run(1)
    world.ranks[-1].runs = False
    world.run(ANSWER_SECONDS + FRESH_SECONDS)
    lost = LossVerdict((world_size - 1,), "it ended: the disk is full", deterministic)
    assert world.verdicts()[:-1] == [lost] * (world_size - 1)


def receiving(rank: int, world_size: int) -> Activity:
    """In a ring in which every rank receives before it sends."""
    source = (rank - 1) % world_size
    return Activity(f"receive of 4 bytes from rank {source} at step 0", 1e6, "here", (), (source,))


@given(**CASES, data=st.data())
def test_a_deadlock_is_what_all_agree_on_if_no_rank_is_lost_or_computes(
    world_size: int, peer_timeout: float, loss: float, seed: int, data: st.DataObject
) -> None:
    world = World(world_size, peer_timeout, loss, seed)
    for number, rank in enumerate(world.ranks):
        rank.activity = receiving(number, world_size)
    world.run(2)
    other = data.draw(st.integers(1, world_size - 1))
    case = data.draw(st.sampled_from(["all wait", "one computes", "one is dead"]))
    if case == "one computes":
        world.ranks[other].activity = Activity("computing", None, "there")
    world.ranks[other].runs = case != "one is dead"
    world.ranks[0].judgement.doubt(world.now, world.ranks[0].activity)
    world.run(ANSWER_SECONDS + FRESH_SECONDS + 4)  # the verdict may be lost on the way, too
    verdicts = {rank.judgement.verdict for rank in world.ranks if rank.runs}
    if case == "all wait":
        assert verdicts == {LossVerdict((), deadlock=True)}
    elif case == "one computes":
        assert verdicts == {LossVerdict(()), None}
        assert world.ranks[0].judgement.activities[other] == world.ranks[other].activity
    else:
        assert verdicts == {LossVerdict((other,))}


def test_what_a_rank_did_stays_known_after_it_has_announced_its_end() -> None:
    judgement = Judgement(0, [1], 10, 0.0)
    judgement.hear(Heartbeat(1, activity=receiving(1, 2)), 1.0)
    judgement.hear(Heartbeat(1, ending="the disk is full"), 2.0)
    assert judgement.activities[1] == receiving(1, 2)


def waiting(
    *operations: str,
    sends: Mapping[int, tuple[int, ...]] = {},
    receives: Mapping[int, tuple[int, ...]] = {},
    for_: float = 9,
) -> bool:
    """Whether it is a deadlock if the ranks wait in these operations, with these messages in flight by rank."""
    everyones = {
        rank: Activity(doing, for_ if rank == 0 else 1, "", sends.get(rank, ()), receives.get(rank, ()))
        for rank, doing in enumerate(operations)
    }
    return is_deadlock(everyones, 10)


def test_ranks_in_an_operation_that_all_its_ranks_have_started_are_only_slow() -> None:
    assert not waiting("all-reduce of 4 bytes at step 1")
    assert not waiting(*["all-reduce of 4 bytes at step 1"] * 3)
    assert waiting(*["all-reduce of 4 bytes at step 1"] * 2, "all-reduce of 8 bytes at step 1")
    assert waiting("all-reduce of 4 bytes at step 1", "all-reduce of 4 bytes at step 2")
    assert not waiting("gather of 4 bytes", "scatter of 4 bytes", "gather of 4 bytes")  # rank 1 was first
    assert waiting("gather of 4 bytes", "scatter of 4 bytes", "scatter of 4 bytes")
    ring = [f"receive of 4 bytes from rank {source}" for source in (2, 0, 1)]
    receives = {0: (2,), 1: (0,), 2: (1,)}
    assert waiting(*ring, receives=receives)
    assert waiting(*ring, receives=receives, sends={1: (0,)})
    assert not waiting(*ring, receives=receives, sends={0: (1,)})


def test_an_operation_that_failed_before_its_time_is_no_deadlock() -> None:
    assert waiting("barrier", "gather", for_=9)
    assert not waiting("barrier", "gather", for_=8)


def test_a_thread_is_where_its_innermost_extension_is_or_else_this_program() -> None:
    reached, end = threading.Event(), threading.Event()

    def stay() -> None:
        reached.set()
        end.wait()

    def function(module: str, body: str, **names: object) -> Callable[[], None]:
        scope: dict[str, object] = {"__name__": module, **names}
        exec(f"def run():\n    {body}", scope)  # noqa: S102
        return cast("Callable[[], None]", scope["run"])

    library = function("app.cluster.wire.any", "stay()", stay=stay)
    program = function("app.sync.modes.any", "inner()", inner=library)
    for outermost, expected in (
        (program, "app/sync/modes/any.py, line 2, in run"),
        (function("extensions.mine", "inner()", inner=program), "extensions/mine.py, line 2, in run"),
    ):
        thread = threading.Thread(target=outermost)
        thread.start()
        reached.wait()
        assert place_of(sys._current_frames()[cast("int", thread.ident)]) == (expected, False)
        end.set()
        thread.join()
        reached.clear()
        end.clear()
    assert place_of(None) == ("", False)


def stand_still(world: World, number: int, seconds: float) -> None:
    sleeper = world.ranks[number]
    sleeper.runs = False
    world.run(seconds)
    sleeper.judgement.stand_still(seconds, world.now)
    sleeper.runs = True


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_a_rank_that_slept_too_long_learns_that_it_was_taken_for_lost(world_size: int) -> None:
    world = World(world_size, 10, 0, 1)
    world.run(1)
    stand_still(world, 0, 30)
    world.run(1)
    assert world.verdicts() == [LossVerdict((0,))] * world_size


def test_a_rank_that_slept_as_long_as_the_others_waited_is_named_although_it_answers() -> None:
    world = World(3, 10, 0, 1)
    world.run(1)
    stand_still(world, 2, 7.6)
    for rank in world.ranks[:2]:
        rank.judgement.doubt(world.now)
    world.run(1)
    assert world.verdicts() == [LossVerdict((2,), "it did not run for 8 s")] * 3


def test_a_short_sleep_is_no_loss_and_no_reason_to_blame_others() -> None:
    world = World(3, 10, 0, 1)
    world.run(1)
    stand_still(world, 1, 4)
    world.run(30)
    assert world.verdicts() == [None] * 3


def test_a_rank_that_is_done_is_not_missed() -> None:
    world = World(3, 4, 0, 1)
    world.run(1)
    world.ranks[1].runs = False
    for number in (0, 2):
        world.ranks[number].judgement.hear(Heartbeat(1, done=True), world.now)
    world.run(20)
    assert world.verdicts()[0] is world.verdicts()[2] is None


HEARTBEATS = st.builds(
    Heartbeat,
    rank=st.integers(0, 70_000),
    call=st.integers(0, 2**31),
    answer=st.integers(0, 2**31),
    done=st.booleans(),
    ending=st.text(max_size=LONGEST_REASON),
    standstill=st.floats(0, 1e9),
    lost=st.lists(st.integers(0, 100), max_size=20).map(tuple),
    reason=st.text(max_size=LONGEST_REASON),
    deadlock=st.booleans(),
    activity=st.builds(
        Activity,
        doing=st.text(max_size=LONGEST_TEXT),
        waited=st.none() | st.floats(0, 1e9),
        place=st.text(max_size=LONGEST_TEXT),
        sends=st.lists(st.integers(0, 70_000), max_size=20).map(tuple),
        receives=st.lists(st.integers(0, 70_000), max_size=20).map(tuple),
    ),
)


@given(heartbeat=HEARTBEATS)
def test_a_heartbeat_arrives_as_it_was_sent_and_only_with_the_password(heartbeat: Heartbeat) -> None:
    try:
        datagram = pack(heartbeat, "the password")
    except UnicodeEncodeError:
        return
    assert unpack(datagram, "the password") == heartbeat
    assert unpack(datagram, "another one") is None
    assert unpack(datagram[:-1], "the password") is None


@pytest.mark.parametrize("rank", [0, 65_535])
def test_the_longest_activity_fits_into_a_datagram_and_longer_ones_are_refused(rank: int) -> None:
    text, peers = "\U0001f600" * LONGEST_TEXT, (65_535,) * MOST_PEERS
    longest = Activity(text, 0.1 + 0.2, text, peers, peers)
    assert len(pack(Heartbeat(rank, 2**31, activity=longest), "p" * 32)) <= LARGEST
    for each in (Activity(text + "x"), Activity(place=text + "x"), Activity(sends=(*peers, 1))):
        assert unpack(pack(Heartbeat(rank, activity=each), ""), "") is None
    assert str(Activity("a\x1b[2J\n", 1.0, "b\r")).isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=4)
    | st.dictionaries(st.sampled_from(["rank", "lost", "done", "activity", "doing", "x"]), each),
    max_leaves=12,
)


@given(said=JSON, password=st.just("the password") | JSON)
def test_whatever_else_arrives_is_a_word_or_nothing(said: object, password: object) -> None:
    found = unpack(json.dumps([password, said]).encode(), "the password")
    assert found is None or isinstance(found, Heartbeat)


@given(datagram=st.binary(max_size=300) | st.integers(1, 4000).map(lambda deep: b"[" * deep))
def test_rubbish_is_no_heartbeat(datagram: bytes) -> None:
    assert unpack(datagram, "the password") is None
