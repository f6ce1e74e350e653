"""The check-up on real processes: complete where all is well, and with names where it is not."""

import re
import signal
from pathlib import Path

import pytest
import torch

from app.cluster.members import Cluster
from app.cluster.wire.communicator import Communicator, Transfer
from app.tools.doctor.checkup import examine
from app.tools.doctor.findings import find
from app.tools.doctor.programs import PROGRAMS
from tests.processes import group
from tests.processes.conftest import GroupOf
from tests.processes.group import Ranks, run_group
from tests.processes.program import start_as_typed


def matrix(output: str, title: str, world_size: int) -> list[list[str]]:
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    return [line.split()[2:] for line in lines[start + 2 : start + 2 + world_size]]


@pytest.mark.parametrize("world_size", [1, 3])
def test_every_pair_and_every_program_is_reported_by_rank_0_alone(tmp_path: Path, world_size: int) -> None:
    ranks = Ranks(tmp_path, world_size, "doctor")
    ranks.start()
    outcomes = ranks.wait()
    for rank, (code, output) in outcomes.items():
        assert code == 0, output
        assert rank == 0 or output == ""
    report = outcomes[0][1]
    assert re.search(r"^(all well|\d+ warnings?)$", report.splitlines()[-1])
    if world_size == 1:
        assert "the only rank" in report
        return
    for title in ("latency", "bandwidth"):
        rows = matrix(report, title, world_size)
        assert [len(row) for row in rows] == [world_size - 1] * world_size
        assert all(float(figure) > 0 for row in rows for figure in row)
    for program in PROGRAMS:
        assert re.search(rf"^{program} +ok +[\d.]+$", report, re.MULTILINE)


def test_a_rank_with_too_many_threads_is_a_warning_and_no_failure(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2, "doctor")
    ranks.start(0)
    ranks.start(1, THREADS_PER_RANK=256)
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [0, 0]
    assert re.search(r"^warning: 2 ranks \w+ \d+ CPUs", outcomes[0][1], re.MULTILINE)


def test_ranks_of_different_sources_are_a_problem_and_exit_1_everywhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in (group.ROOT / "app").rglob("*.py"):
        copy = other / path.relative_to(group.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    (other / "app/__init__.py").write_text((other / "app/__init__.py").read_text() + "\n")
    ranks = Ranks(tmp_path, 2, "doctor")
    ranks.start(0)
    ranks.folder, ranks.start_one = other, start_as_typed  # `python -m` looks there first
    ranks.start(1)
    outcomes = ranks.wait()
    assert [code for code, _ in outcomes.values()] == [1, 1], outcomes
    assert "problem: the program's source differs: " in outcomes[0][1]
    assert outcomes[0][1].splitlines()[-1].startswith("1 problem")


@pytest.mark.parametrize(("sent", "peer_timeout"), [(signal.SIGKILL, 60), (signal.SIGSTOP, 4)])
def test_a_rank_that_is_lost_meanwhile_is_named(tmp_path: Path, sent: signal.Signals, peer_timeout: int) -> None:
    ranks = Ranks(tmp_path, 4, "doctor", PEER_TIMEOUT=peer_timeout)
    ranks.start()
    lines = ranks.processes[0].stdout
    assert lines is not None
    assert any("one after the other" in line for line in lines)
    ranks.processes[3].send_signal(sent)
    try:
        for rank in (0, 1, 2):
            code, output = group.wait(ranks.processes[rank])
            assert code == 1, output
            assert f"rank {rank}: lost rank 3 (" in output
            assert "in the check-up" in output or "all-gather of 'doctor/" in output
    finally:
        ranks.processes[3].kill()
        ranks.processes[3].communicate()


class Damaging(Communicator):
    """A door that changes the first number of whatever its rank gives."""

    def start_send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> Transfer:
        return super().start_send(self._damaged(tensor) if tensor.numel() > 1 else tensor, to, tag)

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return super().gather(self._damaged(tensor))

    def all_reduce(self, tensor: torch.Tensor) -> None:
        tensor[self.rank, 0] += 1
        super().all_reduce(tensor)

    @staticmethod
    def _damaged(tensor: torch.Tensor) -> torch.Tensor:
        damaged = tensor.clone()
        damaged[0] += 1
        return damaged


def examine_with_a_culprit(cluster: Cluster) -> list[str]:
    door = Damaging if cluster.rank == 2 else Communicator
    findings = find(examine(cluster, door(cluster), lambda _: None))
    return [finding.text for finding in findings if finding.severity == "problem"]


def test_a_rank_that_damages_what_it_gives_is_named_by_every_program() -> None:
    for told in run_group(3, examine_with_a_culprit):
        found = [(text.partition(":")[0], re.findall(r"ranks? [\d, ]*\d", text.partition(". ")[0])) for text in told]
        assert [ranks for program, ranks in found if program == "gather"] == [["rank 2", "rank 0"]]
        assert [ranks for program, ranks in found if program == "all-reduce"] == [["rank 2", "ranks 0, 1, 2"]]
        pairs = [ranks for program, ranks in found if program == "send and receive"]
        assert [sender for sender, _ in pairs] == ["rank 2"] * 2


class ScatteringBadly(Communicator):
    """A centre that gives the last rank another one's part."""

    def scatter(self, tensor: torch.Tensor, parts: list[torch.Tensor]) -> None:  # type: ignore[override]
        super().scatter(tensor, [*parts[:-1], *parts[:1]])


def scatter_badly(cluster: Cluster) -> list[int]:
    return PROGRAMS["scatter"](ScatteringBadly(cluster), 100)


def test_a_mix_up_is_seen_where_it_arrives(group_of: GroupOf) -> None:
    assert group_of(3).run(scatter_badly) == [[], [], [0]]
