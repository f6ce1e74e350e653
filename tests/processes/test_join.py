"""Joining: complete or ended in time, and never with ranks that want something else."""

import socket
from pathlib import Path

import pytest

from app.modes import MODES
from tests.processes import group
from tests.processes.group import Ranks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    group.prepare(tmp_path)
    return tmp_path


def test_a_missing_rank_ends_the_wait_with_the_list(folder: Path) -> None:
    ranks = Ranks(folder, 4, JOIN_TIMEOUT=12)  # beyond the first reminder
    ranks.start(0, 1, 3)
    outcomes = ranks.wait()
    for code, output in outcomes.values():
        assert code == 1
        assert "Joined: rank 0, rank 1, rank 3. Missing: rank 2." in output
    assert "waiting for rank 2" in outcomes[0][1]


def test_without_rank_0_the_others_give_up(folder: Path) -> None:
    ranks = Ranks(folder, 2, JOIN_TIMEOUT=3)
    ranks.start(1)
    code, output = ranks.wait()[1]
    assert code == 1
    assert "rank 0 did not answer at 127.0.0.1:" in output
    assert "JOIN_TIMEOUT=3 s" in output


def test_ranks_with_other_settings_are_refused_by_name(folder: Path) -> None:
    ranks = Ranks(folder, 2)
    ranks.start(0)
    ranks.start(1, SEED=5)
    outcomes = ranks.wait()
    assert outcomes[0][0] == 2
    assert outcomes[1][0] != 0
    for _, output in outcomes.values():
        assert "rank 1 has SEED=5, rank 0 has 1" in output


def test_another_world_size_is_refused(folder: Path) -> None:
    ranks = Ranks(folder, 2)
    ranks.start(0)
    ranks.start(1, WORLD_SIZE=3)
    assert ranks.wait()[0][0] == 2


def test_a_port_in_use_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ranks = Ranks(folder, 2, MASTER_PORT=taken.getsockname()[1])
        ranks.start(0)
        code, output = ranks.wait()[0]
    assert code == 1
    assert "Choose another MASTER_PORT" in output


def test_a_wrong_setting_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for command in ("prepare", "train"):
        code, output = group.wait(group.start(command, tmp_path, SYNC_MODE="dpp"))
        assert (code, output) == (
            2,
            f"error: [invalid-setting] invalid SYNC_MODE 'dpp'. Choose from: {', '.join(MODES)}, "
            "or the name of a file in extensions/. Did you mean ddp?\n",
        )
    assert list(tmp_path.iterdir()) == []
