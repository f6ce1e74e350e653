"""What a run on real containers says of itself: causes put in on purpose are the ones that its verdict names."""

import os
import shlex
import signal
from typing import Any

from tests.containers.cluster import ENDLESS, Clone, docker

FOUR = {"WORKERS": "3", "SYNC_MODE": "ring_all_reduce"}
BUSY = ENDLESS | {"LINK_RATE": ""}


def headline(summary: dict[str, Any]) -> str:
    return str(summary["verdict"]["sentences"][0])


def test_a_thin_link_makes_it_communication_and_a_slow_cpu_computation(clone: Clone) -> None:
    """One run with little to compute, one with much; each report is made when its run ends, and names the cause."""
    little, much = {"GLOBAL_BATCH_SIZE": "32", "MAX_STEPS": "8"}, {"GLOBAL_BATCH_SIZE": "1437", "EPOCHS": "8"}
    thin_link = {"LINK_RATE": "5mbit", "LINK_CHECK": "strict"}
    output = clone.up(**FOUR, **little, **thin_link, RUN_NAME="thin")
    thin = clone.summary()
    assert headline(thin).startswith("Communication-bound: ")
    assert headline(thin) in output
    used = thin["run"]["bandwidth"]["utilisation"]
    print(headline(thin))
    assert f" {100 * used:.0f} % link" in headline(thin)
    assert used > 0.5

    command = thin["verdict"]["advice"]["command"]
    assert f"To try next: {command}" in output
    clone.up(*shlex.split(command)[1:], RUN_NAME="tried")
    print(command, clone.summary()["run"]["images_per_second"] / thin["run"]["images_per_second"])
    assert clone.summary()["run"]["images_per_second"] > thin["run"]["images_per_second"]

    quota = {"RANK_CPUS": "0.25", "RANK_MEMORY": "1g"}
    output = clone.up(**FOUR, **much, **quota, MAX_STEPS="8", RUN_NAME="slow")
    slow = clone.summary()
    # Threads follow the quota, and four quarters of a CPU do not slow each other down.
    assert [(rank["quota_cpus"], rank["threads"]) for rank in clone.manifest()["ranks"]] == [(0.25, 1)] * 4
    assert "so they slow each other down" not in output
    # Quotas of one CPU in all leave the other cores free, unless other programs take them: then the page says that.
    assert headline(slow).startswith(("Compute-bound: ", "CPU-saturated: "))
    assert any("RANK_CPUS=0.25" in sentence for sentence in slow["verdict"]["sentences"])
    assert max(rank["usage"]["throttled_seconds"] for rank in slow["ranks"]) > 0
    assert slow["run"]["processor"]["quota"] > thin["run"]["processor"]["quota"] == 0
    assert not any("RANK_CPUS did not set" in warning for warning in slow["warnings"])
    for name, summary in (("thin", thin), ("slow", slow)):
        assert headline(summary).replace("'", "&#39;") in (clone.folder / f"results/{name}/report.html").read_text()

    code, output = clone.run("scripts/compare", "thin", "results/slow")
    assert code == 0, output
    faster, slower = sorted((thin, slow), key=lambda each: -each["run"]["images_per_second"])
    rows = [line.split() for line in output.splitlines() if line.startswith(("thin ", "slow "))]
    assert [row[0] for row in rows] == [faster["run_name"], slower["run_name"]]
    assert f"{faster['run']['images_per_second'] / slower['run']['images_per_second']:.2f} x" in output
    assert "Differs: LINK_RATE: " in output


def test_usage_is_the_kernels_and_covers_the_run(clone: Clone) -> None:
    clone.up(**FOUR, MAX_STEPS="40", USAGE_INTERVAL="0.1")
    for number in range(4):
        records = clone.records(number)
        samples = [record for record in records if record["kind"] == "usage"]
        steps = [record for record in records if record["kind"] == "step"]
        assert records[-1]["kind"] == "finished"
        assert sum(sample["seconds"] for sample in samples) >= sum(step["seconds"] for step in steps)
        # Every byte of a step passes within some sample, and little else does.
        sampled = sum(sample["network_sent_bytes"] for sample in samples)
        stepped = sum(step["interface_bytes_sent"] for step in steps)
        assert stepped <= sampled <= stepped * 1.2 + 100_000
        assert min(sample["memory_bytes"] for sample in samples) > 50e6
        busy = sum(
            (sample["cpu_user_percent"] + sample["cpu_system_percent"]) * sample["seconds"] for sample in samples
        )
        assert 1 < busy / sum(sample["seconds"] for sample in samples) <= 100 * (os.cpu_count() or 1) * 1.1


def test_a_rank_with_half_the_cpu_is_the_straggler_in_an_interrupted_run_as_well(clone: Clone) -> None:
    process = clone.start("scripts/up", **BUSY, **FOUR, GLOBAL_BATCH_SIZE="1024")
    clone.wait_for_step(2)
    docker("update", "--cpus", "0.12", clone.container("worker", 2))
    clone.wait_for_step(40)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    summary = clone.summary()
    assert summary["complete"] is False
    assert summary["run"]["straggler"]["rank"] == 2
    waits = [rank["wait_seconds"]["mean"] for rank in summary["ranks"]]
    print(waits, summary["run"]["straggler"])
    assert min(waits[rank] for rank in (0, 1, 3)) > 1.5 * waits[2]
    assert any("rank 2 was throttled by a CPU quota" in warning for warning in summary["warnings"])
    page = (clone.folder / "results/latest/report.html").read_text()
    assert "Rank 2 is the straggler" in page
    assert "incomplete: " in page


def test_a_run_whose_rank_0_was_killed_still_gets_its_report(clone: Clone) -> None:
    process = clone.start("scripts/up", MAX_RESTARTS="0", **ENDLESS, WORKERS="1")
    clone.wait_for_step(10)
    clone.kill("rank0")
    output, _ = process.communicate(timeout=120)
    assert process.returncode not in (0, 2), output
    assert "Report: results/" in output
    summary = clone.summary()
    assert summary["complete"] is False
    assert summary["steps"] >= 9
    page = (clone.folder / "results/latest/report.html").read_text()
    assert "the run is incomplete" in page
    assert "nfinished ranks: 0, 1" in page
