"""Links between processes of one host, which nobody has shaped: measured before each run, and held to what is asked."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from app.cluster.link import flows, measurement
from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator
from app.settings.links import LinkSettings
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.group import Ranks, Value

STEPS = 3


def train(folder: Path, world_size: int, **settings: Value) -> tuple[dict[int, tuple[int, str]], dict[str, Any]]:
    """Outcomes and manifest."""
    settings = {"MAX_STEPS": STEPS, "EVALUATE": "never", "LINK_CHECK": "strict", **settings}
    group.prepare(folder, **settings)
    ranks = Ranks(folder, world_size, "train", **settings)
    ranks.start()
    return ranks.wait(), json.loads((folder / "results/latest/manifest.json").read_text())


def test_an_unshaped_network_is_measured_and_nothing_is_expected_of_it(tmp_path: Path) -> None:
    outcomes, manifest = train(tmp_path, 3, SYNC_MODE="ring_all_reduce")
    assert [code for code, _ in outcomes.values()] == [0, 0, 0], outcomes
    assert "links, measured in MB/s" in outcomes[0][1]
    for rank in manifest["ranks"]:
        for way in ("sent", "received"):
            assert rank["link"][way]["measured_bytes_per_second"] > 0
            assert rank["link"][way]["error"] is None
        assert rank["link"]["round_trip"]["measured_seconds"] > 0
    slowest = min(
        rank["link"][way]["measured_bytes_per_second"] for rank in manifest["ranks"] for way in ("sent", "received")
    )
    assert manifest["sync_seconds_at_least"] == pytest.approx(4 / 3 * manifest["gradient_bytes"] / slowest)
    summary = json.loads((tmp_path / "results/latest/summary.json").read_text())
    bandwidth = summary["run"]["bandwidth"]
    assert bandwidth["bus_bytes_per_second"] == pytest.approx(4 / 3 * bandwidth["algorithm_bytes_per_second"])
    assert bandwidth["utilisation"] == pytest.approx(manifest["sync_seconds_at_least"] / bandwidth["sync_seconds"])
    # For a ring, that is its bus bandwidth by the slowest link.
    assert bandwidth["utilisation"] == pytest.approx(bandwidth["bus_bytes_per_second"] / slowest)


def test_a_run_on_links_that_were_never_shaped_ends_before_its_first_step(tmp_path: Path) -> None:
    outcomes, manifest = train(tmp_path, 2, LINK_RATE="10mbit")
    for rank, (code, output) in outcomes.items():
        assert code == 1, output
        assert f"rank {rank}: the network misses the LINK_* settings" in output
        assert "rank 1, receiving" in output
        assert "LINK_CHECK=warn" in output
    assert all(rank["link"]["sent"]["error"] > 0.1 for rank in manifest["ranks"])
    assert all(rank["link"]["sent"]["asked_bits_per_second"] == 10e6 for rank in manifest["ranks"])
    assert not list(tmp_path.glob("results/latest/rank-*"))
    assert not json.loads((tmp_path / "results/latest/summary.json").read_text())["complete"]


def test_with_a_warning_it_trains_and_the_records_say_so(tmp_path: Path) -> None:
    outcomes, manifest = train(tmp_path, 2, LINK_RATE="10mbit", LINK_CHECK="warn")
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert "warning: a link misses the requested value: rank 0, sending" in outcomes[0][1]
    assert len([warning for warning in manifest["warnings"] if "expected" in warning]) == 4


def test_what_is_not_measured_is_null(tmp_path: Path) -> None:
    outcomes, manifest = train(tmp_path, 2, LINK_RATE="10mbit", LINK_CHECK="off")
    assert [code for code, _ in outcomes.values()] == [0, 0], outcomes
    assert [rank["link"] for rank in manifest["ranks"]] == [None, None]
    assert manifest["sync_seconds_at_least"] is None
    summary = json.loads((tmp_path / "results/latest/summary.json").read_text())
    assert summary["run"]["bandwidth"]["utilisation"] is None
    assert summary["run"]["bandwidth"]["bus_bytes_per_second"] > 0


def test_alone_there_is_no_link(tmp_path: Path) -> None:
    outcomes, manifest = train(tmp_path, 1, LINK_RATE="10mbit")
    assert outcomes[0][0] == 0, outcomes
    assert manifest["ranks"][0]["link"] is None


def distances_measured(cluster: Cluster) -> list[int]:
    """How far before this rank the one was that it measured a flow from, round by round."""
    with patch.object(flows, "_flow", wraps=flows._flow) as flow:
        measurement.measure_links(LinkSettings(), cluster, Communicator(cluster))
    return [call.args[1] for call in flow.call_args_list]


@pytest.mark.parametrize(("world_size", "distances"), [(2, [1, 1, 1]), (3, [1, 2, 1]), (5, [1, 2, 3])])
def test_however_few_ranks_each_has_three_rounds(group_of: GroupOf, world_size: int, distances: list[int]) -> None:
    """A flow of a fifth of a second is easily spoilt; the best of three is not."""
    assert group_of(world_size).run(distances_measured) == [distances] * world_size
