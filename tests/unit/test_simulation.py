"""The simulation of exchanges: where the theory has a closed form, it is that; elsewhere it keeps what must hold."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.wire.bandwidth import LinkSpeed
from app.settings import environment
from app.sync.exchange import Exchange
from app.sync.modes import mode_class
from app.sync.modes.gather_scatter import star
from app.sync.modes.ring_all_reduce import ring
from app.sync.schedules.costs import seconds_at_least
from app.sync.schedules.schedule import Message, Schedule, asked_after, part_of, sent_after
from app.tools.prediction.exchange import Passing, SimulatedMachine
from app.tools.prediction.network import Links, Network
from app.tools.prediction.processor import PERIOD_SECONDS, Cpus, Processors
from app.tools.prediction.waves import Figures, limit_in_flight, waves_of

RATE, LATENCY = 125e6, 1e-4
ELEMENT_BYTES = 4
FREE = Passing(0.0, 0.0, 0.0, 0.0)

Form = Callable[[int, float], float]  # of the number of ranks and the seconds that all gradients take on a link


def alike(ranks: int, rate: float, burst: float = 0.0) -> Links:
    return Links.of([(rate, rate)] * ranks, [burst] * ranks)


def of_mode(name: str, **settings: str) -> Callable[[int, int], Schedule]:
    def schedule(elements: int, ranks: int) -> Schedule:
        mode = mode_class(name)
        assert issubclass(mode, Exchange)
        found = mode.schedule(elements, ranks, environment.of(settings).averaging)
        assert found is not None
        return found

    return schedule


def simulated(schedule: Schedule, links: Links, costs: Passing = FREE, samples: int = 1) -> Figures:
    ranks = len(links.sends)
    machine = SimulatedMachine(links, Cpus(), samples, np.random.default_rng(0))
    return machine.exchange(waves_of(schedule, ranks), ELEMENT_BYTES, costs, np.zeros((ranks, samples)))


def doublings(ranks: int) -> int:
    return ranks.bit_length() - 1


CLOSED_FORMS: dict[str, tuple[Callable[[int, int], Schedule], Form]] = {
    "ring": (ring, lambda n, whole: 2 * (n - 1) * (LATENCY + whole / n)),
    "halving_doubling": (
        of_mode("halving_doubling"),
        lambda n, whole: 2 * doublings(n) * LATENCY + 2 * (n - 1) / n * whole,
    ),
    "recursive_doubling": (of_mode("recursive_doubling"), lambda n, whole: doublings(n) * (LATENCY + whole)),
    "tree": (of_mode("tree"), lambda n, whole: 2 * doublings(n) * (LATENCY + whole)),
    "parameter_server": (
        of_mode("parameter_server"),
        lambda n, whole: 2 * (LATENCY + (n - 1) / n * whole),
    ),
    "star": (star, lambda n, whole: 2 * (LATENCY + (n - 1) * whole)),
}


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *itertools.product(CLOSED_FORMS, (2, 4, 32, 128)),
        *(("ring", ranks) for ranks in (3, 5, 6, 7)),
        *(pytest.param(name, 1024, marks=pytest.mark.long) for name in CLOSED_FORMS),
    ],
)
def test_alike_and_without_noise_it_is_the_closed_form(name: str, ranks: int) -> None:
    schedule, form = CLOSED_FORMS[name]
    elements = 8 * ranks
    whole = elements * ELEMENT_BYTES / RATE
    found = simulated(schedule(elements, ranks), alike(ranks, RATE), replace(FREE, latency=LATENCY))
    assert found.max() == pytest.approx(form(ranks, whole), rel=1e-9)


RATES = st.floats(1e6, 1e9)


@given(
    mode=st.sampled_from(["ring_all_reduce", "tree", "halving_doubling", "hierarchical", "parameter_server"]),
    links=st.lists(st.tuples(RATES, RATES), min_size=1, max_size=8),
    elements=st.integers(1, 100),
    most=st.integers(5, 100),
)
def test_no_rank_is_done_before_its_bytes_can_have_passed(
    mode: str, links: Sequence[tuple[float, float]], elements: int, most: int
) -> None:
    ranks = len(links)
    schedule = of_mode(mode)(elements, ranks)
    machine = SimulatedMachine(Links.of(links, [0.0] * ranks), Cpus(), 1, np.random.default_rng(0))
    found = machine.exchange(waves_of(schedule, ranks, most), ELEMENT_BYTES, FREE, np.zeros((ranks, 1)))
    for rank, (sends, receives) in enumerate(links):
        received = sum(len(each.piece) for each in schedule.messages if each.receiver == rank)
        least = max(schedule.elements_sent(rank) / sends, received / receives) * ELEMENT_BYTES
        assert found[rank, 0] >= least * (1 - 1e-9)


@given(
    mode=st.sampled_from(["ring_all_reduce", "halving_doubling", "hierarchical", "recursive_doubling"]),
    rates=st.lists(RATES, min_size=2, max_size=8),
    elements=st.integers(1, 1000),
)
def test_where_each_rank_receives_from_one_at_a_time_it_is_no_more_than_the_least_time(
    mode: str, rates: Sequence[float], elements: int
) -> None:
    """Of the page and of `scripts/schedule`: two programs for the same question."""
    schedule = of_mode(mode)(elements, len(rates))
    speeds = [LinkSpeed(max(rates), rate) for rate in rates]
    found = simulated(schedule, Links.of(speeds, [0.0] * len(rates)))
    least = seconds_at_least(schedule, lambda message: len(message.piece) * ELEMENT_BYTES, speeds)
    assert found.max() <= least * (1 + 1e-9)


@given(
    mode=st.sampled_from(
        ["ring_all_reduce", "tree", "recursive_doubling", "halving_doubling", "hierarchical", "parameter_server"]
    ),
    ranks=st.integers(1, 9),
    elements=st.integers(1, 200),
    most=st.integers(1, 100),
    requests=st.booleans(),
)
def test_a_message_waits_for_what_it_waits_for_when_it_runs(
    mode: str, ranks: int, elements: int, most: int, requests: bool
) -> None:
    """The waves say it for all ranks at once, `parts` for the program's one rank."""
    schedule = of_mode(mode)(elements, ranks)
    received: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    sends: dict[int, list[tuple[Message, int]]] = {rank: [] for rank in range(ranks)}
    receives: dict[int, list[tuple[Message, int]]] = {rank: [] for rank in range(ranks)}
    for number, wave in enumerate(waves_of(schedule, ranks, most, requests=requests)):
        rows = zip(
            wave.senders, wave.receivers, wave.starts, wave.stops, wave.adds, wave.after, wave.asked, strict=True
        )
        for sender, receiver, start, stop, adds, after, asked in rows:
            message = Message(int(sender), int(receiver), range(int(start), int(stop)), bool(adds))
            sends[int(sender)].append((message, sum(at <= after for at in received[int(sender)])))
            receives[int(receiver)].append((message, sum(at <= asked for at in received[int(receiver)])))
        for receiver in wave.receivers:
            received[int(receiver)].append(number)
    for rank in range(ranks):
        own = part_of(schedule.in_pieces(most), rank)
        after = sent_after(*own) if requests else [send.after for send in own.sends]
        asked = asked_after(own.receives) if requests else [0] * len(own.receives)
        assert Counter(sends[rank]) == Counter(zip((each.message for each in own.sends), after, strict=True))
        assert receives[rank] == list(zip((each.message for each in own.receives), asked, strict=True))


@given(ranks=st.integers(2, 9), elements=st.integers(1, 200), most=st.integers(1, 100), at_once=st.integers(1, 4))
def test_a_rank_asks_for_no_more_messages_at_once_than_it_may(
    ranks: int, elements: int, most: int, at_once: int
) -> None:
    """And for none of the all-gather before it has taken all of the reduce-scatter; for each as early as it may."""
    waves = limit_in_flight(at_once, waves_of(ring(elements, ranks), ranks, most))
    all_gather = next(number for number, wave in enumerate(waves) if not wave.adds.any())
    for number, wave in enumerate(waves):
        began = all_gather if number >= all_gather else 0
        assert (number - wave.asked <= at_once).all(), "asked for, and not taken yet"
        assert (began - 1 <= wave.asked).all()
        assert (wave.asked <= max(number - at_once, began - 1)).all()
        assert (wave.after >= wave.asked).all(), "who asks late also sends late"


def test_what_is_asked_for_behind_data_waits_for_it() -> None:
    """A tree of three: two ranks give to the root, which hands the mean down to one after the other.

    In pieces, a rank sends all of them, and asks for the mean in their place: so the root has all before it gives any.
    Nor does it give to the one before the other has it. Each of the four ways takes the time of all gradients.
    """
    ways = of_mode("tree")(1000, 3)
    for requests, seconds in ((True, [4.0, 4.0, 3.0]), (False, [3.2, 3.2, 2.2])):
        machine = SimulatedMachine(alike(3, 1000.0 * ELEMENT_BYTES), Cpus(), 1, np.random.default_rng(0))
        waves = waves_of(ways, 3, 200, requests=requests)
        assert machine.exchange(waves, ELEMENT_BYTES, FREE, np.zeros((3, 1))).ravel() == pytest.approx(seconds)


def test_a_rested_link_lets_a_burst_pass_at_once() -> None:
    """Four messages of 1,000 bytes through a burst of 1,500: the rest takes its time, and a pause fills it again."""
    one = Schedule.of([Message(0, 1, range(250), adds=True)])
    waves = waves_of(one, 2)
    machine = SimulatedMachine(alike(2, 1000.0, 1500.0), Cpus(), 1, np.random.default_rng(0))
    ends: list[float] = []
    ready: Figures = np.zeros((2, 1))
    for pause in (0.0, 0.0, 0.0, 100.0):
        ready = machine.exchange(waves, ELEMENT_BYTES, FREE, ready + pause)
        ends.append(float(ready[1, 0]))
    assert ends == pytest.approx([0.0, 0.5, 1.5, 101.5])


def test_a_message_that_is_late_does_not_hold_up_those_after_it() -> None:
    """To rank 3, at 100 bytes per second: one that is there at 10 s, and later ones while and after the link waits."""
    network = Network(Links.of([(100.0, 100.0), (100.0, 100.0), (50.0, 100.0), (100.0, 100.0)], [0.0] * 4), 1)

    def arrives(sender: int, start: float) -> float:
        _, arrived = network.carry(np.array([sender]), np.array([3]), np.array([[start]]), np.array([[100.0]]))
        return float(arrived[0, 0])

    assert arrives(0, 10.0) == pytest.approx(11.0)
    assert arrives(1, 0.0) == pytest.approx(1.0)
    assert arrives(2, 9.0) == pytest.approx(11.5), "half of it comes in before 10 s, and the link waits for the rest"
    assert arrives(1, 2.0) == pytest.approx(12.5), "what the link had left before 9 s is not remembered"


def test_a_quota_lets_so_much_pass_in_each_period() -> None:
    """Of a quarter of a CPU, a second of work takes 4 s; what fits into a period takes its own time."""
    processors = Processors(Cpus(quota=0.25), 3, 1000, np.random.default_rng(0))
    everyone = np.arange(3)
    short = processors.run(everyone, np.full((3, 1000), 5.0), np.full((3, 1000), 0.01))
    assert np.median(short) == pytest.approx(5.01)
    long = processors.run(everyone, np.full((3, 1000), 10.0), np.full((3, 1000), 1.0)) - 10.0
    assert ((long > 4.0 - 2 * PERIOD_SECONDS) & (long <= 4.0)).all()
    assert long.std() > PERIOD_SECONDS / 10, "periods begin at different moments"


def test_many_pieces_from_the_same_moment_take_as_many_allowances_as_one_that_is_as_long() -> None:
    """What a rank has used up in a period stays used up, however often it is asked for more from that moment."""
    quota, start, work = 0.25, np.ones((1, 100)), 0.09  # 3.6 allowances, so the end lies in the fourth period or later
    whole, pieces = (Processors(Cpus(quota=quota), 1, 100, np.random.default_rng(0)) for _ in range(2))
    every = np.array([0])
    ends = whole.run(every, start, work), [pieces.run(every, start, work / 20) for _ in range(20)][-1]
    assert min(end.min() for end in ends) > 1 + 2 * PERIOD_SECONDS


@pytest.mark.parametrize(("lost", "in_turn", "seconds"), [(0.0, False, 20.0), (0.01, False, 25.0), (0.01, True, 20.0)])
def test_exchanges_do_not_get_the_part_of_a_quota_that_another_core_has(
    lost: float, in_turn: bool, seconds: float
) -> None:
    """A fifth of an allowance, which is half a CPU; who computes gets all of it, and who passes messages in turn."""
    processors = Processors(Cpus(quota=0.5, lost=lost), 1, 10, np.random.default_rng(0))
    now: Figures = np.zeros((1, 10))
    for _ in range(1000):
        now = processors.run(np.array([0]), now, np.full((1, 10), 0.01), in_turn=in_turn)
    assert now == pytest.approx(seconds, rel=0.01)
    assert processors.compute(now, np.full((1, 10), 10.0)) - now == pytest.approx(20.0, rel=0.01)


@pytest.mark.parametrize("alike", [True, False])
def test_ranks_that_share_a_host_take_what_its_cores_can_give(alike: bool) -> None:
    processors = Processors(Cpus(shared_cores=2), 8, 1, np.random.default_rng(0))
    start, work = np.zeros((8, 1)), np.full((8, 1), 0.5)
    end = processors.compute(start, work) if alike else processors.run(np.arange(8), start, work)
    assert end.max() == pytest.approx(2.0)
    alone = Processors(Cpus(), 8, 1, np.random.default_rng(0)).run(np.arange(8), start, work)
    assert alone.max() == pytest.approx(0.5)


def test_more_messages_at_the_same_bytes_take_longer_where_each_has_a_cost() -> None:
    links = alike(4, RATE)
    costs = replace(FREE, latency=1e-3, message=1e-3)
    whole = ring(4000, 4)
    few = simulated(whole, links, costs).max()
    many = SimulatedMachine(links, Cpus(), 1, np.random.default_rng(0)).exchange(
        waves_of(whole, 4, 100), ELEMENT_BYTES, costs, np.zeros((4, 1))
    )
    assert many.max() > 2 * few
