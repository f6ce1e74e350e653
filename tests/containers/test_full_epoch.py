"""The main job: four containers train VGG-11 for a whole epoch."""

import json
import math

import pytest

from tests.containers.cluster import Clone, docker

SMALLER = {"TRAIN_SAMPLES": "1542", "TEST_SAMPLES": "200"}


@pytest.mark.parametrize(
    ("settings", "samples", "accuracy"),
    [
        pytest.param(SMALLER, (386, 386, 385, 385), (0.05, 0.97), id="smaller"),
        pytest.param({}, (15_000,) * 4, (0.60, 0.97), marks=pytest.mark.long, id="as typed"),
    ],
)
def test_four_ranks_train_vgg_11_for_an_epoch(
    clone: Clone, settings: dict[str, str], samples: tuple[int, ...], accuracy: tuple[float, float]
) -> None:
    """`docker compose up`, whose last batch is not full; in the smaller version its parts are of two sizes."""
    process = clone.start("docker", "compose", "up", **settings)
    output, _ = process.communicate(timeout=2400)
    assert process.returncode == 0, output
    for container in clone.containers("--all"):
        assert docker("inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"

    run = clone.summary()
    assert (run["sync_mode"], run["model"], run["dataset"]) == ("ddp", "vgg11", "fashion")
    assert run["world_size"] == len(run["ranks"]) == 4
    assert run["complete"]
    hashes = set()
    for rank in range(4):
        # 36.9 MB of gradients, by the kernel's counters of each rank's interface.
        figures = run["ranks"][rank]
        assert figures["interface_bytes_sent_per_step"] == pytest.approx(
            figures["formula_bytes_sent_per_step"], rel=0.03
        )
        lines = (clone.folder / f"results/latest/rank-{rank}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        steps = [record for record in records if record["kind"] == "step"]
        assert [record["step"] for record in steps] == list(range(math.ceil(sum(samples) / 256)))
        assert sum(record["samples"] for record in steps) == samples[rank]
        hashes |= {record["parameters_sha256"] for record in records if record["kind"] == "finished"}
        data, whole = (sum(record[figure] for record in steps[1:]) for figure in ("data_seconds", "seconds"))
        print(f"rank {rank}: data is {data / whole:.2%} of the step")
    assert len(hashes) == 1
    assert min(run["losses"][-5:]) < run["losses"][0]
    assert accuracy[0] <= run["run"]["accuracy"] <= accuracy[1]
    print(json.dumps(run["run"], indent=1))
