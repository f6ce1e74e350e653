"""Ranks that fail are started again by Docker, and the run resumes by itself, or reports why it does not."""

import subprocess

from tests.containers.cluster import ENDLESS, SMALL, Clone, docker, until


def await_record(clone: Clone, *parts: str) -> None:
    """Until a line of rank 0's records has all of these."""
    path = clone.folder / "results/latest/rank-0.jsonl"
    until(
        lambda: path.is_file() and any(all(part in line for part in parts) for line in path.read_text().splitlines()),
        f"{parts} in {path}",
    )


def see_who_is_waited_for(clone: Clone) -> None:
    """In Docker's own words, while a worker is paused."""
    rank0, worker = clone.container("rank0"), clone.container("worker", 2)

    def says() -> str:
        return subprocess.run(["docker", "exec", rank0, "health"], capture_output=True, text=True).stdout

    assert says().startswith("training: ")
    pause = ["docker", "pause", worker]
    until(lambda: subprocess.run(pause, capture_output=True).returncode == 0, "a freezer that has its turn")
    until(lambda: f"waiting for rank 2 ({worker}, " in says(), "a rank that stalls")
    docker("unpause", worker)
    until(lambda: says().startswith("training: "), "training that has resumed")


def test_ranks_that_fail_again_and_again_are_given_up(clone: Clone) -> None:
    """With 1, and so does Compose, which leaves no rank running."""
    process = clone.start("docker", "compose", "up", **ENDLESS, WORKERS="2", MAX_RESTARTS="1")
    clone.wait_for_step(2)
    clone.kill("worker", 2)
    await_record(clone, '"kind": "step"', '"attempt": 1')
    see_who_is_waited_for(clone)
    victim = clone.kill("worker", 2)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert output.count(f"rank 0: lost rank 2 ({victim}, ") > 1
    assert "MAX_RESTARTS=1 is exhausted" in output
    assert "attempt 1: last step " in output
    assert clone.containers() == []
    assert clone.summary()["complete"] is False


def test_what_would_come_again_is_not_tried_again(used_clone: Clone) -> None:
    code, output = used_clone.run("scripts/up", **SMALL, LEARNING_RATE="1e30")
    assert code == 1, output
    assert "error: [diverged] " in output
    assert output.count("2 ranks have joined") == 1
    assert "Docker has restarted" not in output
    assert used_clone.containers() == []


def test_plain_compose_would_start_ranks_again_without_end(used_clone: Clone) -> None:
    code, output = used_clone.run("docker", "compose", "up", **SMALL, MAX_RESTARTS="0")
    assert code == 1
    assert "[conflicting-settings] MAX_RESTARTS=0 " in output
    assert len(used_clone.containers("--all", "--filter", "status=created")) == 3
