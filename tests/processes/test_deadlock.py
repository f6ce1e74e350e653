"""Ranks that wait for each other: the error lists what every rank does, with the user's file and line."""

import json
import re
from pathlib import Path

import pytest

from app.cluster.activity import Activity
from app.cluster.members import Cluster
from tests.processes.group import Ranks, prepare, run_group

PEER_TIMEOUT = 3

MODE = """\
import time
import torch
from app.sync import ALL_REDUCE, Exchange


class MyMode(Exchange):
    cost = ALL_REDUCE

    def average(self, values):
        c = self._communicator
        arriving = torch.empty_like(values)
{body}
"""


def run_with(folder: Path, body: str) -> dict[int, str]:
    """The outputs of two ranks, all of which end with code 1."""
    (folder / "extensions").mkdir()
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    (folder / "extensions/my_mode.py").write_text(MODE.format(body=lines))
    prepare(folder, SYNC_MODE="my_mode")
    ranks = Ranks(folder, 2, SYNC_MODE="my_mode", EVALUATE="never", PEER_TIMEOUT=PEER_TIMEOUT, RUN_NAME="own")
    ranks.start()
    ended = ranks.wait()
    assert {code for code, _ in ended.values()} == {1}, ended
    return {rank: output for rank, (_, output) in ended.items()}


def name_of(output: str) -> str:
    (name,) = re.findall(r"^error: \[(\S+)\] ", output, re.MULTILINE)
    return str(name)


def listed(output: str) -> dict[int, tuple[str, str]]:
    """By rank, what it does and where."""
    found = re.findall(r"^  rank (\d+): (.*) \((\S+, line \d+, in \w+)\)$", output, re.MULTILINE)
    return {int(rank): (doing, place) for rank, doing, place in found}


def place(line: int) -> str:
    return f"extensions/my_mode.py, line {line}, in average"


FIRST = 1 + MODE.partition("{body}")[0].count("\n")  # the line of a body's first line


@pytest.mark.parametrize(
    ("body", "operations", "lines"),
    [
        (
            "c.start_receive(arriving, 1 - c.rank).wait()\nc.start_send(values, 1 - c.rank).wait()",
            ("receive of {} bytes from rank 1 at step 0", "receive of {} bytes from rank 0 at step 0"),
            (0, 0),
        ),
        (
            "if c.rank == 0:\n    c.all_reduce(values)\nelse:\n    time.sleep(0.5)\n    c.broadcast(values)",
            ("all-reduce of {} bytes at step 0", "broadcast of {} bytes at step 0"),
            (1, 4),
        ),
    ],
    ids=["receive before send", "different collectives"],
)
def test_in_a_deadlock_every_rank_lists_the_operations_and_lines_of_all(
    tmp_path: Path, body: str, operations: tuple[str, str], lines: tuple[int, int]
) -> None:
    for output in run_with(tmp_path, body).values():
        assert name_of(output) == "deadlock", output
        (size,) = set(re.findall(r"^  rank \d: .* of (\d+) bytes", output, re.MULTILINE))
        expected = [(each.format(size), place(FIRST + line)) for each, line in zip(operations, lines, strict=True)]
        assert listed(output) == dict(enumerate(expected))
        assert "Traceback" not in output
    (attempt,) = (tmp_path / "results/own/attempts.jsonl").read_text().splitlines()
    assert json.loads(attempt)["comes_again"] is True


def test_a_rank_in_an_endless_loop_is_no_deadlock_and_named_with_its_line(tmp_path: Path) -> None:
    """Also by rank 0 that loops itself, and hears of it from rank 1."""
    body = "while c.rank == 0:\n    pass\nc.all_reduce(values)"
    for output in run_with(tmp_path, body).values():
        assert name_of(output) == "rank-lost", output
        assert "[deadlock]" not in output
        doing, at = listed(output)[0]
        assert "all-reduce" not in doing
        assert at in (place(FIRST), place(FIRST + 1))
        assert listed(output)[1][1] == place(FIRST + 2)


def activities(cluster: Cluster) -> list[Activity]:
    """While it trains, while it waits, and when PyTorch's own operation fails in the training."""
    with cluster.watching("training", lambda: "at step 7", waits=False):
        found = [cluster.activity()]
        with cluster.watching("barrier", lambda: "at step 7"):
            found.append(cluster.activity())
        try:
            raise RuntimeError
        except RuntimeError as error:
            return [*found, cluster.activity(error)]


def test_a_rank_waits_in_an_operation_and_not_while_it_trains() -> None:
    ((trains, waits, fails),) = run_group(1, activities)
    assert trains.waited is None
    assert trains.doing != "training at step 7"
    assert (waits.doing, waits.waited is not None) == ("barrier at step 7", True)
    assert (fails.doing, fails.waited) == ("training at step 7", 0)
