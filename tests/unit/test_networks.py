"""What the interfaces of the ranks' machines carried, and the settings that would emulate their links."""

from typing import Any

import pytest

from app.analysis import networks
from app.analysis.run_records import RankRecords, RunRecords
from app.cluster.link.emulation import emulating
from app.cluster.members import Member
from app.cluster.sharing import unlike
from app.machine.cpus import Machine
from app.machine.interfaces import Carried
from app.records.lines import Finished
from app.settings import link_rates
from tests.runs import MANIFEST, manifest, participant

MEGABYTE = 1_000_000


def interface(name: str, sent: int, received: int = 0) -> Carried:
    return Carried(name, "10.10.1.1", 1500, sent, received)


def carried(own: int, control: int) -> RunRecords:
    """A run of one rank whose interfaces carried so many bytes between the first step and the last."""
    before = [interface("ctl0", 7 * MEGABYTE), interface("eth0", 5, 6)]
    after = [interface("ctl0", 7 * MEGABYTE + control), interface("eth0", 5 + own, 6), interface("new0", 10**12)]
    finished = Finished(0, 3, 1.0, "a", 0, interfaces=after)
    ranks = [participant(0) | {"interfaces": [vars(each) for each in before]}]
    return RunRecords(manifest(ranks=ranks), [RankRecords(0, finished=finished)])


@pytest.mark.parametrize(
    ("own", "control", "warned"),
    [
        (100 * MEGABYTE, 0, False),
        (100 * MEGABYTE, 4 * MEGABYTE, False),
        (100 * MEGABYTE, 6 * MEGABYTE, True),
        (1000, 900_000, False),  # a few words of other programs
        (0, 2 * MEGABYTE, True),
    ],
)
def test_bytes_on_another_network_are_a_warning_in_capitals(own: int, control: int, warned: bool) -> None:
    told = list(networks.warnings(carried(own, control)))
    assert bool(told) == warned
    assert all(each.startswith("ANOTHER NETWORK WAS USED: ctl0 (10.10.1.1) of rank 0 carried") for each in told)


def test_what_an_interface_carried_is_the_difference() -> None:
    uses = {use.name: use for use in networks.of(carried(own=400, control=100))}
    assert uses.keys() == {"ctl0", "eth0"}
    assert (uses["eth0"].bytes, uses["eth0"].own, uses["eth0"].share) == (400, True, 1.0)
    assert (uses["ctl0"].bytes, uses["ctl0"].own, uses["ctl0"].share) == (100, False, 0.25)


def test_a_rank_that_did_not_finish_and_an_older_record_say_nothing() -> None:
    assert networks.of(RunRecords(manifest(ranks=[participant(0)]), [RankRecords(0)])) == []


REAL: dict[str, Any] = MANIFEST["settings"] | {"master_addr": "10.10.1.1", "nodes": None}


@pytest.mark.parametrize(
    ("speeds", "settings", "expected"),
    [
        ([118e6, 118e6], REAL, "LINK_RATE=987mbit"),
        ([118e6, 118e6, 11.8e6], REAL, "LINK_RATE=987mbit LINK_RATE_BY_RANK=2=99mbit"),
        ([118e6, None], REAL, "LINK_RATE=987mbit"),
        ([None, None], REAL, None),
        ([118e6, 118e6], REAL | {"link_rate": "1gbit"}, None),
        ([118e6, 118e6], REAL | {"master_addr": "rank0"}, None),
        ([118e6, 118e6], REAL | {"master_addr": "rank0", "nodes": "a,b"}, "LINK_RATE=987mbit"),
    ],
)
def test_the_settings_that_would_emulate_links(
    speeds: list[float | None], settings: dict[str, Any], expected: str | None
) -> None:
    ranks = [participant(rank, speed=speed) for rank, speed in enumerate(speeds)]
    assert emulating(manifest(ranks=ranks, settings=settings)) == expected


def test_the_settings_are_such_as_the_program_takes() -> None:
    """A long way: a fourth of the round trip at each crossing of a shaped device."""
    ranks = [participant(rank, speed=speed) for rank, speed in enumerate((118e6, 118e6, 11.8e6))]
    for each in ranks:
        each["link"]["round_trip"]["measured_seconds"] = 0.02
    words = dict(word.split("=", 1) for word in (emulating(manifest(ranks=ranks, settings=REAL)) or "").split())
    assert link_rates.read_rate(words["LINK_RATE"]) == 987e6
    assert link_rates.read_rate_by_rank(words["LINK_RATE_BY_RANK"]) == {2: 99e6}
    assert link_rates.read_delay(words["LINK_DELAY"]) == pytest.approx(0.005)


def test_ranks_on_different_cpus_are_a_warning() -> None:
    def member(rank: int, model: str) -> Member:
        machine = Machine("a", (0,), None, 1, model, bfloat16=False, kernel="6", congestion_control="cubic")
        return Member(rank, "n", "10.0.0.1", 1, "eth0", 1, machine)

    assert unlike([member(0, "Old"), member(1, "Old")]) is None
    told = unlike([member(0, "Old"), member(1, "New"), member(2, "Old")])
    assert told is not None
    assert told.endswith("(Old: ranks 0, 2; New: rank 1)")
