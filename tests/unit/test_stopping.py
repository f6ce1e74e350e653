"""When all stop: every rank after the same step, or none, however words are lost, late or doubled on their way."""

from dataclasses import dataclass, field
from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from app.cluster.stopping import Stopping

MOST_TURNS = 20_000


@dataclass
class World:
    """Ranks that take steps together, as far as their mode makes them, and words under way between them."""

    ranks: int
    chance: Random
    in_lockstep: bool
    taken: list[int] = field(default_factory=list)
    stopped: dict[int, int] = field(default_factory=dict)
    under_way: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, the step it names

    def __post_init__(self) -> None:
        self.taken = [0] * self.ranks
        self.parties = [
            Stopping([other for other in range(self.ranks) if other != rank], partial(self.tell, rank))
            for rank in range(self.ranks)
        ]

    def tell(self, rank: int) -> None:
        for other in range(self.ranks):
            if other != rank:
                self.under_way.append((rank, other, self.parties[rank].named))

    def deliver(self) -> None:
        """One of the words, if any: it arrives, arrives and stays under way, or is lost."""
        if self.under_way:
            place = self.chance.randrange(len(self.under_way))
            source, to, named = self.under_way[place]
            if self.chance.random() < 0.7:
                self.parties[to].hear(source, named)
            if self.chance.random() < 0.7:
                del self.under_way[place]

    def go_on(self, rank: int) -> None:
        """Stop here if that is agreed, or take a step if the others have come as far."""
        if rank in self.stopped:
            return
        try:
            if self.parties[rank].due(self.taken[rank], self.chance.choice((1, 1, 2, 5)), 0):
                self.stopped[rank] = self.taken[rank]
                return
        except TimeoutError:
            return  # it waits there
        if not self.in_lockstep or all(taken >= self.taken[rank] for taken in self.taken):
            self.taken[rank] += 1


@given(st.integers(1, 5), st.integers(0, 2**32), st.integers(1, 3), st.booleans(), st.integers(0, 40))
def test_all_stop_after_the_same_step(ranks: int, seed: int, askers: int, in_lockstep: bool, before: int) -> None:
    chance = Random(seed)  # noqa: S311
    world = World(ranks, chance, in_lockstep)
    for _ in range(before * ranks):
        world.go_on(chance.randrange(ranks))
    assert world.stopped == {}
    asked = chance.sample(range(ranks), min(askers, ranks))
    for turn in range(MOST_TURNS):
        if asked and chance.random() < 0.3:
            world.parties[asked.pop()].ask()
        rank = chance.randrange(ranks)
        world.go_on(rank)
        world.deliver()
        if turn % 5 == 0 and world.parties[rank].named:
            world.tell(rank)  # words are said again and again
        if not asked and len(world.stopped) == ranks:
            break
    assert len(world.stopped) == ranks
    assert len(set(world.stopped.values())) == 1
    assert world.taken == list(world.stopped.values())


def test_what_is_no_step_is_not_heard() -> None:
    told: list[int] = []
    party = Stopping([1], lambda: told.append(1))
    party.hear(1, 2**50)
    party.hear(7, 5)
    party.hear(1, 0)
    assert (party.named, told) == (0, [])
    assert not party.due(5, 1, 0)
