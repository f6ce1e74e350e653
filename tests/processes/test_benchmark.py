"""The benchmarks run, and tell of everything; their figures are for reading, and no test asserts them."""

import re
from pathlib import Path

import pytest

from app.benchmark.choice import OPERATION_NAMES
from app.benchmark.collectives import OPERATIONS
from app.cluster.members import Cluster
from app.modes import MODES
from app.settings.fields import Settings
from app.wire.communicator import Communicator
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.group import Ranks

ROW = re.compile(r"^(?P<mode>\w+).* +(?P<seconds>[\d.]+) +.+ +[\d.]+ +(?P<ratio>[\d.]+) +\([\d.]+ to [\d.]+\)$")


def test_every_mode_is_timed_beside_plain_code(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark sync")
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    rows = [row for row in map(ROW.match, outcomes[0][1].splitlines()) if row]
    assert {row["mode"] for row in rows} == set(MODES) - {"none"}
    assert all(float(row["seconds"]) > 0 and float(row["ratio"]) > 0 for row in rows)


def test_a_wrong_name_is_refused(tmp_path: Path) -> None:
    code, output = group.wait(group.start("benchmark synk", tmp_path))
    assert code == 2
    assert "invalid choice: 'synk' (choose from sync, collectives, overhead)" in output


COST = re.compile(r"^(?P<part>\w[\w .,]*?) +(?P<milliseconds>[\d.]+|-) +(?:[\d.]+%|-)$")


@pytest.mark.parametrize("mode", ["all_reduce", "ddp"])  # one that waits at a barrier, one that hides what it sends
def test_what_measuring_costs_is_told_part_by_part(tmp_path: Path, mode: str) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark overhead", SYNC_MODE=mode)
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert outcomes[1][1] == ""
    told = outcomes[0][1]
    costs = {row["part"]: row["milliseconds"] for row in map(COST.match, told.splitlines()) if row}
    *parts, everything = costs
    assert (len(parts), everything) == (5, "all")
    assert [part for part in parts if costs[part] == "-"] == (["timed barrier"] if mode == "ddp" else [])
    measured = [float(costs[part]) for part in parts if costs[part] != "-"]
    assert abs(sum(measured) - float(costs["all"])) <= 0.0005 * (len(measured) + 1) + 1e-9  # each is rounded
    assert f"lenet5, {mode}, 2 ranks, 256 images" in told
    assert re.search(
        r"^steps with and without measuring, in turn: [\d.]+ \(least to most of \d+ pairs", told, re.MULTILINE
    )


TIMED = r"(?P<p50>[\d.]+) +(?P<p99>[\d.]+) +(?P<algorithm>[\d.]+) +(?P<bus>[\d.]+) +(?P<wrong>\d+) +\d+%"
CELL = re.compile(rf"^(?P<operation>\w+) +(?P<size>\d+) +\d+ +{TIMED} +{TIMED.replace('?P<', '?P<straight_')} +[\d.]+$")


def test_every_operation_is_timed_at_every_size_for_every_number_of_ranks(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3, "benchmark collectives --smallest 16k --largest 60k", LINK_CHECK="strict")
    ranks.start()
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0, 0], outcomes
    tables = re.split(r"^(\d) ranks, links of .*$", outcomes[0][1], flags=re.MULTILINE)[1:]
    assert tables[::2] == ["2", "3"]
    for table in tables[1::2]:
        cells = [cell for cell in map(CELL.match, table.splitlines()) if cell]
        expected = [(name, size) for name in OPERATION_NAMES for size in ("16384", "61440")]
        assert [(cell["operation"], cell["size"]) for cell in cells] == expected
        for cell in cells:
            assert cell["wrong"] == cell["straight_wrong"] == "0"
            assert 0 < float(cell["p50"]) <= float(cell["p99"])


def test_links_that_are_not_as_asked_end_a_benchmark(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "benchmark collectives --largest 4k", LINK_RATE="1mbit", LINK_CHECK="strict")
    ranks.start()
    code, output = ranks.wait()[0]
    assert code == 1
    assert "the network misses the LINK_* settings" in output


def wrong_numbers(cluster: Cluster, name: str) -> list[list[int]]:
    """Of each door: before anything came, and after."""
    found = []
    communicator = Communicator(cluster)
    for door in OPERATIONS[name].doors(communicator, Settings(), 4096):
        door.prepare()
        before = door.wrong()
        communicator.wait_for_peers()
        door.run()
        found.append([before, door.wrong()])
    return found


@pytest.mark.parametrize("name", OPERATION_NAMES)
def test_numbers_that_did_not_come_are_counted_as_wrong(group_of: GroupOf, name: str) -> None:
    outcomes = group_of(2).run(wrong_numbers, name)
    for door in (0, 1):
        assert sum(outcome[door][0] for outcome in outcomes) > 0
        assert [outcome[door][1] for outcome in outcomes] == [0, 0]
