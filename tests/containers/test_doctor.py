"""scripts/doctor, as users call it."""

import re

import pytest

from tests.containers.cluster import Clone


def test_four_containers_are_examined_and_nothing_is_left(used_clone: Clone) -> None:
    code, output = used_clone.run("scripts/doctor", RANK_CPUS="0.25")
    assert code == 0, output
    rows = [line.split() for line in output.splitlines() if re.match(r"\d +lockstep-test-", line)]
    assert [(row[0], row[1]) for row in rows] == [
        ("0", used_clone.container("rank0")),
        *((str(number), used_clone.container("worker", number)) for number in (1, 2, 3)),
    ]
    assert len({row[2] for row in rows}) == 4
    assert len({row[2].rpartition(".")[0] for row in rows}) == 1
    assert {row[6] for row in rows} == {"0.25"}
    for program in ("gather", "scatter", "all-reduce"):
        assert re.search(rf"^{program} +ok ", output, re.MULTILINE)
    assert re.search(r"^(all well|\d+ warnings?)$", output.splitlines()[-1])
    assert used_clone.containers("--all") == []
    assert not (used_clone.folder / "results/latest").exists()


def test_memory_and_threads_that_do_not_suffice_are_warnings(used_clone: Clone) -> None:
    code, output = used_clone.run(
        "scripts/doctor", "WORKERS=1", "RANK_CPUS=1", "RANK_MEMORY=600m", "THREADS_PER_RANK=2"
    )
    assert code == 0, output
    assert "warning: ranks 0, 1: 2 threads on a quota of 1 CPUs" in output
    assert "warning: ranks 0, 1: a memory limit of 600 MiB." in output


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("SYNC_MODE=dpp", "Did you mean ddp?"),
        ("WORKERS=-1", "0 to 100"),
        ("--fast", "[unknown-option]"),
    ],
)
def test_a_wrong_setting_ends_with_2_before_any_rank_starts(used_clone: Clone, wrong: str, told: str) -> None:
    code, output = used_clone.run("scripts/doctor", wrong)
    assert code == 2, output
    assert told in output
    assert "have joined" not in output
    assert used_clone.containers("--all") == []


def test_a_killed_worker_is_named_and_nothing_is_left(clone: Clone) -> None:
    process = clone.start("scripts/doctor", RANK_CPUS="0.2", WORKERS="1")  # so little that there is time for it
    assert process.stdout is not None
    assert any("one after the other" in line for line in process.stdout)
    victim = clone.kill("worker", 1)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert f"rank 0: lost rank 1 ({victim}, " in output
    assert clone.containers("--all") == []
